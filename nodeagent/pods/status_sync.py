"""Reports pods to the API: changed statuses, and the removal of pods that were deleted.

Only the newest status of a pod is sent, and namespaces take turns, as a tenant may bind thousands
of pods here; an unavailable API is retried with growing delays and blocks no worker. Mirror pods
get the status of their static pods.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Set
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Any

from nodeagent.pods import counts
from nodeagent.pods.counts import Timings
from nodeagent.pods.decide.status import OWN_CONDITIONS
from nodeagent.pods.registry import PodRegistry
from nodeagent.pods.resize.changes import CONDITIONS
from nodeagent.pods.sources.source import ApiSource
from orch.client.resources import ApiClient
from orch.client.transport import TransportError
from orch.component.process.loops import Backoff
from orch.component.process.once_log import OnceLog
from orch.wire.errors import ApiError
from orch.wire.podrules import podspec
from orch.wire.records.pods import Pod, PodCondition, PodStatus

log = logging.getLogger(__name__)

_SWEEP_S = 60.0  # how often every status is compared again, in case someone else changed it
_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.2, 7.0
_TRANSIENT = (409, 429)
_MAX_SILENCES = 2
_TICK_S = 0.01  # timers may fire this much early


def _delays() -> Backoff:
    return Backoff(_FIRST_DELAY_S, 2.0, _LONGEST_DELAY_S)


@dataclass
class _Refused:
    """An object whose call the API refused for now; not retried before `until_s` (loop time)."""

    until_s: float = 0.0
    backoff: Backoff = field(default_factory=_delays)


class StatusSync:
    """`note` and `removed` never wait; `run` sends."""

    def __init__(
        self, client: ApiClient, registry: PodRegistry, source: ApiSource, timings: Timings
    ) -> None:
        self._client = client
        self._registry = registry
        self._source = source
        self._timings = timings
        # By namespace, the next one first: uids, in the order they became due.
        self._due: dict[str, dict[str, None]] = {}
        self._sent_to: dict[str, str] = {}  # uid → the object's uid in the API, "" when absent
        self._equal: dict[str, tuple[PodStatus, PodStatus]] = {}  # uid → equal stored, own status
        self._removed: dict[str, Pod] = {}
        self._work = asyncio.Event()
        self._backoff = _delays()
        self._refused: dict[str, _Refused] = {}  # by uid
        self._next_sweep_s = 0.0
        self._noted_s: dict[str, float] = {}  # loop time when a status changed that is not sent yet
        self._outage = OnceLog(log)  # until a whole round succeeds
        # Results of the calls of this round: unanswered, refused, successful.
        self._silences = self._refusals = self._successes = 0
        registry.on_status(self.note)
        source.on_change(self._api_changed)

    def note(self, uid: str) -> None:
        """The status of a pod changed."""
        self._noted_s.setdefault(uid, asyncio.get_running_loop().time())
        self._add(uid)
        self._work.set()

    def removed(self, pod: Pod) -> None:
        """A deleted pod was removed completely from this node."""
        self._removed[pod.metadata.uid or ""] = pod
        self._add(pod.metadata.uid or "")
        self._work.set()

    def _add(self, uid: str) -> None:
        pod = self._removed.get(uid) or self._registry.desired(uid)
        namespace = (pod and pod.metadata.namespace) or ""
        self._due.setdefault(namespace, {})[uid] = None

    def _next(self) -> str:
        """Of the namespace whose turn it is; then it is the last."""
        namespace, uids = next(iter(self._due.items()))
        del self._due[namespace]
        del uids[uid := next(iter(uids))]
        if uids:
            self._due[namespace] = uids
        return uid

    def _api_changed(self) -> None:
        """Send the status to objects that appeared or were created again."""
        for uid, known in self._sent_to.items():
            pod = self._registry.desired(uid)
            stored = self._stored(pod) if pod else None
            if stored is not None and stored.metadata.uid != known:
                self.note(uid)

    def _stored(self, pod: Pod) -> Pod | None:
        """The API's object of a pod, or the mirror of a static one; None when there is none."""
        stored = self._source.stored(pod.metadata.namespace or "", pod.metadata.name)
        if stored is None or stored.metadata.uid == pod.metadata.uid or podspec.is_mirror(stored):
            return stored
        return None

    async def run(self) -> None:
        """Send forever."""
        while True:
            if await self._send_all():
                self._backoff.reset()
                await self._wait()
            else:
                await asyncio.sleep(self._backoff.next())

    async def _wait(self) -> None:
        """Wait until something changes, a refused call is due for a retry, or a sweep is due."""
        now_s = asyncio.get_running_loop().time()
        self._next_sweep_s = self._next_sweep_s or now_s + _SWEEP_S
        retries = [refused.until_s for refused in self._refused.values()]
        try:
            async with asyncio.timeout_at(min([self._next_sweep_s, *retries])):
                await self._work.wait()
        except TimeoutError:
            if asyncio.get_running_loop().time() + _TICK_S < self._next_sweep_s:
                return
            self._next_sweep_s = 0.0
            desired = (pod.metadata.uid or "" for pod in self._registry.all_desired())
            # Removed pods too: sending their status drops what is cached about them.
            for uid in (*desired, *self._sent_to):
                self._add(uid)

    async def _send_all(self) -> bool:
        """False when the API does not answer; a refused object blocks no other."""
        self._work.clear()
        self._silences = self._refusals = self._successes = 0
        left = []
        for _ in range(sum(map(len, self._due.values()))):  # a bound: more may come
            if not self._due:
                break
            if not await self._told(uid := self._next()):
                left.append(uid)
        for uid in left:
            self._add(uid)
        for uid in self._refused.keys() - set().union(*self._due.values()):
            del self._refused[uid]
        if self._successes and not (self._silences or self._refusals or self._refused):
            self._outage.recovered("reporting the state of pods again")
        return self._silences == 0

    async def _told(self, uid: str) -> bool:
        """The status first: how a pod ended is told before it goes."""
        pod = self._removed.get(uid)  # one that goes meanwhile has its end told first, too
        if not await self._tried(uid, partial(self._send_status, uid)):
            return False
        if pod is not None:
            if not await self._tried(uid, partial(self._delete, pod)):
                return False
            self._removed.pop(uid, None)
        return True

    async def _tried(self, uid: str, call: Callable[[], Awaitable[None]]) -> bool:
        """False when the call must be retried; a permanent refusal is logged and dropped.

        After two unanswered calls the rest of the round is skipped.
        """
        refused = self._refused.get(uid)
        now_s = asyncio.get_running_loop().time()
        if self._silences >= _MAX_SILENCES or (refused and refused.until_s > now_s + _TICK_S):
            return False
        try:
            await call()
        except TransportError as error:
            self._silences += 1
            self._outage.failed("cannot report the state of pods: %s", error)
            return False
        except ApiError as error:
            if error.code == 404:
                return True  # the object was deleted meanwhile
            self._refusals += 1
            text = "cannot report the state of pods: %s"
            self._outage.failed(text, error, cause=(error.code, error.reason))
            if error.code not in _TRANSIENT and error.code < 500:
                return True
            refused = self._refused.setdefault(uid, _Refused())
            refused.until_s = now_s + refused.backoff.next()
            return False
        self._refused.pop(uid, None)
        self._successes += 1
        return True

    async def _send_status(self, uid: str) -> None:
        pod, wanted = self._registry.desired(uid), self._registry.status(uid)
        if pod is None or wanted is None:
            self._sent_to.pop(uid, None)
            self._equal.pop(uid, None)
            self._noted_s.pop(uid, None)
            return
        stored = self._stored(pod)
        self._sent_to[uid] = (stored and stored.metadata.uid) or ""
        if stored is None:
            return
        patch = self._patch(uid, stored.status, wanted)
        if patch:
            await self._client.patch(
                Pod,
                pod.metadata.name,
                {"metadata": {"uid": stored.metadata.uid}, "status": patch},
                namespace=pod.metadata.namespace or "",
                subresource="status",
                kind="strategic",
            )
        if (noted_s := self._noted_s.pop(uid, None)) is not None and patch:
            took_s = asyncio.get_running_loop().time() - noted_s
            self._timings.observe(counts.STATUS_SYNC, took_s)

    def _patch(self, uid: str, stored: PodStatus, wanted: PodStatus) -> dict[str, Any]:
        """Skip the comparison while both statuses are the objects compared before."""
        known = self._equal.get(uid)
        if known is not None and known[0] is stored and known[1] is wanted:
            return {}
        patch = status_patch(stored, wanted)
        if not patch:
            self._equal[uid] = stored, wanted
        return patch

    async def _delete(self, pod: Pod) -> None:
        meta = pod.metadata
        try:
            await self._client.delete(
                Pod, meta.name, meta.namespace or "", grace_period_s=0, uid=meta.uid
            )
        except ApiError as error:
            if error.code != 409:  # 409: another pod has this name now
                raise


