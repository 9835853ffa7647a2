"""A real container runtime for tests: one private containerd for the whole session.

Under pytest-xdist each worker has its own. A test that leaves its runtime stopped or frozen makes
one of its own with `provisioned`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BASE = Path(os.environ.get("TEST_RUNTIME_BASE") or ROOT / ".test" / "runtime" / "base")
CGROUPS = Path("/sys/fs/cgroup")

# What tools/runtime says when it lacks a package mirror or another thing it cannot make itself.
_NOT_ON_THIS_MACHINE = ("cannot download", "names no", "/lib apart", "is missing")


@dataclass(frozen=True)
class RealRuntime:
    """A running containerd; `control` runs `tools/runtime COMMAND` on it."""

    directory: Path
    endpoint: str
    host_address: str  # of this machine in the network of its pods

    def control(self, command: str, *arguments: str) -> str:
        return _tool(command, "--dir", str(self.directory), *arguments)


@contextmanager
def provisioned(directory: Path, *, share: Path | None = None) -> Iterator[RealRuntime]:
    """A containerd in `directory`, gone at the end with all that ran in it.

    It sees what is mounted below `share` later on. Skips where a runtime cannot be provisioned.
    """
    if os.geteuid() != 0:
        pytest.skip("a real container runtime needs root")
    shared = ("--share", str(share)) if share else ()
    try:
        told = _tool("up", "--dir", str(directory), "--base", str(BASE), *shared)
    except RuntimeError as error:
        if any(cause in str(error) for cause in _NOT_ON_THIS_MACHINE):
            pytest.skip(str(error).strip().rpartition("\n")[2])
        raise
    try:
        yield RealRuntime(directory, *told.split())
    finally:
        _tool("down", "--dir", str(directory))


@pytest.fixture(scope="session")
def real_runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRuntime]:
    share = tmp_path_factory.getbasetemp()
    with provisioned(tmp_path_factory.mktemp("rt"), share=share) as runtime:
        yield runtime


def pod_cgroups(parent: str) -> list[Path]:
    """The directories of the cgroup `parent` (`/orchpods/pod…`) in every hierarchy there is."""
    relative = parent.lstrip("/")
    found = [CGROUPS / relative, *(root / relative for root in CGROUPS.iterdir() if root.is_dir())]
    return [path for path in found if path.is_dir()]


def remove_pod_cgroups(parent: str) -> None:
    """Remove an empty pod's cgroups; the runtime only removes those of its containers.

    What all pods share stays: another worker may be about to make a pod in it.
    """
    for top in pod_cgroups(parent):
        for directory, _, _ in os.walk(top, topdown=False):
            _remove_cgroup(Path(directory))


def _remove_cgroup(cgroup: Path) -> None:
    """Remove it once its last process is gone from it."""
    until_s = time.monotonic() + 30
    while cgroup.exists():
        try:
            cgroup.rmdir()
        except OSError:  # a process is not gone yet, or the runtime was faster
            assert time.monotonic() < until_s, f"{cgroup} cannot be removed"
            time.sleep(0.02)


def _tool(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "runtime"), *arguments],
        capture_output=True,
        text=True,
        timeout=600,
    )
    if done.returncode != 0:
        raise RuntimeError(f"tools/runtime {' '.join(arguments)} failed:\n{done.stderr}")
    return done.stdout.strip()
