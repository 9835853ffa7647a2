"""The node's heartbeat: renews its Lease, depending only on the clock and its own API client.

Updates the object last seen without reading it first; when that fails, reads or creates it. Errors,
even unexpected ones, are counted and never end the loop. Rules and numbers are those of
component-helpers apimachinery/lease/controller.go. Must not know the node's status.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from orch.client.resources import ApiClient
from orch.client.transport import TransportError
from orch.component.diagnostics.health import CheckFailed
from orch.component.process import clock
from orch.component.process.clock import Now
from orch.component.process.loops import Backoff
from orch.component.process.once_log import OnceLog
from orch.wire import names, times
from orch.wire.errors import ApiError
from orch.wire.records.configuration import Lease, LeaseSpec
from orch.wire.records.core import Node
from orch.wire.records.meta import ObjectMeta, OwnerReference

log = logging.getLogger(__name__)

T = TypeVar("T")

RENEWALS_PER_DURATION = 4
JITTER = 0.04
UPDATE_ATTEMPTS = 5
FIRST_DELAY_S, LONGEST_DELAY_S = 0.2, 7.0
_REGISTERS_WITHIN_S = 5.0
FAILURES = (ApiError, TransportError, TimeoutError)


class LeaseLoop:
    """Keeps the node's Lease renewed; `client` must have a transport of its own.

    For metrics: `renewals` and `failures` (of single attempts), `last_renew_s` (loop time, None
    before the first), `last_renewal_unix_s` (0 before the first), `late_s` (how long after its
    planned time the last renewal succeeded) and `overdue_s`.
    `alive` is the health check: the loop keeps trying, whatever the API server answers.
    """

    def __init__(
        self,
        client: ApiClient,
        node_name: str,
        *,
        duration_s: int = 40,
        now: Now = clock.utc_now,
        rand: Callable[[], float] = random.random,
        timeout_s: float = 10.0,
    ) -> None:
        self.renewals = 0
        self.failures = 0
        self.last_renew_s: float | None = None
        self.last_renewal_unix_s = 0.0
        self.late_s = 0.0
        self.interval_s = duration_s / RENEWALS_PER_DURATION
        self._client = client
        self._node_name = node_name
        self._duration_s = duration_s
        self._now = now
        self._rand = rand
        self._timeout_s = timeout_s
        self._lease: Lease | None = None
        self._planned_s = 0.0
        self._consecutive_failures = 0
        self._outage = OnceLog(log)
        self._active_s: float | None = None  # loop time of the last call or start of a pause

    def alive(self) -> None:
        """CheckFailed when the loop has done nothing for longer than any call or pause takes."""
        if self._active_s is None:
            return  # not started
        limit_s = self.interval_s * (1 + JITTER) + LONGEST_DELAY_S + 2 * self._timeout_s
        idle_s = asyncio.get_running_loop().time() - self._active_s
        if idle_s > limit_s:
            raise CheckFailed(f"the Lease loop has been stuck for {idle_s:.0f} s")

    def overdue_s(self) -> float:
        """How long ago a renewal was planned that has not succeeded yet."""
        if self._active_s is None:
            return 0.0  # not started
        return max(0.0, asyncio.get_running_loop().time() - self._planned_s)

    async def run(self) -> None:
        """Renew forever, an interval after each completed renewal."""
        loop = asyncio.get_running_loop()
        self._planned_s = loop.time()
        while True:
            try:
                await self._renew_or_retry()
            except Exception:  # a defect is logged and must not stop the heartbeat
                self.failures += 1
                self._lease = None
                log.exception("renewing the Lease of node %s failed unexpectedly", self._node_name)
            wait_s = self.interval_s * (1 + self._rand() * JITTER)
            self._active_s = loop.time()
            self._planned_s = self._active_s + wait_s
            await asyncio.sleep(wait_s)

    async def _renew_or_retry(self) -> None:
        """Return once the Lease is renewed, however long that takes."""
        if self._lease is not None and await self._update(self._lease):
            return
        backoff = Backoff(FIRST_DELAY_S, 2.0, LONGEST_DELAY_S)
        while True:
            if await self._ensure():
                return
            await asyncio.sleep(backoff.next())

    async def _ensure(self) -> bool:
        """Read the Lease and update it, or create it; False when that failed."""
        try:
            lease = await self._get()
            if lease is None:
                return await self._create()
        except FAILURES as error:
            await self._failed(error)
            return False
        return await self._update(lease)

    async def _update(self, lease: Lease) -> bool:
        """Up to five attempts without pause, from the newest object; False when all failed."""
        current: Lease | None = lease
        for _ in range(UPDATE_ATTEMPTS):
            try:
                current = current or await self._get()
                if current is None:  # deleted meanwhile
                    return False
                renewed = await self._with_new_time(current)
                self._succeeded(await self._call(self._client.update(renewed)))
                return True
            except ApiError as error:
                await self._failed(error)
                if error.code == 404:
                    return False
                if error.reason == "Conflict":
                    current = None
            except FAILURES as error:
                await self._failed(error)
        return False

    async def _create(self) -> bool:
        """Create the Lease, owned by the Node, so that it is deleted with it.

        False while there is no Node yet, which is no failure of the heartbeat.
        """
        owner = await self._owner()
        if owner is None:
            if (now_s := asyncio.get_running_loop().time()) - self._planned_s > _REGISTERS_WITHIN_S:
                text = "the Lease of node %s waits for the Node to be registered (%.0f s)"
                self._outage.failed(text, self._node_name, now_s - self._planned_s, cause="node")
            return False
        meta = ObjectMeta(
            name=self._node_name, namespace=names.NODE_LEASE_NAMESPACE, ownerReferences=[owner]
        )
        spec = LeaseSpec(
            holderIdentity=self._node_name,
            leaseDurationSeconds=self._duration_s,
            renewTime=times.format_micro_time(self._now()),
        )
        self._succeeded(await self._call(self._client.create(Lease(metadata=meta, spec=spec))))
        return True

    async def _with_new_time(self, lease: Lease) -> Lease:
        lease = lease.model_copy(deep=True)
        lease.spec.leaseDurationSeconds = self._duration_s
        lease.spec.renewTime = times.format_micro_time(self._now())
        if not lease.metadata.ownerReferences:
            try:
                owner = await self._owner()
                lease.metadata.ownerReferences = [owner] if owner else None
            except FAILURES as error:
                log.debug("the Lease of node %s has no owner yet: %s", self._node_name, error)
        return lease

    async def _owner(self) -> OwnerReference | None:
        """None while the Node is not registered."""
        node = await self._call(self._client.find(Node, self._node_name))
        if node is None:
            return None
        return OwnerReference(
            apiVersion=names.CORE_VERSION,
            kind="Node",
            name=self._node_name,
            uid=node.metadata.uid or "",
        )

    async def _get(self) -> Lease | None:
        return await self._call(
            self._client.find(Lease, self._node_name, names.NODE_LEASE_NAMESPACE)
        )

    async def _call(self, call: Awaitable[T]) -> T:
        """Await an API call under the loop's own deadline, independent of the transport's."""
        self._active_s = asyncio.get_running_loop().time()
        async with asyncio.timeout(self._timeout_s):
            return await call

    def _succeeded(self, lease: Lease) -> None:
        now_s = asyncio.get_running_loop().time()
        self._lease = lease
        self.renewals += 1
        self.last_renew_s = now_s
        self.last_renewal_unix_s = self._now().timestamp()
        self.late_s = max(0.0, now_s - self._planned_s)
        self._consecutive_failures = 0
        self._outage.recovered("the Lease of node %s is renewed again", self._node_name)

    async def _failed(self, error: Exception) -> None:
        """Count the failure; from the second in a row, log each cause once and reconnect."""
        self.failures += 1
        self._consecutive_failures += 1
        if self._consecutive_failures > 1:
            cause = str(error) or f"no answer within {self._timeout_s:g} s"
            text = "cannot renew the Lease of node %s, retrying: %s"
            self._outage.failed(text, self._node_name, cause)
            with contextlib.suppress(TimeoutError):
                await self._call(self._client.transport.reset())