_REPLACED = ("hostIPs", "podIPs")  # a strategic patch would only add to them


def status_patch(stored: PodStatus, wanted: PodStatus) -> dict[str, Any]:
    """The strategic merge patch from `stored` to `wanted`; {} when they are equal.

    Conditions that are not the agent's are in no patch: others set them at the same time.
    """
    kinds = {c.type for c in wanted.conditions or ()} & OWN_CONDITIONS
    before, after = _reported(stored, kinds), _reported(wanted, kinds)
    changed = {key: value for key, value in after.items() if before.get(key) != value}
    own = set(PodStatus.model_fields)
    dropped = {key: None for key in before if key in own and key not in after}
    shown = {c.type for c in wanted.conditions or ()}
    over = [c.type for c in stored.conditions or () if c.type in CONDITIONS and c.type not in shown]
    for key in changed.keys() & _REPLACED:
        changed[key] = [{"$patch": "replace"}, *changed[key]]
    if "conditions" in changed:
        blank = dict.fromkeys(PodCondition.model_fields)
        changed["conditions"] = [blank | condition for condition in changed["conditions"]]
    if over:  # a resize that is over is told of by no condition
        gone = [{"$patch": "delete", "type": kind} for kind in over]
        changed["conditions"] = [*changed.get("conditions", ()), *gone]
    return {**changed, **dropped}


def _reported(status: PodStatus, kinds: Set[str]) -> dict[str, Any]:
    """With the conditions of these kinds, in an order of its own."""
    data = status.to_wire()
    own = [c for c in data.pop("conditions", ()) if c["type"] in kinds]
    return {**data, "conditions": sorted(own, key=itemgetter("type"))} if own else data
