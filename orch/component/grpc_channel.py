"""gRPC channels and their failures: the only module, beside generated stubs, that imports grpc.

grpc takes 10 MB, so it is loaded with the first channel only. What a failure means is up to the
callers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

CLOSED = "CLOSED"
_QUIET_TIMEOUT_S = 0.5
_UNREADABLE = "the answer is no message of the type that was asked for"
_NO_PROXY = ("grpc.enable_http_proxy", 0)

Observe = Callable[[str, float, bool], None]  # operation, seconds, failed
Options = Sequence[tuple[str, int | str]]


def load() -> Any:
    """The package; what it writes by itself would stand between the lines of the log."""
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    import grpc

    logging.getLogger("grpc._common").setLevel(logging.CRITICAL)  # see `_readable`
    return grpc


class CallFailed(Exception):
    """`code` is the name of the status code (`NOT_FOUND`), or CLOSED when this end closed the
    channel; `details` is the server's message, which may be "".
    """

    def __init__(self, code: str, details: str) -> None:
        super().__init__(f"{code}: {details}")
        self.code = code
        self.details = details


class Channel:
    """The connection to one server, opened by the first call; grpc reopens it when it breaks.

    `stubs` builds the stubs of a grpc channel; `tls` are a CA, a key and a certificate chain in
    PEM, each of which may be None; without `tls` the channel is insecure.
    """

    def __init__(
        self,
        target: str,
        stubs: Callable[[Any], Sequence[Any]],
        *,
        options: Options = (),
        tls: Sequence[bytes | None] | None = None,
    ) -> None:
        self._grpc = load()
        self._target = target
        self._make_stubs = stubs
        self._options = (_NO_PROXY, *options)
        self._tls = tls
        self._channel: Any = None
        self._stubs: Sequence[Any] = ()
        self._closed = False

    async def call(self, name: str, request: Any, timeout_s: float) -> Any:
        """The answer of the method `name`; CallFailed."""
        with self.failures():
            return _readable(await self.method(name)(request, timeout=timeout_s))

    def method(self, name: str) -> Any:
        """The stubs' method of that name, to be called within `failures`; a stream of answers is
        read through `messages`.
        """
        if self._closed:
            raise CallFailed(CLOSED, "")
        if self._channel is None:
            self._channel = self._connect()
            self._stubs = self._make_stubs(self._channel)
        return next(getattr(stub, name) for stub in self._stubs if hasattr(stub, name))

    @contextlib.contextmanager
    def failures(self) -> Iterator[None]:
        """Turn what grpc raises into CallFailed."""
        try:
            yield
        except self._grpc.aio.AioRpcError as error:
            raise CallFailed(error.code().name, error.details() or "") from error
        except (self._grpc.aio.UsageError, asyncio.InvalidStateError) as error:
            raise CallFailed(CLOSED, str(error)) from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._closed and not (task and task.cancelling()):
                raise CallFailed(CLOSED, "") from None  # close() ended the call, not the caller
            raise

    async def close(self) -> None:
        """Close for good; calls in progress fail."""
        self._closed = True
        channel, self._channel, self._stubs = self._channel, None, ()
        if channel is not None:
            await channel.close()  # grpc's own thread ends with the last channel

    def _connect(self) -> Any:
        grpc = self._grpc
        if self._tls is None:
            return grpc.aio.insecure_channel(self._target, options=self._options)
        credentials = grpc.ssl_channel_credentials(*self._tls)
        return grpc.aio.secure_channel(self._target, credentials, options=self._options)


async def messages(call: AsyncIterator[Any]) -> AsyncIterator[Any]:
    """The answers of a call with many; CallFailed at the first that cannot be read."""
    async for answer in call:
        yield _readable(answer)


def _readable(answer: Any) -> Any:
    """grpc gives None for bytes that it cannot decode, and logs a traceback for each."""
    if answer is None:
        raise CallFailed("INTERNAL", _UNREADABLE)
    return answer


@contextlib.contextmanager
def observed(observe: Observe, operation: str) -> Iterator[None]:
    """Report the duration of the body, and whether it failed."""
    clock = asyncio.get_running_loop().time
    began_s, failed = clock(), True
    try:
        yield
        failed = False
    finally:
        observe(operation, clock() - began_s, failed)


async def wait_calls_ended() -> None:
    """Wait until grpc's tasks of closed channels have ended, at most _QUIET_TIMEOUT_S."""
    deadline_s = asyncio.get_running_loop().time() + _QUIET_TIMEOUT_S
    while any("_AioCall" in repr(task) for task in asyncio.all_tasks()):
        if asyncio.get_running_loop().time() > deadline_s:
            return
        await asyncio.sleep(0.001)
