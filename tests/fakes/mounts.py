"""Mounts for tests: a fake that mounts nothing, a directory to mount in, and the real helper."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nodeagent.pods.volumes import kernel_mounts
from nodeagent.pods.volumes.mounts import MountError
from nodeagent.pods.volumes.nfs import Share

# As the shipped unit runs the agent: in a mount namespace of its own, with these capabilities.
CONFINED = [
    "unshare", "--mount", "--propagation", "slave", "--",
    "setpriv", "--bounding-set=-all,+chown,+dac_override,+fowner", "--no-new-privs", "--",
]  # fmt: skip


class FakeMounts:
    """Passes the contract of `Mounts` as far as a place can tell; `refusal` is raised if set."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []
        self.refusal: MountError | None = None

    def tmpfs(self, place: Path, size_bytes: int | None) -> None:
        self._note("tmpfs", str(place), str(size_bytes))

    def hugepages(self, place: Path, page_bytes: int, size_bytes: int | None) -> None:
        self._note("hugepages", str(place), str(page_bytes), str(size_bytes))

    def nfs(self, place: Path, share: Share) -> None:
        self._note("nfs", str(place), share.text().decode())

    def bind(self, source: int, place: Path) -> None:
        self._note("bind", os.readlink(f"/proc/self/fd/{source}"), str(place))

    def unmount(self, place: Path, *, share: bool = False) -> None:
        self._note("unmount", str(place))

    def _note(self, *call: str) -> None:
        if self.refusal:
            raise self.refusal
        self.calls.append(call)


@contextmanager
def shared_directory(directory: Path, *, times: int = 1) -> Iterator[Path]:
    """A directory whose mounts are seen in other namespaces, as orch-up makes it.

    Shared twice, every mount in it is there twice, and both go at once.
    """
    directory.mkdir()
    for _ in range(times):
        subprocess.run(["mount", "--bind", directory, directory], check=True)
        subprocess.run(["mount", "--make-shared", directory], check=True)
    try:
        yield directory
    finally:
        for mount in kernel_mounts.mounts_below(str(directory)):
            kernel_mounts.unmount(mount.path)


@contextmanager
def running_helper(root: Path, path: Path, *, unit: str = "") -> Iterator[subprocess.Popen[str]]:
    """The helper as systemd starts it, with its socket at `path` as descriptor 3."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen()
        program = [sys.executable, "-m", "nodeagent.pods.volumes.mount_helper"]
        command = ["bash", "-c", f'exec "$@" 3<&{listener.fileno()}', "bash", *program]
        helper = subprocess.Popen(
            [*command, f"--root-dir={root}", f"--peer-unit={unit}"],
            pass_fds=[listener.fileno()],
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield helper
        finally:
            helper.kill()
            helper.communicate()
