"""How many requests may be under way at once: a bound for reads, a smaller one for writes.

Beyond it a client is told to come back in a second (429 with Retry-After, which kubectl obeys).
Watches and proxied requests are not counted; the privileged group is never held up.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from prometheus_client import Gauge

from orch.server.request.attributes import RequestInfo
from orch.wire.errors import ApiError
from orch.wire.names import GROUP_MASTERS
from orch.wire.records.authentication import Identity

MAX_READS = 400
MAX_WRITES = 200
_READS = ("get", "list", "head", "options")
_NOT_COUNTED = nullcontext()


class Inflight:
    """Counts what is under way; `gauge` has the label `request_kind`. A bound of 0 is none."""

    def __init__(
        self, gauge: Gauge, *, max_reads: int = MAX_READS, max_writes: int = MAX_WRITES
    ) -> None:
        self._limits = {
            "readOnly": max_reads or sys.maxsize,
            "mutating": max_writes or sys.maxsize,
        }
        self._counts = dict.fromkeys(self._limits, 0)
        for kind in self._limits:  # looked up when the page is made, not told at every request
            gauge.labels(kind).set_function(partial(self.under_way, kind))

    def admit(self, identity: Identity, info: RequestInfo) -> AbstractContextManager[None]:
        """Count a request while the context is open; ApiError 429 when there are too many."""
        if info.is_long_running:
            return _NOT_COUNTED
        kind = "readOnly" if info.verb in _READS else "mutating"
        if self._counts[kind] >= self._limits[kind] and GROUP_MASTERS not in identity.groups:
            raise ApiError(
                429,
                "TooManyRequests",
                "The server has received too many requests; please try again in a second.",
                retry_after_s=1,
            )
        return _Place(self, kind)

    def under_way(self, kind: str) -> int:
        """How many are now; `kind` is readOnly or mutating."""
        return self._counts[kind]

    def count(self, kind: str, change: int) -> None:
        """One more (1) or one less (-1) is under way."""
        self._counts[kind] += change


class _Place:
    """Of one request among those under way; a generator would cost it several times as much."""

    __slots__ = ("_inflight", "_kind")

    def __init__(self, inflight: Inflight, kind: str) -> None:
        self._inflight = inflight
        self._kind = kind

    def __enter__(self) -> None:
        self._inflight.count(self._kind, 1)

    def __exit__(self, *_: object) -> None:
        self._inflight.count(self._kind, -1)
