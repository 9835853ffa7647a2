"""The mount helper: mounts for the agent below its root directory, and does nothing else.

Its socket is systemd's; it starts with the first request and ends when there are none. A request is
one message: a word, and descriptors of the place and of what to bind there. A descriptor of another
mount namespace cannot be mounted, so its path is walked here without following links, and must lead
to the same file. Requests are answered one at a time, each within a deadline that ends the process;
one that waits for a server is left to a process of its own.
Standard library only: it is privileged, and starts often.
"""

from __future__ import annotations

import argparse
import errno
import os
import select
import signal
import socket
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

from nodeagent import descriptors
from nodeagent.pods.volumes import kernel_mounts, nfs
from orch.wire.names import VERSION

DONE = b"done"
REQUEST_BYTES = nfs.REQUEST_BYTES
ANSWER_BYTES = 512
_DEADLINE_S = 10
READ_S = 2.0
_STRANGER_S = 0.1  # whoever else asks must not keep the agent waiting
_IDLE_S = 60.0
_SO_PEERPIDFD = 77
_FIRST_DESCRIPTOR = 3  # of those that systemd passes
_IN_MEMORY = ("empty-dir", "secret", "projected")
_FILESYSTEMS = ("tmpfs", "hugetlbfs")  # of those
_WAITING = 4  # mounts of shares at once
_VOLUMES, _SUB_PATHS = "volumes", "volume-subpaths"  # below pods/<uid>
_SHARES = (b"nfs ", b"unmount ")  # requests about those of servers
_Work = Callable[[], None]


class Refused(Exception):
    """A request that is not carried out; the text gives the reason."""


class MountHelper:
    """Serves the processes of `peer_unit`, a unit of its own slice; "" serves all of its user."""

    def __init__(self, root_dir: str, peer_unit: str) -> None:
        self._root = Path(os.path.realpath(root_dir))
        self._peer_unit = peer_unit
        self._waiting: set[int] = set()  # processes that wait for servers

    def serve(self, connection: socket.socket) -> None:
        """Answer one request; never raises."""
        passed: list[int] = []
        try:
            stranger = self._stranger(connection)
            connection.settimeout(_STRANGER_S if stranger else READ_S)
            request, passed, flags, _ = socket.recv_fds(connection, REQUEST_BYTES, 2)
            if stranger:
                raise Refused(stranger)
            if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
                raise Refused("the request is too long")
            if request.startswith(_SHARES):
                self._perform_apart(request, passed, connection)
                return
            self._perform(request, passed)
            answer = DONE
        except (Refused, OSError, ValueError) as error:
            sys.stderr.write(f"refused: {error}\n")
            answer = str(error).encode("ascii", "replace")[:ANSWER_BYTES]
        finally:
            for descriptor in passed:
                os.close(descriptor)
        _answer(connection, answer)

    def _stranger(self, connection: socket.socket) -> str:
        """Who the peer is, if it is not the agent."""
        sent = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, uid, gid = struct.unpack("3i", sent)
        if (uid, gid) != (os.geteuid(), os.getegid()):
            return f"process {pid} is of user {uid} and group {gid}"
        if self._peer_unit:
            wanted = f"{_cgroup('self').rpartition('/')[0]}/{self._peer_unit}"
            if not pid or _cgroup(str(pid)) != wanted or _has_exited(connection):
                return f"process {pid} is not in the cgroup {wanted}"
        return ""

    def _perform(self, request: bytes, passed: Sequence[int]) -> None:
        match request.decode("ascii").split(" "), len(passed):
            case ["tmpfs", size], 1 if size.isdecimal():
                with self._place(passed[0], _VOLUMES) as (place, _):
                    kernel_mounts.mount_tmpfs(place, int(size))
            case ["hugepages", page, size], 1 if page.isdecimal() and size.isdecimal():
                with self._place(passed[0], _VOLUMES) as (place, _):
                    kernel_mounts.mount_hugepages(place, int(page), int(size))
            case ["bind"], 2:
                with self._place(passed[0], _SUB_PATHS) as (place, _), _same(passed[1]) as source:
                    kernel_mounts.bind(f"/proc/self/fd/{source}", place)
            case ["unmount"], 1:
                with self._place(passed[0], _VOLUMES, _SUB_PATHS) as (_, name):
                    self._check_own(passed[0])
                    kernel_mounts.unmount(name)
            case _:
                raise Refused(f"{request!r} with {len(passed)} descriptors is no request")

    def _perform_apart(
        self, request: bytes, passed: Sequence[int], connection: socket.socket
    ) -> None:
        """In a process that answers, and that its deadline ends without an answer: the server of
        a share may be silent. Refused, OSError, ValueError.
        """
        self._waiting -= {pid for pid in self._waiting if os.waitpid(pid, os.WNOHANG)[0]}
        if len(passed) != 1:
            raise Refused(f"{request!r} with {len(passed)} descriptors is no request")
        if len(self._waiting) >= _WAITING:
            raise Refused("other servers have not answered yet; try again")
        word, _, rest = request.partition(b" ")
        prepared = self._share_place if word == b"nfs" else self._mounted_share
        with prepared(passed[0], rest) as (work, limit_s):
            if pid := os.fork():
                self._waiting.add(pid)
                return
            signal.alarm(limit_s)
            _answer_for(connection, work)

    @contextmanager
    def _share_place(self, passed: int, share: bytes) -> Iterator[tuple[_Work, int]]:
        wanted = nfs.parse(share)
        with self._place(passed, _VOLUMES, held_in=(nfs.KIND,)) as (place, _):
            yield partial(nfs.mount, place, wanted), nfs.DEADLINE_S

    @contextmanager
    def _mounted_share(self, passed: int, named: bytes) -> Iterator[tuple[_Work, int]]:
        """By the directory that it lies in, and its name there."""
        path, name = _path_of(passed), named.decode("ascii")
        below = path.relative_to(self._root).parts
        kinds = below[2:3] == (_SUB_PATHS,) or below[2:] == (_VOLUMES, nfs.KIND)
        if len(below) != 4 or below[0] != "pods" or not kinds:
            raise Refused(f"{'/'.join(below)} is no place for that")
        if not name.strip(".") or "/" in name:
            raise Refused(f"{name!r} is not the name of a share")
        with _same(passed) as parent:
            if not nfs.mounted_shares([f"{path}/{name}"]):
                raise Refused(f"no share is mounted on {path}/{name}")
            yield partial(kernel_mounts.unmount, f"/proc/self/fd/{parent}/{name}"), nfs.ANSWER_S

    @contextmanager
    def _place(
        self, passed: int, *kinds: str, held_in: Sequence[str] = _IN_MEMORY
    ) -> Iterator[tuple[str, str]]:
        """Paths, by descriptors held open, of the volume or sub-path that `passed` refers to.

        The first is of what is there; the agent could swap its name for a link by now. The second
        is of that name, which unmounting takes and does not follow.
        """
        below = _path_of(passed).relative_to(self._root).parts
        if len(below) != 5 or below[0] != "pods" or below[2] not in kinds:
            raise Refused(f"{'/'.join(below)} is no place for that")
        if below[2] == _VOLUMES and below[3] not in held_in:
            kept = "in memory" if held_in is _IN_MEMORY else "shares"
            raise Refused(f"volumes of the kind {below[3]} are not {kept}")
        with _same(passed) as reached, ExitStack() as held:
            parent = descriptors.reach_path(str(self._root.joinpath(*below[:-1])))
            held.callback(os.close, parent)
            yield f"/proc/self/fd/{reached}", f"/proc/self/fd/{parent}/{below[-1]}"

    def _check_own(self, passed: int) -> None:
        path = _path_of(passed)
        found = kernel_mounts.mounts_on(path)
        if not found:
            raise Refused(f"nothing is mounted on {path}")
        in_memory = path.relative_to(self._root).parts[2] == _VOLUMES
        if in_memory and found[0].filesystem not in _FILESYSTEMS:
            raise Refused(f"{path} has a {found[0].filesystem} mounted on it by somebody else")


