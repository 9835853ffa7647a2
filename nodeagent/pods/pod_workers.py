"""The pods of this node: sources → desired pods → a worker for each, and an end for the rest.

`run` is the agent's pod loop. When it ends, pods go on running; the next agent finds them again.
`remove_all` is for agents that are told to take their pods with them. Two pods of the same name
cannot both run: the first one wins, files before the API.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from nodeagent.pods.decide import admission
from nodeagent.pods.decide.admission import Refusal
from nodeagent.pods.decide.phase import EVICTED, FINAL_PHASES, HARD_GRACE_S, Ending
from nodeagent.pods.observed import ObservedPod
from nodeagent.pods.sources.source import PodSource
from nodeagent.pods.worker import report
from nodeagent.pods.worker.services import PodServices
from nodeagent.pods.worker.worker import PodWorker, Removal
from orch.component.process import loops
from orch.component.process.once_log import OnceLog
from orch.wire import names
from orch.wire.podrules import podspec
from orch.wire.records.core import Node
from orch.wire.records.pods import Pod

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Desired:
    """`refused` are sentences about pods that were left out."""

    pods: tuple[Pod, ...]
    refused: tuple[str, ...]


def merge(listed: Iterable[Pod]) -> Desired:
    """Keep the first pod of every name and of every uid."""
    kept: dict[str, Pod] = {}
    by_name: dict[str, Pod] = {}
    refused: list[str] = []
    for pod in listed:
        uid = pod.metadata.uid or ""
        rival = by_name.get(pod.key) or kept.get(uid)
        if rival is not None:
            what = "name" if rival.key == pod.key else "uid"
            refused.append(
                f"pod {pod.key} ({uid}) is not run: pod {rival.key} ({rival.metadata.uid}) "
                f"has the same {what}; give it another"
            )
            continue
        kept[uid] = by_name[pod.key] = pod
    return Desired(tuple(kept.values()), tuple(refused))


_RECHECK_S = 10.0  # leftovers and late answers are looked for again so often

Removed = Callable[[Pod], None]


class PodWorkers:
    """`node` gives the Node as last seen, None while there is none; then every pod is taken."""

    def __init__(
        self,
        services: PodServices,
        sources: Sequence[PodSource],
        *,
        on_removed: Removed | None = None,
        node: Callable[[], Node | None] = lambda: None,
    ) -> None:
        self._services = services
        self._registry = services.registry
        self._sources = sources
        self._on_removed = on_removed
        self._node = node
        self._not_taken: set[str] = set()
        self._workers: dict[str, PodWorker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._refused: tuple[str, ...] = ()
        self._seen_s: dict[str, float] = {}  # wanted pods by uid: when they were seen first
        self._gone: set[str] = set()  # removed here, not yet gone from their source
        self._left_alone: set[str] = set()
        self._dirs_checked = False
        self._unread = OnceLog(log, logging.ERROR)  # directories of former pods
        self._leaving = False
        self._closed: Refusal | None = None  # why no further pod is taken
        self._registry.on_view(self._look_at)
        services.health.on_change(self._look_at)

    def problems(self) -> tuple[str, ...]:
        """Why pods cannot be kept, for the node's Ready condition; () when they can."""
        return self._services.pleg.problems()

    async def run(self) -> None:
        """Keep the pods for ever; an error that no worker can handle ends it."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._services.pleg.run())
                for source in self._sources:
                    group.create_task(source.run(self._changed.set))
                group.create_task(self._reconcile_for_ever())
                group.create_task(self._begin_when_listed())
        finally:
            await self._stop_workers()

    def evict(self, uid: str, message: str, *, grace_s: int = HARD_GRACE_S) -> bool:
        """Let a pod fail with the reason Evicted; False when there is none, or it is over."""
        return self.end(uid, Ending(EVICTED, message, grace_s))

    def end(self, uid: str, ending: Ending) -> bool:
        """Let a pod fail before its time; False when there is none, or it is over."""
        worker = self._workers.get(uid)
        if worker is None or not worker.end(ending):
            return False
        self._services.events.warning(worker.pod, ending.reason, ending.message)
        return True

    def close(self, refusal: Refusal) -> None:
        """Take no further pods from now on."""
        self._closed = refusal

    def reopen(self) -> None:
        """Take pods again."""
        self._closed = None

    async def remove_all(self, timeout_s: float) -> None:
        """Remove every pod of this agent, gracefully as far as the time allows; after `run`.

        What is not gone in time is logged and left to the next start.
        """
        self._leaving = True
        log.info("removing all pods of this node")
        observing = loops.spawn(self._services.pleg.run(), name="pods.pleg")
        try:
            async with asyncio.timeout(timeout_s):
                await self._services.pleg.after_listing("")
                await self._remove_known(grace_s=max(1, int(timeout_s * 2 / 3)))
                await self._services.cgroups.remove_parent()
        except TimeoutError:
            left = sorted(worker.name for worker in self._workers.values())
            log.error("pods not removed within %g s: %s", timeout_s, ", ".join(left) or "unknown")
        finally:
            await self._stop_workers()
            await loops.cancel(observing)

    async def _remove_known(self, *, grace_s: int) -> None:
        known = {*self._registry.views(), *(await self._on_disk() or ())}
        for uid in known:
            pod = self._registry.desired(uid)
            own_s = self._services.grace_s(uid)
            self._work(uid, pod).remove(Removal(min(own_s, grace_s)))
        while self._tasks:
            await asyncio.wait(self._tasks.values(), return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(0)  # their ends are told in the loop's next turn

    async def _reconcile_for_ever(self) -> None:
        while True:
            self._changed.clear()
            await self._reconcile()
            try:
                async with asyncio.timeout(_RECHECK_S):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _begin_when_listed(self) -> None:
        await self._services.pleg.after_listing("")
        self._changed.set()

    async def _reconcile(self) -> None:
        """Give every desired pod a worker, and tell the others' to end.

        What is wanted is judged by one moment: a source that is read to its end during this says
        nothing about pods that were asked for before.
        """
        complete = all(source.ready for source in self._sources)
        wanted = merge(pod for source in self._sources for pod in source.pods())
        for sentence in set(wanted.refused) - set(self._refused):
            log.error("%s", sentence)
        self._refused = wanted.refused
        self._registry.set_desired(wanted.pods, complete=complete)
        self._learn_from_node()
        uids = {pod.metadata.uid or "" for pod in wanted.pods}
        now_s = asyncio.get_running_loop().time()
        self._seen_s = {uid: self._seen_s.get(uid, now_s) for uid in uids}
        self._gone &= uids
        self._not_taken &= uids
        for uid, worker in self._workers.items():
            if uid not in uids and worker.pod is not None:
                worker.remove(Removal())
        for pod in wanted.pods:
            self._give_worker(pod)
        if self._registry.listed and complete:
            await self._remove_strays(uids)
        await self._services.cgroups.balance(wanted.pods)

    def _give_worker(self, pod: Pod) -> None:
        uid = pod.metadata.uid or ""
        if uid in self._gone:
            return
        if worker := self._workers.get(uid):
            worker.update(pod)
        elif any(other.pod and other.pod.key == pod.key for other in self._workers.values()):
            return  # a former pod of this name is on its way out; its end brings us back here
        elif not pod.metadata.deletionTimestamp and not self._takes(pod):
            return
        else:
            worker = self._work(uid, pod)
        if pod.metadata.deletionTimestamp:
            worker.remove(Removal())

    def _learn_from_node(self) -> None:
        """What pods are told of their node; without --node-ip its address, too."""
        settings, node = self._services.settings, self._node()
        if node is None:
            return
        internal = [a.address for a in node.status.addresses or () if a.type == "InternalIP"]
        self._services.settings = replace(
            settings,
            host_ip=settings.host_ip or (internal[0] if internal else ""),
            allocatable=node.status.allocatable or {},
        )

    def _takes(self, pod: Pod) -> bool:
        """Whether the node has room for a pod that is not here yet; a refusal is for good."""
        uid = pod.metadata.uid or ""
        if uid in self._not_taken or not self._registry.settled(uid):
            return False  # not, or not before it is known whether it runs already
        node = self._node()
        if node is None or pod.status.phase in FINAL_PHASES or not self._registry.view(uid).empty:
            return True
        others = [worker.pod for worker in self._workers.values() if worker.occupies]
        found = self._closed or admission.refusal(pod, node, [o for o in others if o is not None])
        if found is None:
            return True
        self._not_taken.add(uid)
        report.refuse(pod, found, self._services)
        return False

    async def _remove_strays(self, wanted: set[str]) -> None:
        """End what the runtime or the disk holds of pods that no source asks for."""
        strays = [view for uid, view in self._registry.views().items() if uid not in wanted]
        for view in strays:
            if view.uid not in self._workers and not self._left_to_doubt(view):
                log.warning("pod %s/%s ends: no source asks for it", view.namespace, view.name)
                self._work(view.uid, None).remove(Removal())
        if self._dirs_checked or (found := await self._on_disk()) is None:
            return
        self._dirs_checked = True
        for uid in found:
            if uid not in wanted and uid not in self._workers and uid not in self._left_alone:
                log.info("removing what is left of pod %s", uid)
                self._work(uid, None).remove(Removal())

    async def _on_disk(self) -> list[str] | None:
        """Uids of pods that have a directory; None while the disk does not tell."""
        try:
            return await self._services.volumes.uids()
        except OSError as error:
            self._unread.failed("cannot look for what former pods left, retrying: %s", error)
            return None

    def _left_to_doubt(self, view: ObservedPod) -> bool:
        """Whether its source could not read everything and may still want it."""
        sandbox = view.sandbox
        annotations = sandbox.sandbox.annotations if sandbox else {}
        source = annotations.get(names.ANNOTATION_CONFIG_SOURCE, podspec.FILE)
        doubtful = any(one.name == source and one.doubtful for one in self._sources)
        if doubtful and view.uid not in self._left_alone:
            self._left_alone.add(view.uid)
            log.warning(
                "pod %s/%s is left running: a manifest that may ask for it cannot be read",
                view.namespace,
                view.name,
            )
        return doubtful

    def _work(self, uid: str, pod: Pod | None) -> PodWorker:
        if uid in self._workers:
            return self._workers[uid]
        seen_s = self._seen_s.get(uid, asyncio.get_running_loop().time())
        worker = self._workers[uid] = PodWorker(uid, pod, self._services, seen_s)
        task = self._tasks[uid] = loops.spawn(worker.run(), name=f"pod {worker.name}")
        task.add_done_callback(lambda ended: self._worker_ended(worker, ended))
        return worker

    def _worker_ended(self, worker: PodWorker, task: asyncio.Task[None]) -> None:
        self._workers.pop(worker.uid, None)
        self._tasks.pop(worker.uid, None)
        if task.cancelled():
            return
        pod = worker.pod
        if pod and pod.metadata.deletionTimestamp and not self._leaving:
            self._gone.add(worker.uid)
            if self._on_removed:
                self._on_removed(pod)
        self._changed.set()

    def _look_at(self, uid: str) -> None:
        if worker := self._workers.get(uid):
            worker.poke()
        else:
            self._changed.set()

    async def _stop_workers(self) -> None:
        await loops.cancel(*self._tasks.values())
        await self._services.health.close()
