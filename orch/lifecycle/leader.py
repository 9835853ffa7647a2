"""Leader election through a Lease: of several controllers, one decides and the others stand by.

A claim is judged by when this process saw it change, never by the holder's clock. A leader that
cannot renew within its deadline stops deciding before another may begin, and stands by again; a
leader that shuts down releases its claim. Source: client-go tools/leaderelection.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from orch.client.resources import ApiClient
from orch.client.transport import TransportError
from orch.component.process import loops
from orch.component.process.clock import Now
from orch.component.process.once_log import OnceLog
from orch.wire import times
from orch.wire.errors import ApiError
from orch.wire.records.configuration import Lease, LeaseSpec
from orch.wire.records.meta import ObjectMeta

log = logging.getLogger(__name__)

Work = Callable[[], Coroutine[Any, Any, None]]

_RELEASE_WITHIN_S = 2.0


@dataclass(frozen=True, slots=True)
class Claim:
    """The Lease that is claimed, the identity that claims it, and the times of the election."""

    name: str
    namespace: str
    identity: str
    duration_s: float = 15.0
    renew_deadline_s: float = 10.0
    retry_s: float = 2.0


class Leader:
    """`leading`: this process decides now."""

    def __init__(self, client: ApiClient, claim: Claim, *, now: Now) -> None:
        self.leading = False
        self._client = client
        self._claim = claim
        self._now = now
        self._seen: Lease | None = None
        self._seen_s = 0.0  # when `_seen` was last seen to change
        self._holder = ""  # logged last
        self._cause = ""  # why the last try failed
        self._outage = OnceLog(log)

    async def run(self, lead: Work) -> None:
        """Stand by, lead, stand by again, forever; `lead` is cancelled when leadership is lost.

        An error in `lead` ends this too.
        """
        while True:
            await self._acquire()
            log.info("leading as %s", self._claim.identity)
            self.leading = True
            try:
                await self._while_renewed(lead)
            finally:
                self.leading = False
                await self._release()
            log.error(
                "leadership is lost: the claim was not renewed within %g s (%s); standing by",
                self._claim.renew_deadline_s,
                self._cause or "no answer, or another holds it",
            )

    async def _acquire(self) -> None:
        while True:
            if await self._try():
                return
            await asyncio.sleep(self._claim.retry_s * (1 + random.random() * 0.2))  # noqa: S311

    async def _while_renewed(self, lead: Work) -> None:
        """Until renewing has failed for the whole deadline, or `lead` raised."""
        work = loops.spawn(lead(), name="leader's work")
        try:
            renewed_s = _time()
            while _time() - renewed_s < self._claim.renew_deadline_s:
                done, _ = await asyncio.wait({work}, timeout=self._claim.retry_s)
                if done:
                    work.result()
                    raise RuntimeError("the leader's work ended, which it must not")
                left_s = self._claim.renew_deadline_s - (_time() - renewed_s)
                try:
                    async with asyncio.timeout(left_s):
                        if await self._try():
                            renewed_s = _time()
                except TimeoutError:
                    return
        finally:
            await loops.cancel(work)

    async def _try(self) -> bool:
        """Claim or renew once; False when another process holds the Lease or the server refused."""
        try:
            held = await self._claim_or_renew()
        except (ApiError, TransportError) as error:
            self._failed(error)
            return False
        self._cause = ""
        self._outage.recovered("the claim of leadership is read and written again")
        return held

    async def _claim_or_renew(self) -> bool:
        """False when another process holds the Lease."""
        if self.leading and self._seen and await self._renew(self._seen):
            return True
        self._look(await self._client.find(Lease, self._claim.name, self._claim.namespace))
        if self._seen is None:
            self._look(await self._client.create(self._claimed(self._lease())))
        elif self._may_take(self._seen):
            self._look(await self._client.update(self._claimed(self._seen)))
        else:
            self._log_holder(self._seen)
            return False
        return True

    async def _renew(self, lease: Lease) -> bool:
        """Renew without reading first; False when the Lease has changed."""
        try:
            self._look(await self._client.update(self._claimed(lease)))
        except ApiError as error:
            if error.code in (404, 409):
                return False
            raise
        return True

    def _look(self, lease: Lease | None) -> None:
        if lease is None or self._seen is None or lease.spec != self._seen.spec:
            self._seen_s = _time()
        self._seen = lease

    def _may_take(self, lease: Lease) -> bool:
        holder = lease.spec.holderIdentity
        if not holder or holder == self._claim.identity:
            return True
        duration_s = lease.spec.leaseDurationSeconds or self._claim.duration_s
        return _time() - self._seen_s > duration_s

    def _claimed(self, lease: Lease) -> Lease:
        lease = lease.model_copy(deep=True)
        now = times.format_micro_time(self._now())
        if lease.spec.holderIdentity != self._claim.identity:
            lease.spec.acquireTime = now
            lease.spec.leaseTransitions = (lease.spec.leaseTransitions or 0) + 1
        lease.spec.holderIdentity = self._claim.identity
        lease.spec.leaseDurationSeconds = int(self._claim.duration_s)
        lease.spec.renewTime = now
        return lease

    def _lease(self) -> Lease:
        meta = ObjectMeta(name=self._claim.name, namespace=self._claim.namespace)
        return Lease(metadata=meta, spec=LeaseSpec(leaseTransitions=-1))  # none yet, once claimed

    async def _release(self) -> None:
        """Release the claim if this process still holds it: the next leader need not wait."""
        lease, self._seen = self._seen, None
        if lease is None or lease.spec.holderIdentity != self._claim.identity:
            return
        lease = lease.model_copy(deep=True)
        lease.spec.holderIdentity = ""
        lease.spec.leaseDurationSeconds = 1
        try:
            async with asyncio.timeout(_RELEASE_WITHIN_S):
                await self._client.update(lease)
        except (ApiError, TransportError, TimeoutError) as error:
            log.debug("cannot release the claim: %s", error)

    def _failed(self, error: ApiError | TransportError) -> None:
        """A lost race is no failure."""
        if isinstance(error, ApiError) and error.code == 409:
            log.debug("another wrote the claim first: %s", error)
        else:
            self._cause = str(error)
            self._outage.failed("cannot claim leadership, retrying: %s", error)

    def _log_holder(self, lease: Lease) -> None:
        holder = lease.spec.holderIdentity or ""
        if holder != self._holder:
            self._holder = holder
            log.info("standing by: %s leads", holder)


def _time() -> float:
    return asyncio.get_running_loop().time()
