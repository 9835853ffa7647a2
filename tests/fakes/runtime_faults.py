"""Faults of a fake runtime: its calls are recorded, fail or wait as a test wants."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from nodeagent.runtime.base import RuntimeCallError
from orch.component.process import loops

Method = TypeVar("Method", bound=Callable[..., Coroutine[Any, Any, Any]])


def changing(method: Method, *, limit_s: float = loops.FINISH_S) -> Method:
    """A call that ends though its caller is cancelled."""

    @functools.wraps(method)
    async def whole(*arguments: Any, **named: Any) -> Any:
        call = method(*arguments, **named)
        return await loops.finish(call, name=f"fake {method.__name__}", limit_s=limit_s)

    return whole  # type: ignore[return-value]


def left_running(method: Method) -> Method:
    """A call that goes on without a cancelled caller."""
    return changing(method, limit_s=0)


@dataclass(frozen=True)
class Call:
    """One call made: `subject` is the id or name it was made for, "" for calls about all."""

    operation: str
    subject: str = ""


class Hold:
    """A call that waits: `reached` is set when it has begun, and it goes on after `release`.

    `ended` is set when it waits no longer, as it was released or cancelled.
    """

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.ended = asyncio.Event()
        self._released = asyncio.Event()

    def release(self) -> None:
        self._released.set()

    async def wait(self) -> None:
        self.reached.set()
        try:
            await self._released.wait()
        finally:
            self.ended.set()


@dataclass
class _Failure:
    error: Exception
    times: int | None  # None: every time


class CallFaults:
    """The calls made of a fake, and the faults set for calls to come, by operation name."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._failures: dict[str, _Failure] = {}
        self._holds: dict[str, Hold] = {}

    def fail(self, operation: str, error: Exception | str, *, times: int | None = None) -> None:
        """Make `operation` raise `error` (a text: a RuntimeCallError), always or `times` times."""
        raised = RuntimeCallError(operation, error) if isinstance(error, str) else error
        self._failures[operation] = _Failure(raised, times)

    def heal(self, operation: str) -> None:
        self._failures.pop(operation, None)

    def hold(self, operation: str) -> Hold:
        """Make the next call of `operation` wait until it is released."""
        self._holds[operation] = held = Hold()
        return held

    def called(self, operation: str) -> list[str]:
        """The subjects of all calls of `operation`, in their order."""
        return [call.subject for call in self.calls if call.operation == operation]

    async def begin(self, operation: str, subject: str = "") -> None:
        """Record a call; wait and fail as was asked for."""
        self.calls.append(Call(operation, subject))
        if held := self._holds.pop(operation, None):
            await held.wait()
        if failure := self._failures.get(operation):
            if failure.times is not None:
                failure.times -= 1
                if failure.times <= 0:
                    self.heal(operation)
            raise failure.error
