"""A bad configuration: one clear line that names file and field, exit code 1, nothing started."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import preloaded

HEAD = "apiVersion: nodeagent.config.orch.io/v1beta1\nkind: NodeAgentConfiguration\n"
CASES = {
    "unknown kind": ("apiVersion: v1\nkind: Pod\n", "agent.yaml:1: apiVersion: 'v1' is unknown"),
    "bad duration": (
        HEAD + "nodeStatusUpdateFrequency: soon\n",
        "agent.yaml:3: nodeStatusUpdateFrequency: ",
    ),
    "missing file": (None, "agent.yaml: No such file or directory"),
    "unknown field": (HEAD + "prot: 10250\n", "agent.yaml:3: prot: there is no such field"),
    "missing certificate": (
        HEAD + "tlsCertFile: /absent.crt\ntlsPrivateKeyFile: /absent.key\n",
        "/absent.crt",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_agent_says_what_is_wrong_and_starts_nothing(tmp_path: Path, case: str) -> None:
    text, message = CASES[case]
    path = tmp_path / "agent.yaml"
    if text is not None:
        path.write_text(text)
    done = preloaded.run(
        "nodeagent.main", f"--config={path}", f"--root-dir={tmp_path / 'root'}",
        f"--lock-file={tmp_path / 'agent.lock'}", "--healthz-port=0",
        "--container-runtime-endpoint=",
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stdout == ""
    lines = done.stderr.strip().splitlines()
    assert [line for line in lines if not line.startswith("nodeagent: error: ")] == []
    assert message in lines[0]
    assert len(lines) == (2 if case == "unknown kind" else 1)
    assert not (tmp_path / "root" / "checkpoints").exists()
