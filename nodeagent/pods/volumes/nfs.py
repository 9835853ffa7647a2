"""Shares of NFS servers, mounted by a process of its own: a server may never answer.

The kernel's client is asked directly, with the newest version of the protocol first, as mount.nfs
does. A process that waits for a server can only be killed, so each mount and each question has one,
with a deadline. Blocking. Used by the agent and by its helper: standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from nodeagent.pods.volumes import kernel_mounts

DEADLINE_S = 20  # of a mount; the kernel's own attempts take minutes
ANSWER_S = 5  # of a server whose share is mounted
_SPARE_S = 5.0  # for the start of a process, and for its end
PATH_BYTES = 1024
REQUEST_BYTES = PATH_BYTES + 64
FILESYSTEMS = ("nfs", "nfs4")
KIND = "nfs"  # the directory of such volumes in a pod's `volumes`
VERSIONS = ("4.2", "4.1", "4.0", "3")
# What a server that has only an older version answers, or no root for the newer one.
_OTHER_VERSION = (errno.EPROTONOSUPPORT, errno.EINVAL, errno.EACCES, errno.ENOENT, errno.EPERM)
_ABSENT = "this kernel has no NFS client; load its module nfs, or install it"
_LOOK = "import os, sys; os.lstat(sys.argv[1])"
_WORDS = {True: b"ro", False: b"rw"}


@dataclass(frozen=True, slots=True)
class Share:
    """`address` is the server's IP address, `path` absolute."""

    address: str
    path: str
    read_only: bool = False

    def text(self) -> bytes:
        """As one request or argument: `rw 192.0.2.1 /exports/a b`."""
        return b" ".join((_WORDS[self.read_only], self.address.encode(), os.fsencode(self.path)))

    @property
    def device(self) -> str:
        return f"[{self.address}]:{self.path}" if ":" in self.address else str(self)

    def __str__(self) -> str:
        return f"{self.address}:{self.path}"


def address_of(server: str) -> str:
    """The IP address of a server that is given by name. ValueError."""
    try:
        found = socket.getaddrinfo(server, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ValueError(f"nfs.server {server!r} has no address: {error}") from error
    return str(found[0][4][0]).partition("%")[0]


def parse(text: bytes) -> Share:
    """ValueError unless it is the text of a share."""
    access, address, path = text.split(b" ", 2)
    if access not in _WORDS.values() or not path.startswith(b"/") or b"\0" in path:
        raise ValueError(f"{text!r} is no share")
    if len(path) > PATH_BYTES:
        raise ValueError(f"the path of the share is longer than {PATH_BYTES} bytes")
    found = ipaddress.ip_address(address.decode("ascii"))  # nothing else may stand among options
    return Share(str(found), os.fsdecode(path), access == _WORDS[True])


Attempt = Callable[[str, str, str, bool], None]


def mount(place: str, share: Share, attempt: Attempt = kernel_mounts.mount_nfs) -> None:
    """Mount the share with the newest version that its server has. OSError.

    `attempt` makes one, given the place, the device, the options and whether it is read-only.
    """
    failures: list[OSError] = []
    for version in VERSIONS:
        try:
            options = f"vers={version},addr={share.address}"
            attempt(place, share.device, options, share.read_only)
        except OSError as error:
            if error.errno == errno.ENODEV and not failures:
                raise OSError(errno.ENODEV, _ABSENT) from error
            failures.append(error)
            if error.errno not in _OTHER_VERSION:
                break
        else:
            return
    told = (error for error in failures if error.errno not in _OTHER_VERSION[:2])
    raise next(told, failures[-1])


def mounted_shares(places: Iterable[str]) -> set[str]:
    """Those of the real paths on which a share, or a part of it, is mounted; asks no server."""
    table = {m.path for m in kernel_mounts.table() if m.filesystem in FILESYSTEMS}
    return table.intersection(places)


class NoAnswer(Exception):
    """A server did not answer in time; the text says so."""


def mount_apart(place: str, share: Share) -> None:
    """Mount it in a process of its own, within the deadline. OSError, NoAnswer."""
    _apart(place, os.fsdecode(share.text()), limit_s=DEADLINE_S)


def unmount_apart(place: str) -> None:
    """Unmount a share within the deadline: at its end the kernel asks the server once more.
    OSError, NoAnswer.
    """
    try:
        _apart(place, limit_s=ANSWER_S)
    except NoAnswer:
        if mounted_shares([place]):
            raise


def _apart(*arguments: str, limit_s: float) -> None:
    code, said = _run(["-m", __name__, *arguments], limit_s + _SPARE_S)
    if code == -signal.SIGALRM:
        raise NoAnswer(f"the server has not answered within {limit_s:g} s")
    if code:
        number, _, text = said.partition(" ")
        raise OSError(int(number) if number.isdecimal() else errno.EIO, text or "no reason")


def require_answer(place: str) -> None:
    """NoAnswer where the server of a mounted share is silent: who looks at it would wait."""
    _run(["-I", "-S", "-c", _LOOK, place], ANSWER_S)


def _run(arguments: Sequence[str], limit_s: float) -> tuple[int, str]:
    """Exit code and output of a Python process; NoAnswer when it did not end."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with contextlib.closing(process.stdout or sys.stdout):
        try:
            output, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_SPARE_S)  # at once, unless the kernel is at fault
            raise NoAnswer(f"the server has not answered within {limit_s:g} s") from None
    return process.returncode, output.strip()


def main(arguments: Sequence[str]) -> int:
    """Mount a share on a place, or unmount it; writes the number of the error and its text."""
    place, *shares = arguments
    signal.alarm(DEADLINE_S if shares else ANSWER_S)
    try:
        for share in shares:
            mount(place, parse(os.fsencode(share)))
        if not shares:
            kernel_mounts.unmount(place)
    except OSError as error:
        sys.stdout.write(f"{error.errno or errno.EIO} {error.strerror}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
