"""Answers of a webhook that are kept for a while, and the calls that get them.

Equal questions share a call; a call goes on when a client that waits for it leaves. What is kept is
bounded by number and size, the oldest goes first.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Generic, NamedTuple, TypeVar

import orjson

from orch.client.answers import TransportError
from orch.client.kubeconfig import ClientConfig
from orch.client.transport import Transport
from orch.component.http.fair_queue import Bounds, Turns
from orch.component.process import loops
from orch.component.process.daemon import SetupError
from orch.server.flow import control

MOST = 8192
MOST_BYTES = 16 * 2**20
MAX_ANSWER_BYTES = 2**20
AT_ONCE = 64  # calls of one webhook
SHORTEST_S = 1.0  # that an answer is kept, so that what needed it can be decided

Value = TypeVar("Value")


class Kept(NamedTuple):
    """`seconds` is how long a value may be used."""

    value: Any
    seconds: float


class CallError(Exception):
    """No usable answer; `result` is the word of metrics for it."""

    def __init__(self, text: str, result: str = "error") -> None:
        super().__init__(text)
        self.result = result


class Answers(Generic[Value]):
    """Values by question; `size` counts for the bound."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, tuple[Value, float, int]] = OrderedDict()
        self._bytes = 0
        self._asking: dict[Hashable, asyncio.Task[Value]] = {}

    def get(self, key: Hashable) -> Value | None:
        found = self._kept.get(key)
        if found is None:
            return None
        if found[1] <= asyncio.get_running_loop().time():
            self._drop(key)
            return None
        return found[0]

    async def fetch(self, key: Hashable, size: int, ask: Callable[[], Awaitable[Kept]]) -> Value:
        """The value that `ask` gives, which is kept; the request waits without its seat."""
        task = self._asking.get(key)
        if task is None:
            task = loops.spawn(self._ask(key, size, ask), name="webhook")
            self._asking[key] = task
            task.add_done_callback(lambda _task: self._asking.pop(key, None))
        try:
            async with control.aside():
                return await asyncio.shield(task)
        finally:
            del task  # its error holds this frame: the whole request would stay as garbage

    async def _ask(self, key: Hashable, size: int, ask: Callable[[], Awaitable[Kept]]) -> Value:
        value, seconds = await ask()
        self._drop(key)
        ends_s = asyncio.get_running_loop().time() + max(seconds, SHORTEST_S)
        self._kept[key] = value, ends_s, size
        self._bytes += size
        while len(self._kept) > MOST or (self._bytes > MOST_BYTES and len(self._kept) > 1):
            self._drop(next(iter(self._kept)))
        kept: Value = value
        return kept

    def _drop(self, key: Hashable) -> None:
        if (gone := self._kept.pop(key, None)) is not None:
            self._bytes -= gone[2]


class ReviewServer:
    """A server of reviews, of a kubeconfig file; only over HTTPS."""

    def __init__(self, config: ClientConfig, timeout_s: float) -> None:
        """SetupError."""
        if not config.server.startswith("https://"):
            raise SetupError(f"a webhook is called over https only, not at {config.server}")
        self._timeout_s = timeout_s
        self._transport = Transport(config, timeout_s=timeout_s, user_agent="orch-apiserver")
        self._turns = Turns(Bounds(seats=AT_ONCE, wait_s=timeout_s))

    async def ask(self, review: dict[str, Any], owner: str) -> dict[str, Any]:
        """The status of the answered review; CallError."""
        try:
            async with asyncio.timeout(self._timeout_s), self._turns.hold(owner):
                answer = await self._transport.request(
                    "POST", "", body=orjson.dumps(review), content_type="application/json",
                    most_bytes=MAX_ANSWER_BYTES,
                )  # fmt: skip
        except TimeoutError:
            text = f"it did not answer within {self._timeout_s:g} s"
            raise CallError(text, "timeout") from None
        except TransportError as error:
            raise CallError(str(error)) from error
        if answer.status not in (200, 201):
            raise CallError(f"it answered {answer.status}")
        return _status(answer.body, review)

    async def close(self) -> None:
        await self._transport.close()


def _status(body: bytes, review: dict[str, Any]) -> dict[str, Any]:
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise CallError(f"its answer is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise CallError("its answer is not an object")
    for name in ("kind", "apiVersion"):
        if data.get(name) != review[name]:
            got = repr(data.get(name))[:100]
            raise CallError(f"{name} of its answer is {got}, expected {review[name]!r}")
    status = data.get("status")
    if not isinstance(status, dict):
        raise CallError("its answer has no status")
    return status
