"""Memory pressure: what the server refuses and gives up so that it stays below its memory limit.

From 80 % of the limit on, tenants' requests that may store or start something are refused, at 90 %
everything of theirs but deletions; what is kept for slow and resuming readers is given up. Nodes,
the control plane and the privileged group are served as long as the process lives. A sample is
taken every second, from 60 % on ten times as often: a fast tenant stores 40 MB in a second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from enum import IntEnum
from typing import Protocol

from orch.component.process.loops import Periodic
from orch.component.process.once_log import OnceLog
from orch.server.request.attributes import RequestInfo
from orch.wire.errors import ApiError

log = logging.getLogger(__name__)

INTERVAL_S, NEAR_INTERVAL_S = 1.0, 0.1
RETRY_AFTER_S = 5
_NEAR, _HIGH, _CRITICAL = 0.6, 0.8, 0.9
_RECOVERED = 0.05  # below the share at which a state began, it ends
_DELETIONS = ("delete", "deletecollection")
_READS = ("get", "list")
_MIB = 1024 * 1024


class Pressure(IntEnum):
    NONE = 0
    HIGH = 1
    CRITICAL = 2


class Memory(Protocol):
    def limit_bytes(self) -> int: ...

    def used_bytes(self) -> int: ...


class MemoryPressure:
    """`loop` takes samples; `relieve` frees what can be spared, at each sample under pressure.

    `limit_bytes` 0: the limit that the process has anyway.
    """

    def __init__(
        self, memory: Memory, limit_bytes: int = 0, relieve: Callable[[], None] = lambda: None
    ) -> None:
        self.state = Pressure.NONE
        self.limit_bytes = limit_bytes or memory.limit_bytes()
        self.used_bytes = 0
        self.refused = 0
        self.loop = Periodic("memory", self.look, interval_s=INTERVAL_S)
        self._memory = memory
        self._relieve = relieve
        self._log = OnceLog(log)

    async def look(self) -> None:
        self.used_bytes = await asyncio.to_thread(self._memory.used_bytes)
        share = self.used_bytes / self.limit_bytes
        before, self.state = self.state, self._judge(share)
        near = share >= _NEAR and not self.state
        self.loop.interval_s = NEAR_INTERVAL_S if near else INTERVAL_S
        if self.state:
            self._relieve()
        if self.state > before:
            critical = self.state is Pressure.CRITICAL
            refused = "everything but deletions" if critical else "writes, watches and logs"
            self._log.failed(
                "memory is short: %d of %d MiB are in use (the limit is --memory-limit, else the "
                "unit's MemoryMax=); until it suffices again tenants get 429 for %s",
                self.used_bytes // _MIB, self.limit_bytes // _MIB, refused, cause=self.state,
            )  # fmt: skip
        elif before and not self.state:
            text = "memory suffices again: %d MiB are in use, %d requests were refused"
            self._log.recovered(text, self.used_bytes // _MIB, self.refused)

    def refuse(self, info: RequestInfo) -> None:
        """ApiError 429 for a tenant's request that must wait until memory suffices again."""
        if not self.state or info.verb in _DELETIONS:
            return
        if info.verb in _READS and not info.is_long_running and self.state is Pressure.HIGH:
            return
        self.refused += 1
        raise ApiError(
            429,
            "TooManyRequests",
            "The server is short of memory; delete what is not needed, or try again later.",
            retry_after_s=RETRY_AFTER_S,
        )

    def _judge(self, share: float) -> Pressure:
        critical = _CRITICAL - (_RECOVERED if self.state is Pressure.CRITICAL else 0)
        high = _HIGH - (_RECOVERED if self.state else 0)
        if share >= critical:
            return Pressure.CRITICAL
        return Pressure.HIGH if share >= high else Pressure.NONE
