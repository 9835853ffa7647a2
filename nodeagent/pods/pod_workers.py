"""The pods of this node: sources → desired pods → a worker for each; removes all others.

`run` is the agent's pod loop. When it ends, pods keep running; the next agent finds them again.
`remove_all` is for agents configured to remove their pods on exit. Two pods of the same name cannot
both run: the first wins, files before the API. Pods that have ended and left nothing here may be
many, since anybody may bind pods to a node by name: they cost a look each, and get no worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from nodeagent.pods import registry
from nodeagent.pods.decide import admission
from nodeagent.pods.decide.admission import Refusal
from nodeagent.pods.decide.phase import EVICTED, FINAL_PHASES, HARD_GRACE_S, Ending
from nodeagent.pods.observed import ObservedPod
from nodeagent.pods.sources.source import PodSource
from nodeagent.pods.worker import report
from nodeagent.pods.worker.services import PodServices
from nodeagent.pods.worker.worker import PodRemoval, PodWorker
from orch.component.process import loops
from orch.component.process.once_log import OnceLog
from orch.wire import names
from orch.wire.podrules import podspec
from orch.wire.records.core import Node
from orch.wire.records.pods import Pod

log = logging.getLogger(__name__)

_REST, _LONGEST_REST_S = 2.0, 0.25  # after a look at all pods: so many times as long as it took
_TURN_S = 0.005  # of giving pods to their workers without a pause for others
_NEVER_HEARD_S = 3.0  # for the first answer of a runtime, when all pods are to be removed
_RECHECK_S = 10.0  # interval of the search for leftovers and late answers
_RECHECK_SOON_S = 1.0  # while pods end for a critical one

Removed = Callable[[Pod], None]
NodeOf = Callable[[bool], Node | None]  # whether it is to judge static pods


def _uid(pod: Pod) -> str:
    return pod.metadata.uid or ""


class PodWorkers:
    """`node` returns the Node that pods must fit; until there is one (None) they wait."""

    def __init__(
        self,
        services: PodServices,
        sources: Sequence[PodSource],
        *,
        on_removed: Removed | None = None,
        node: NodeOf = lambda _static: Node(),
    ) -> None:
        self._services = services
        self._registry = services.registry
        self._sources = sources
        self._on_removed = on_removed
        self._node = node
        self._rejected: set[str] = set()
        self._preempted: set[str] = set()  # ended for critical pods
        self._recheck_s = _RECHECK_S
        self._workers: dict[str, PodWorker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._refused: tuple[str, ...] = ()
        self._attempts: dict[str, Mapping[str, int]] = {}  # of removed pods to be started again
        self._seen_s: dict[str, float] = {}  # desired pods by uid: when they were first seen
        self._removed: set[str] = set()  # removed here, still listed by their source
        self._spared: set[str] = set()  # uids no source wants, but an unreadable manifest may
        self._dirs_checked = False
        self._unread = OnceLog(log, logging.ERROR)  # directories of former pods
        self._exiting = False
        self._closed: Refusal | None = None  # why no further pod is admitted
        self._registry.on_view(self._wake_worker)
        services.health.on_change(self._wake_worker)
        services.allocations.on_pending = self._wake_worker
        self._registry.on_status(self._note_end)
        if services.devices:
            services.devices.on_assigned(self._changed.set)
            services.devices.on_health(self._wake_worker)

    def problems(self) -> tuple[str, ...]:
        """Why pods cannot be managed, for the node's Ready condition; () when they can."""
        return self._services.pleg.problems()

    async def run(self) -> None:
        """Run until cancelled, or until an error that no worker can handle."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._services.pleg.run())
                for source in self._sources:
                    group.create_task(source.run(self._changed.set))
                group.create_task(self._reconcile_loop())
                group.create_task(self._start_when_listed())
        finally:
            await self._stop_workers()

    def evict(self, uid: str, message: str, *, grace_s: int = HARD_GRACE_S) -> bool:
        """Fail a pod with the reason Evicted; False when it is unknown or already finished."""
        return self.end(uid, Ending(EVICTED, message, grace_s))

    def end(self, uid: str, ending: Ending) -> bool:
        """Fail a running pod; False when it is unknown or already finished."""
        worker = self._workers.get(uid)
        if worker is None or not worker.end(ending):
            return False
        self._services.events.warning(worker.pod, ending.reason, ending.message)
        return True

    def node_known(self) -> None:
        """Pods that wait for the node can be judged."""
        self._changed.set()

    def close(self, refusal: Refusal) -> None:
        """Admit no further pods."""
        self._closed = refusal

    def reopen(self) -> None:
        """Admit pods again."""
        self._closed = None

    async def _listed(self, timeout_s: float) -> None:
        """Until the runtime has said what it holds; not for long if it never said anything."""
        pleg = self._services.pleg
        async with asyncio.timeout(timeout_s if pleg.has_listed else _NEVER_HEARD_S):
            await pleg.after_listing("")

    async def remove_all(self, timeout_s: float) -> None:
        """Remove every pod of this agent, as gracefully as the time allows; after `run`.

        Pods not removed in time are logged and left to the next start.
        """
        self._exiting, began_s = True, asyncio.get_running_loop().time()
        log.info("removing all pods of this node")
        observing = loops.spawn(self._services.pleg.run(), name="pods.pleg")
        try:
            async with asyncio.timeout(timeout_s):
                await self._listed(timeout_s)
                await self._remove_known(grace_s=max(1, int(timeout_s * 2 / 3)))
                await self._services.cgroups.remove_parent()
        except TimeoutError:
            left = sorted(worker.name for worker in self._workers.values())
            names = ", ".join(left) or "the runtime does not tell which there are"
            took_s = asyncio.get_running_loop().time() - began_s
            log.error("pods not removed within %g s: %s", round(took_s), names)
        finally:
            await self._stop_workers()
            await loops.cancel(observing)

    async def _remove_known(self, *, grace_s: int) -> None:
        known = {*self._registry.views(), *(await self._on_disk() or ())}
        for uid in known:
            pod = self._registry.desired(uid)
            own_s = self._services.grace_s(uid)
            self._worker_of(uid, pod).remove(PodRemoval(min(own_s, grace_s)))
        while self._tasks:
            await asyncio.wait(self._tasks.values(), return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(0)  # done callbacks run in the loop's next iteration

    async def _reconcile_loop(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._changed.clear()
            began_s = loop.time()
            await self._reconcile()
            await asyncio.sleep(min(_REST * (loop.time() - began_s), _LONGEST_REST_S))
            again_in_s = self._services.allocations.again_in_s or self._recheck_s
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(again_in_s, self._recheck_s)):
                    await self._changed.wait()

    async def _start_when_listed(self) -> None:
        await self._services.pleg.after_listing("")
        self._changed.set()

    async def _reconcile(self) -> None:
        """Give every desired pod a worker, and remove all other pods.

        `complete` and the desired pods are read at the same moment: a source that becomes ready
        later in this pass must not make pods look unwanted.
        """
        complete = all(source.ready for source in self._sources)
        listed = [pod for source in self._sources for pod in source.pods()]
        over = {_uid(pod): pod for pod in listed if self._is_over(pod)}
        wanted, refused = registry.first_of_each([p for p in listed if _uid(p) not in over])
        if node := self._node(True):
            self._update_settings(node)
        pods = await self._allocated(wanted, node)
        for message in set(refused) - set(self._refused):
            log.error("%s", message)
        self._refused = refused
        self._registry.set_desired(pods, over=over.values(), complete=complete)
        now_s = asyncio.get_running_loop().time()
        uids = over.keys() | (live := set(map(_uid, pods)))
        self._seen_s = {uid: self._seen_s.get(uid, now_s) for uid in live}
        for known in (self._removed, self._rejected, self._preempted):
            known &= uids
        self._attempts = {uid: kept for uid, kept in self._attempts.items() if uid in uids}
        self._recheck_s = _RECHECK_S
        for uid, worker in self._workers.items():
            if uid not in uids and worker.pod is not None:
                worker.remove(PodRemoval())
        await self._assign_all(pods)
        if self._registry.listed and complete:
            await self._remove_orphans(uids, live)
            unfinished = self._registry.unfinished().union(map(_uid, self._unfinished()))
            self._services.allocations.retain(unfinished)
        await self._services.allocations.save()
        claimed = complete or self._registry.views().keys() <= self._workers.keys()
        if self._registry.listed and claimed:  # else pods that run would lose their shares
            await self._services.cgroups.balance(self._unfinished())

    def _is_over(self, pod: Pod) -> bool:
        """Whether the pod has ended, left nothing to the runtime, and nothing is under way."""
        if pod.status.phase not in FINAL_PHASES or pod.metadata.deletionTimestamp:
            return False
        uid = _uid(pod)
        return uid not in self._workers and self._registry.has_nothing(uid)

    async def _allocated(self, desired: Sequence[Pod], node: Node | None) -> Sequence[Pod]:
        """The pods with what this node has granted them; a resize waits for the node, too."""
        allocatable = node.status.allocatable or {} if node else None
        return await self._services.allocations.settle(desired, self._unfinished(), allocatable)

    async def _assign_all(self, pods: Sequence[Pod]) -> None:
        """Others of the loop have their turn in between: thousands of pods may be new at once."""
        loop, turn_ends_s = asyncio.get_running_loop(), 0.0
        for pod in pods:
            if loop.time() > turn_ends_s:
                await asyncio.sleep(0)
                turn_ends_s = loop.time() + _TURN_S
            self._assign(pod)

    def _assign(self, pod: Pod) -> None:
        uid = _uid(pod)
        if uid in self._removed:
            return
        if worker := self._workers.get(uid):
            worker.update(pod)
        elif uid in self._rejected and not pod.metadata.deletionTimestamp:
            return
        elif any(other.pod and other.pod.key == pod.key for other in self._workers.values()):
            return  # a former pod of this name is being removed; that triggers this again
        elif not pod.metadata.deletionTimestamp and not self._admits(pod):
            return
        else:
            worker = self._worker_of(uid, pod)
        if pod.metadata.deletionTimestamp:
            worker.remove(PodRemoval())

    def _update_settings(self, node: Node) -> None:
        """Take over the node's allocatable resources and, without --node-ip, its address."""
        settings = self._services.settings
        internal = [a.address for a in node.status.addresses or () if a.type == "InternalIP"]
        self._services.settings = replace(
            settings,
            host_ip=settings.host_ip or (internal[0] if internal else ""),
            allocatable=node.status.allocatable or {},
        )

    def _admits(self, pod: Pod) -> bool:
        """Whether the node has room for a new pod; a rejection is final."""
        uid = pod.metadata.uid or ""
        if not self._registry.settled(uid):
            return False  # until settled, the pod may turn out to be running already
        if pod.status.phase in FINAL_PHASES:
            return True
        if not self._registry.has_nothing(uid):
            self._services.allocations.grant(pod, runs=True)
            return True  # it was admitted before
        refusal, devices = self._closed, self._services.devices
        if refusal is None:
            node = self._node(podspec.is_static(pod))
            asks = node is not None and podspec.asks_for_extended(pod)
            problem = devices.assigned(pod) if devices and asks else ""
            if node is None or problem is None:
                return False
            others = self._unfinished()
            refusal = admission.unassigned(problem) if problem else self._refusal(pod, node, others)
            preempts = refusal and not problem and podspec.is_critical(pod)
            if preempts and self._makes_room(pod, node, others):
                return False
        if refusal is None:
            self._services.allocations.grant(pod, runs=False)
            return True
        self._rejected.add(uid)
        if devices:
            devices.release(uid)
        report.refuse(pod, refusal, self._services)
        return False

    def _refusal(self, pod: Pod, node: Node, others: Sequence[Pod]) -> Refusal | None:
        devices = self._services.devices
        return admission.refusal(
            pod,
            node,
            others,
            unsafe_sysctls=self._services.settings.unsafe_sysctls,
            given_here=devices.offers if devices else admission.none_given,
            apparmor=self._services.settings.apparmor,
        )

    def _makes_room(self, pod: Pod, node: Node, others: Sequence[Pod]) -> bool:
        """Whether other pods end for a critical one, which waits until they have."""
        staying = [other for other in others if other.metadata.uid not in self._preempted]
        victims = admission.victims(pod, node, staying)
        ended = {victim.metadata.uid or "" for victim in victims}
        left = [other for other in staying if other.metadata.uid not in ended]
        if self._refusal(pod, node, left):
            return False
        for victim in victims:
            self.end(victim.metadata.uid or "", admission.preempted(victim))
        self._preempted |= ended
        self._recheck_s = _RECHECK_SOON_S
        return True

    def _unfinished(self) -> list[Pod]:
        """The pods that use the node's resources."""
        ended = self._registry.has_ended
        return [w.pod for uid, w in self._workers.items() if w.pod and not ended(uid)]

    async def _remove_orphans(self, wanted: set[str], live: set[str]) -> None:
        """Remove what the runtime holds of pods that no source wants; the disk, of those that are
        not `live`.
        """
        for view in self._registry.views().values():
            if view.uid in wanted or view.uid in self._workers or self._may_be_wanted(view):
                continue
            log.warning("pod %s/%s: removing, no source wants it", view.namespace, view.name)
            self._worker_of(view.uid, None).remove(PodRemoval())
        if self._dirs_checked or (found := await self._on_disk()) is None:
            return
        self._dirs_checked = True
        for uid in found:
            if uid not in live and uid not in self._workers and uid not in self._spared:
                log.info("removing the leftovers of pod %s", uid)
                self._worker_of(uid, None).remove(PodRemoval())

    async def _on_disk(self) -> list[str] | None:
        """Uids of pods that have a directory; None while the disk cannot be read."""
        try:
            return await self._services.volumes.uids()
        except OSError as error:
            self._unread.failed("cannot look for leftovers of former pods, retrying: %s", error)
            return None

    def _may_be_wanted(self, view: ObservedPod) -> bool:
        """Whether a manifest that the pod's source cannot read may still define it."""
        annotations = view.sandbox.sandbox.annotations if view.sandbox else {}
        name = annotations.get(names.ANNOTATION_CONFIG_SOURCE, podspec.FILE)
        possible = any(source.name == name and source.incomplete for source in self._sources)
        if possible and view.uid not in self._spared:
            self._spared.add(view.uid)
            text = "pod %s/%s keeps running: a manifest that may define it cannot be read"
            log.warning(text, view.namespace, view.name)
        return possible

    def _worker_of(self, uid: str, pod: Pod | None) -> PodWorker:
        if uid in self._workers:
            return self._workers[uid]
        seen_s = self._seen_s.get(uid, asyncio.get_running_loop().time())
        former = self._attempts.pop(uid, {})
        worker = self._workers[uid] = PodWorker(uid, pod, self._services, seen_s, former)
        task = self._tasks[uid] = loops.spawn(worker.run(), name=f"pod {worker.name}")
        task.add_done_callback(lambda done: self._worker_done(worker, done))
        return worker

    def _worker_done(self, worker: PodWorker, task: asyncio.Task[None]) -> None:
        self._workers.pop(worker.uid, None)
        self._tasks.pop(worker.uid, None)
        if task.cancelled():
            return
        pod = worker.pod
        self._attempts[worker.uid] = worker.attempts
        if pod and pod.metadata.deletionTimestamp and not self._exiting:
            self._removed.add(worker.uid)
            if self._on_removed:
                self._on_removed(pod)
        self._changed.set()

    def _note_end(self, uid: str) -> None:
        """A pod that has ended leaves room for resizes that wait."""
        if self._registry.has_ended(uid):
            self._changed.set()

    def _wake_worker(self, uid: str) -> None:
        if worker := self._workers.get(uid):
            worker.wake()
        else:
            self._changed.set()

    async def _stop_workers(self) -> None:
        await loops.cancel(*self._tasks.values())
        await self._services.health.close()
