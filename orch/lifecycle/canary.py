"""The canary: how old the controller's view of the Leases may be, measured end to end.

The controller writes a Lease of its own among the nodes' and waits until its own watch shows it.
Everything stored before that write is then in the view too. When writing or watching is broken,
the age grows, and the controller judges no node that it can no longer see.
"""

from __future__ import annotations

import asyncio
import contextlib
import math

from orch.client.resources import ApiClient
from orch.client.transport import TransportError
from orch.component.process.clock import Now
from orch.wire import names, times
from orch.wire.errors import ApiError
from orch.wire.records.configuration import Lease, LeaseSpec
from orch.wire.records.meta import ObjectMeta

NAME = "orch-controller-manager"  # in the namespace of the nodes' Leases
_REMEMBERED = 64


class Canary:
    """`seen` must be called with the canary's Lease whenever the watch of Leases shows it."""

    def __init__(self, client: ApiClient, identity: str, *, now: Now) -> None:
        self._client = client
        self._identity = identity
        self._now = now
        self._sent_s: dict[str, float] = {}  # renewTime → when it was about to be written
        self._fresh_s: float | None = None
        self._shown = asyncio.Event()
        self._awaited = ""

    def seen(self, lease: Lease | None) -> None:
        """The watch shows this canary, or (None) no canary."""
        stamp = lease.spec.renewTime if lease else None
        if stamp is None or stamp not in self._sent_s:
            return
        self._fresh_s = max(self._fresh_s or 0.0, self._sent_s[stamp])
        if stamp == self._awaited:
            self._shown.set()

    def age_s(self) -> float:
        """Seconds since a time whose state is certainly in the view; inf before the first."""
        if self._fresh_s is None:
            return math.inf
        return asyncio.get_running_loop().time() - self._fresh_s

    async def fly(self, within_s: float) -> bool:
        """Write the canary and wait until the view shows it; False when that takes too long."""
        stamp = self._awaited = self._stamp()
        self._shown.clear()
        self._sent_s[stamp] = asyncio.get_running_loop().time()
        while len(self._sent_s) > _REMEMBERED:
            self._sent_s.pop(next(iter(self._sent_s)))
        with contextlib.suppress(TimeoutError, ApiError, TransportError):
            async with asyncio.timeout(within_s):
                await self._write(stamp)
                await self._shown.wait()
                return True
        return False

    def _stamp(self) -> str:
        """The time of the write, made unique."""
        stamp = times.format_micro_time(self._now())
        return stamp if stamp not in self._sent_s else f"{stamp[:-1]}{len(self._sent_s)}Z"

    async def _write(self, stamp: str) -> None:
        spec = LeaseSpec(holderIdentity=self._identity, renewTime=stamp)
        try:
            await self._client.patch(
                Lease, NAME, {"spec": spec.to_wire()}, namespace=names.NODE_LEASE_NAMESPACE
            )
        except ApiError as error:
            if error.code != 404:
                raise
            meta = ObjectMeta(name=NAME, namespace=names.NODE_LEASE_NAMESPACE)
            await self._client.create(Lease(metadata=meta, spec=spec))
