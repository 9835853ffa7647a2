"""`nodeagent reset` on what a killed agent has left at a real containerd."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from nodeagent.commands.dispatch import dispatch
from nodeagent.pods.cgroups import tree
from nodeagent.pods.volumes import kernel_mounts
from tests.conftest_runtime import CGROUPS, RealRuntime, provisioned

pytestmark = pytest.mark.real

PARENT = "/reset-test"
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "left", "namespace": "shop"},
    "spec": {
        "volumes": [{"name": "memory", "emptyDir": {"medium": "Memory"}}],
        "containers": [
            {
                "name": "main",
                "image": "localhost/busybox:1",
                "command": ["sleep", "1000"],
                "volumeMounts": [{"name": "memory", "mountPath": "/memory"}],
            }
        ],
    },
}


class Host:
    """An agent's places on this machine, and its commands."""

    def __init__(self, directory: Path, runtime: RealRuntime, port: int) -> None:
        self.root, self.logs = directory / "agent", directory / "log" / "pods"
        self.lock = directory / "lock"
        self.root.mkdir()
        self.manifests = directory / "manifests"
        self.manifests.mkdir()
        self.flags = [
            f"--root-dir={self.root}", f"--lock-file={self.lock}", "--hostname-override=host1",
            f"--pod-logs-dir={self.logs}", f"--pod-manifest-path={self.manifests}",
            f"--cgroup-root={PARENT}", f"--port={port}", "--healthz-port=0", "--address=127.0.0.1",
            f"--container-runtime-endpoint={runtime.endpoint}",
        ]  # fmt: skip

    def start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "nodeagent.main", *self.flags],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def reset(self, *flags: str) -> tuple[int | None, str, str]:
        """Exit code, output, errors."""
        with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as errors:
            code = dispatch(["reset", *self.flags, *flags])
        return code, out.getvalue(), errors.getvalue()

    def cgroups(self) -> list[Path]:
        below = f"{PARENT.lstrip('/')}/orchpods"
        return [path for top in (CGROUPS, *CGROUPS.iterdir()) if (path := top / below).is_dir()]


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[RealRuntime]:
    with provisioned(tmp_path / "rt", share=tmp_path) as running:
        yield running
    for top in (CGROUPS, *CGROUPS.iterdir()):
        if (own := top / PARENT.lstrip("/")).is_dir():
            tree.remove_cgroups(own)  # also after a failure


def until(done: Callable[[], object], what: str, within_s: float = 60.0) -> None:
    end_s = time.monotonic() + within_s
    while not done():
        assert time.monotonic() < end_s, f"not within {within_s:.0f} s: {what}"
        time.sleep(0.1)


def test_a_reset_removes_what_the_agent_made_and_nothing_else(
    tmp_path: Path, runtime: RealRuntime, free_port: Callable[[], int]
) -> None:
    host = Host(tmp_path, runtime, free_port())
    (host.root / "seccomp").mkdir()
    (host.manifests / "left.json").write_text(json.dumps(POD))
    agent = host.start()
    try:
        until(lambda: any(host.logs.glob("shop_left*/main/*.log")), "the pod's log")
        assert kernel_mounts.mounts_below(f"{host.root}/pods")
        code, _, errors = host.reset("--yes")
        assert code == 1
        assert "stop it first: systemctl stop nodeagent" in errors
    finally:
        agent.kill()
        agent.wait()

    code, out, errors = host.reset()
    assert (code, errors) == (0, "")
    for what in ("pod shop/left", "mount /", "cgroup /", f"{host.root}/pods", f"{host.root}/pki"):
        assert f"would remove {what}" in out
    assert any(host.logs.iterdir()), "a dry run removes nothing"
    assert host.cgroups()

    code, out, errors = host.reset("--yes")
    assert (code, errors) == (0, "")
    assert "removed pod shop/left" in out
    assert kernel_mounts.mounts_below(str(host.root)) == []
    assert host.cgroups() == []
    assert list(host.logs.iterdir()) == []
    assert [path.name for path in host.root.iterdir()] == ["seccomp"], "an administrator's"
    assert not host.lock.exists()

    assert host.reset("--yes") == (0, "", "")
    assert host.reset() == (0, "there is nothing to remove\n", "")


def test_a_reset_that_finds_no_runtime_removes_nothing(tmp_path: Path) -> None:
    absent = RealRuntime(tmp_path, f"unix://{tmp_path}/absent.sock", "")
    host = Host(tmp_path, absent, 10250)
    (host.root / "pods" / "uid1").mkdir(parents=True)
    code, _, errors = host.reset("--yes")
    assert code == 1
    assert "cannot be listed" in errors and "--container-runtime-endpoint=" in errors
    assert (host.root / "pods" / "uid1").exists()

    assert host.reset("--yes", "--container-runtime-endpoint=")[0] == 0
    assert not host.root.exists()
