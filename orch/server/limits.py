"""Limits on requests in flight: one for reads, a smaller one for writes.

Beyond them a client is told to retry in a second (429 with Retry-After, which kubectl obeys).
Watches and proxied requests are not counted; the privileged group is never refused.
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
    """Counts requests in flight; `gauge` has the label `request_kind`. A maximum of 0 is none."""

    def __init__(
        self, gauge: Gauge, *, max_reads: int = MAX_READS, max_writes: int = MAX_WRITES
    ) -> None:
        self._limits = {"readOnly": max_reads or sys.maxsize, "mutating": max_writes or sys.maxsize}
        self._counts = dict.fromkeys(self._limits, 0)
        for kind in self._limits:  # read when the page is rendered, not set at every request
            gauge.labels(kind).set_function(partial(self.in_flight, kind))

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
        return _Admitted(self, kind)

    def in_flight(self, kind: str) -> int:
        """The requests in flight now; `kind` is readOnly or mutating."""
        return self._counts[kind]

    def count(self, kind: str, change: int) -> None:
        """Add 1 or -1."""
        self._counts[kind] += change


class _Admitted:
    """The context of one counted request; a generator would cost several times as much."""

    __slots__ = ("_inflight", "_kind")

    def __init__(self, inflight: Inflight, kind: str) -> None:
        self._inflight = inflight
        self._kind = kind

    def __enter__(self) -> None:
        self._inflight.count(self._kind, 1)

    def __exit__(self, *_: object) -> None:
        self._inflight.count(self._kind, -1)
