"""Mirror pods: objects that show static pods in the API.

One per static pod, annotated with the static pod's hash and owned by the Node; created again when
someone deletes it, deleted when the static pod has ended after its manifest went or changed.
"""

from __future__ import annotations

import asyncio
import logging
import operator
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from nodeagent.pods.registry import PodRegistry
from nodeagent.pods.sources.source import ApiSource
from orch.client.resources import ApiClient
from orch.client.transport import TransportError
from orch.component.process.loops import Periodic
from orch.component.process.once_log import OnceLog
from orch.wire import names
from orch.wire.errors import ApiError
from orch.wire.podrules import podspec
from orch.wire.records.core import Node
from orch.wire.records.meta import OwnerReference
from orch.wire.records.pods import Pod, PodStatus

log = logging.getLogger(__name__)

INTERVAL_S = 2.0
_WAIT_FOR_NODE_S = 30.0  # after that, mirror pods are created without an owner


@dataclass(frozen=True, slots=True)
class MirrorPlan:
    create: tuple[Pod, ...]  # static pods without a mirror
    delete: tuple[Pod, ...]  # mirror pods without a static pod


def plan_mirrors(
    static: Iterable[Pod], mirrors: Iterable[Pod], ending: Collection[str] = ()
) -> MirrorPlan:
    """The mirrors to create and to delete; a mirror to be replaced is deleted first.

    Names in `ending` wait: a pod that no manifest defines any more still runs under them.
    """
    wanted = {pod.key: pod for pod in static if pod.key not in ending}
    existing = {mirror.key: mirror for mirror in mirrors if mirror.key not in ending}
    hashes = {key: _hash(pod) for key, pod in wanted.items()}
    return MirrorPlan(
        create=tuple(pod for key, pod in wanted.items() if key not in existing),
        delete=tuple(
            mirror
            for key, mirror in existing.items()
            if mirror.metadata.annotation(names.ANNOTATION_CONFIG_MIRROR) != hashes.get(key)
            or mirror.metadata.deletionTimestamp
        ),
    )


def mirror_of(pod: Pod, node: Node | None) -> Pod:
    """The object to create for a static pod; owned by its node where the node is known."""
    meta = pod.metadata
    owner = None
    if node and node.metadata.uid:
        owner = [
            OwnerReference(
                apiVersion="v1",
                kind="Node",
                name=node.metadata.name,
                uid=node.metadata.uid,
                controller=True,
            )
        ]
    annotations = {**(meta.annotations or {}), names.ANNOTATION_CONFIG_MIRROR: _hash(pod)}
    metadata = meta.model_copy(
        update={"uid": None, "annotations": annotations, "ownerReferences": owner}
    )
    return pod.model_copy(update={"metadata": metadata, "status": PodStatus()})


class MirrorPods:
    """Syncs mirror pods with the node's static pods; `count` is how many the API has."""

    def __init__(
        self, client: ApiClient, registry: PodRegistry, source: ApiSource, node_name: str
    ) -> None:
        self.count = 0
        self._client = client
        self._registry = registry
        self._source = source
        self._node_name = node_name
        self._outage = OnceLog(log)
        self._waiting_since_s: float | None = None
        self._settled: tuple[Pod, ...] = ()  # all pods when nothing was left to do

    async def run(self) -> None:
        await Periodic("pods.mirror", self.step, interval_s=INTERVAL_S).run()

    async def step(self) -> None:
        """Compare once and create and delete what differs; failures are logged once per outage."""
        if not (self._source.ready and self._registry.complete):
            return
        found = (*self._registry.all_desired(), *self._source.listed())
        if len(found) == len(self._settled) and all(map(operator.is_, found, self._settled)):
            return
        static = [pod for pod in self._registry.all_desired() if podspec.is_static(pod)]
        mirrors = self._source.mirrors()
        self.count = len(mirrors)
        ending = self._ending()
        planned = plan_mirrors(static, mirrors, ending)
        self._settled = () if planned.create or planned.delete or ending else found
        try:
            for mirror in planned.delete:
                await self._delete(mirror)
            if planned.create:
                await self._create_all(planned.create)
        except (ApiError, TransportError) as error:
            self._outage.failed("cannot sync the mirror pods: %s", error)
        else:
            self._outage.recovered()

    def _ending(self) -> set[str]:
        """Names of pods that should not run here and of which the runtime still holds something."""
        views = self._registry.views().values()
        gone = (view for view in views if self._registry.desired(view.uid) is None)
        return {f"{view.namespace}/{view.name}" for view in gone}

    async def _create_all(self, pods: Iterable[Pod]) -> None:
        node = await self._node()
        if node is None and not self._waited_for_node():
            return
        refused: ApiError | None = None
        for pod in pods:
            try:
                await self._client.create(mirror_of(pod, node))
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    refused = error  # raised after the others were tried
            else:
                log.info("pod %s: created its mirror pod", pod.key)
        if refused:
            raise refused

    async def _delete(self, mirror: Pod) -> None:
        meta = mirror.metadata
        try:
            await self._client.delete(
                Pod, meta.name, meta.namespace or "", grace_period_s=0, uid=meta.uid
            )
        except ApiError as error:
            if error.code not in (404, 409):  # gone, or already another pod
                raise
        else:
            log.info("pod %s: deleted its mirror pod", mirror.key)

    async def _node(self) -> Node | None:
        try:
            return await self._client.get(Node, self._node_name)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def _waited_for_node(self) -> bool:
        now_s = asyncio.get_running_loop().time()
        if self._waiting_since_s is None:
            self._waiting_since_s = now_s
        return now_s - self._waiting_since_s >= _WAIT_FOR_NODE_S


def _hash(pod: Pod) -> str:
    return pod.metadata.annotation(names.ANNOTATION_CONFIG_HASH)
