"""gRPC servers on Unix sockets, for others on this host.

Who may connect is who may write to the socket, in a folder that only this program's user may enter.
Calls, their bytes and their time are bounded. Blocking work on files is done in a thread.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from orch.component import grpc_channel
from orch.component.process import loops
from orch.component.process.once_log import OnceLog

log = logging.getLogger(__name__)

CALLS_MAX = 32  # at once
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_RETRY_S = 10.0
_FOLDER_MODE, _SOCKET_MODE = 0o700, 0o600

Add = Callable[[Any], None]  # adds servicers to a grpc server


class Refused(Exception):
    """The answer to a call is an error; `code` is the name of its status (`NOT_FOUND`)."""

    def __init__(self, code: str, details: str) -> None:
        super().__init__(details)
        self.code = code
        self.details = details


async def answer(context: Any, work: Awaitable[Any], *, limit_s: float) -> Any:
    """What `work` returns; Refused, and no end within `limit_s`, become statuses."""
    codes = grpc_channel.load().StatusCode
    try:
        async with asyncio.timeout(limit_s):
            return await work
    except Refused as refused:
        await context.abort(getattr(codes, refused.code), refused.details)
    except TimeoutError:
        text = f"there is no answer within {limit_s:g} s"
        await context.abort(codes.DEADLINE_EXCEEDED, text)


class UnixServer:
    """`folder` is a descriptor of the socket's folder while it serves, for `socket_target`.

    `prepare` is called with it in a thread before there is a socket.
    """

    def __init__(
        self,
        path: Path,
        add: Add,
        *,
        message_bytes: int,
        prepare: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.path = path
        self.folder = -1
        self._add = add
        self._prepare = prepare
        self._options = (
            ("grpc.max_receive_message_length", message_bytes),
            ("grpc.max_concurrent_streams", CALLS_MAX),
            ("grpc.so_reuseport", 0),
        )
        self._server: Any = None

    async def serve(self, outage: str) -> None:
        """Serve until cancelled; while the socket cannot be had, log `outage` and try again."""
        said = OnceLog(log, logging.ERROR)
        try:
            while not self._server:
                try:
                    await self.start()
                except OSError as error:
                    said.failed("%s, retrying: %s", outage, error)
                    await asyncio.sleep(_RETRY_S)
            said.recovered("serving on %s", self.path)
            await asyncio.Event().wait()
        finally:
            await self.stop()

    async def start(self) -> None:
        """Serve; a socket that an earlier program left is replaced. OSError names the path."""
        grpc = grpc_channel.load()
        logging.getLogger("grpc._cython.cygrpc").setLevel(logging.CRITICAL)  # garbled requests
        self.folder = await asyncio.to_thread(self._open_folder)
        server = grpc.aio.server(options=self._options, maximum_concurrent_rpcs=CALLS_MAX)
        self._add(server)
        is_bound = False
        try:
            await asyncio.to_thread(self._clear)
            server.add_insecure_port(socket_target(self.folder, self.path.name))
            is_bound = True
            await asyncio.to_thread(self._restrict)
            # One that is cancelled while it starts cannot be stopped.
            await loops.finish(server.start(), name=f"the start of {self.path.name}")
        except BaseException as error:
            await server.stop(None)
            if is_bound:  # a server that has not started leaves its socket
                await asyncio.to_thread(remove_socket, self.folder, self.path.name)
            self._close_folder()
            if isinstance(error, RuntimeError):
                text = "the socket cannot be bound"
                raise OSError(errno.EADDRINUSE, text, str(self.path)) from error
            raise
        self._server = server

    async def stop(self) -> None:
        """End all calls; the socket goes."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(None)
        self._close_folder()

    def _open_folder(self) -> int:
        folder = self.path.parent
        folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        descriptor = os.open(folder, _FOLDER)
        os.fchmod(descriptor, _FOLDER_MODE)
        return descriptor

    def _close_folder(self) -> None:
        descriptor, self.folder = self.folder, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _clear(self) -> None:
        if not remove_socket(self.folder, self.path.name):
            text = "it is not a socket and is left alone"
            raise FileExistsError(errno.EEXIST, text, str(self.path))
        self._prepare(self.folder)

    def _restrict(self) -> None:
        os.chmod(self.path.name, _SOCKET_MODE, dir_fd=self.folder)


def socket_target(folder: int, name: str) -> str:
    """The address of a socket in a folder, however long the folder's path is."""
    return f"unix:/proc/self/fd/{folder}/{name}"


def remove_socket(folder: int, name: str) -> bool:
    """Remove it; False when something else has that name. Blocking I/O."""
    try:
        if not stat.S_ISSOCK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            return False
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass
    return True