def _answer(connection: socket.socket, answer: bytes) -> None:
    with suppress(OSError):  # the peer has gone
        connection.send(answer)


def _answer_for(connection: socket.socket, work: _Work) -> NoReturn:
    """Do it, answer, and end this process; its deadline ends it without an answer."""
    try:
        work()
        answer = DONE
    except OSError as error:
        sys.stderr.write(f"refused: {error}\n")
        answer = str(error.strerror or error).encode("ascii", "replace")[:ANSWER_BYTES]
    _answer(connection, answer)
    os._exit(0)


@contextmanager
def _same(passed: int) -> Iterator[int]:
    """A descriptor of this mount namespace for the file that `passed` refers to."""
    path = _path_of(passed)
    reached = descriptors.reach_path(str(path))
    try:
        if not os.path.samestat(os.fstat(reached), os.fstat(passed)):
            raise Refused(f"{path} is another file here")
        yield reached
    finally:
        os.close(reached)


def _path_of(passed: int) -> Path:
    path = os.readlink(f"/proc/self/fd/{passed}")
    if not path.startswith("/"):
        raise Refused(f"{path} has no path")
    return Path(path)


def _has_exited(connection: socket.socket) -> bool:
    """Whether the peer is gone: its number may be another's by now. Told from Linux 6.5 on."""
    try:
        sent = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD, struct.calcsize("i"))
    except OSError as error:
        return error.errno != errno.ENOPROTOOPT
    [descriptor] = struct.unpack("i", sent)
    try:
        return bool(select.select([descriptor], [], [], 0)[0])
    finally:
        os.close(descriptor)


def _cgroup(pid: str) -> str:
    """Where systemd has put a process: in the unified hierarchy, or in its own.

    A pod may choose names of cgroups: only the kernel's own newline ends a line.
    """
    lines = os.fsdecode(Path("/proc", pid, "cgroup").read_bytes()).rstrip("\n").split("\n")
    paths = {controllers: path for _, controllers, path in (line.split(":", 2) for line in lines)}
    unified = paths.get("", "/")
    return unified if unified != "/" else paths.get("name=systemd", "/")


def main(argv: Sequence[str] | None = None) -> int:
    """Serve the socket that systemd passes; 0 once there was nothing to do for a minute."""
    flags = parser().parse_args(argv)
    helper = MountHelper(flags.root_dir, flags.peer_unit)
    with socket.socket(fileno=_FIRST_DESCRIPTOR) as listener:
        listener.settimeout(_IDLE_S)
        while True:
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                return 0
            signal.alarm(_DEADLINE_S)  # ends the process; the next request starts another
            with connection:
                helper.serve(connection)
            signal.alarm(0)


def parser() -> argparse.ArgumentParser:
    text = "Mounts volumes for a node agent that may not mount. Started by its socket unit."
    flags = argparse.ArgumentParser(prog="nodeagent-mounts", description=text, allow_abbrev=False)
    flags.add_argument("--root-dir", default="/var/lib/nodeagent", help="the agent's state")
    flags.add_argument("--peer-unit", default="nodeagent.service", help="the agent's unit")
    flags.add_argument("--version", action="version", version=f"nodeagent-mounts {VERSION}")
    return flags


if __name__ == "__main__":
    sys.exit(main())
