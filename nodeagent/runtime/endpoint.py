"""The address of a runtime, `unix:///path/to.sock` or the path alone, and its server's process."""

from __future__ import annotations

import socket
import struct

_PEER = struct.Struct("3i")  # pid, uid, gid


def socket_path(endpoint: str) -> str:
    """The absolute path in `endpoint`; ValueError explains the correct form."""
    path = endpoint.removeprefix("unix://")
    if not path.startswith("/"):
        raise ValueError(f"{endpoint!r} is not a unix socket; write it as unix:///path/to/the.sock")
    return path


def server_pid(path: str) -> int:
    """The process that listens on a unix socket; 0 when none accepts, or it is invisible."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.setblocking(False)  # not to wait for a full backlog
        try:
            connection.connect(path)
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        except OSError:
            return 0
    pid: int = _PEER.unpack(credentials)[0]
    return pid
