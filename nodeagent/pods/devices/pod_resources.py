"""Answers which devices the pods of this node have: the `PodResources` API, for monitoring.

`List` of v1alpha1 is that of v1, whose messages only have more fields, which its readers skip.

Only the agent's own user may enter the folder of the socket. Cores and memory belong to whole
managers of the reference that are not offered here, and are not listed; neither are claims.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nodeagent.pods.counts import PodCounts
from nodeagent.pods.decide.phase import FINAL_PHASES
from nodeagent.pods.devices import podresources_pb2 as pb
from nodeagent.pods.devices.assignment import Devices
from nodeagent.pods.registry import PodRegistry
from orch.component import grpc_channel, grpc_server
from orch.component.grpc_server import Refused, UnixServer
from orch.wire.podrules.podspec import is_sidecar
from orch.wire.records.pods import Container, Pod

FOLDER, SOCKET = "pod-resources", "kubelet.sock"  # as those who ask know it
PER_S, BURST = 100, 10
ANSWER_S = 10.0
_REQUEST_BYTES = 16 * 1024
_EARLIER = "v1alpha1.PodResourcesLister"


class PodResources:
    """`root_dir` is the agent's."""

    def __init__(
        self, root_dir: str, devices: Devices, registry: PodRegistry, counts: PodCounts
    ) -> None:
        self._devices = devices
        self._registry = registry
        self._requests: Counter[str] = counts.pod_resources_requests
        self._errors: Counter[str] = counts.pod_resources_errors
        path = Path(root_dir, FOLDER, SOCKET)
        self._server = UnixServer(path, self._add_to, message_bytes=_REQUEST_BYTES)
        self._free, self._counted_s = float(BURST), 0.0

    async def run(self) -> None:
        """Serve until cancelled."""
        await self._server.serve("nobody can ask for the devices of pods")

    async def List(self, request: Any, context: Any) -> Any:
        """The devices of every pod that is not over; as the API names it."""
        return await self._answer("list", self._list(), context)

    async def Get(self, request: Any, context: Any) -> Any:
        """The devices of one pod."""
        return await self._answer("get", self._get(request), context)

    async def GetAllocatableResources(self, request: Any, context: Any) -> Any:
        """All healthy devices, whoever has them."""
        return await self._answer("get_allocatable", self._allocatable(), context)

    def _add_to(self, server: Any) -> None:
        from nodeagent.pods.devices import podresources_pb2_grpc as rpc  # loads grpc

        rpc.add_PodResourcesListerServicer_to_server(self, server)
        grpc = grpc_channel.load()
        listing = grpc.unary_unary_rpc_method_handler(
            self.List,
            request_deserializer=pb.ListPodResourcesRequest.FromString,
            response_serializer=pb.ListPodResourcesResponse.SerializeToString,
        )
        earlier = grpc.method_handlers_generic_handler(_EARLIER, {"List": listing})
        server.add_generic_rpc_handlers((earlier,))

    async def _answer(self, method: str, work: Any, context: Any) -> Any:
        self._requests[method] += 1
        try:
            return await grpc_server.answer(context, self._in_rate(work), limit_s=ANSWER_S)
        except BaseException:
            self._errors[method] += 1
            raise

    async def _in_rate(self, work: Any) -> Any:
        now_s = asyncio.get_running_loop().time()
        self._free = min(BURST, self._free + (now_s - self._counted_s) * PER_S)
        self._counted_s = now_s
        if self._free < 1:
            work.close()
            raise Refused("RESOURCE_EXHAUSTED", "rejected by rate limit")
        self._free -= 1
        return await work

    async def _list(self) -> Any:
        self._require_known(pods=self._registry.complete)
        self._devices.settle()
        live = (pod for pod in self._registry.pods() if pod.status.phase not in FINAL_PHASES)
        return pb.ListPodResourcesResponse(pod_resources=[self._pod(pod) for pod in live])

    def _require_known(self, *, pods: bool) -> None:
        """After a start no pods, and pods without devices, would be a wrong answer."""
        if not (pods and self._devices.is_loaded):
            text = "the agent has not read its pods and their devices yet; ask again"
            raise Refused("UNAVAILABLE", text)

    async def _get(self, request: Any) -> Any:
        pod = self._registry.find(request.pod_namespace, request.pod_name)
        self._require_known(pods=self._registry.complete or pod is not None)
        if pod is None:
            text = f"pod {request.pod_name} in namespace {request.pod_namespace} not found"
            raise Refused("UNKNOWN", text)
        return pb.GetPodResourcesResponse(pod_resources=self._pod(pod))

    async def _allocatable(self) -> Any:
        inventory = self._devices.inventory
        devices = {
            resource: {
                one: device.numa_nodes
                for one in inventory.healthy(resource) or ()
                if (device := inventory.device(resource, one))
            }
            for resource in inventory.resources()
        }
        listed = [part for resource, nodes in devices.items() for part in _parts(resource, nodes)]
        return pb.AllocatableResourcesResponse(devices=listed)

    def _pod(self, pod: Pod) -> Any:
        inits = [c for c in pod.spec.initContainers or () if is_sidecar(c)]
        return pb.PodResources(
            name=pod.metadata.name,
            namespace=pod.metadata.namespace or "",
            containers=[self._container(pod, c) for c in (*inits, *pod.spec.containers)],
        )

    def _container(self, pod: Pod, container: Container) -> Any:
        held = self._devices.book.of(pod.metadata.uid or "", container.name)
        return pb.ContainerResources(
            name=container.name,
            devices=[
                part
                for resource, allocation in sorted(held.items())
                for part in _parts(resource, allocation.numa_nodes)
            ],
        )


def _parts(resource: str, nodes: Mapping[str, tuple[int, ...]]) -> Iterator[Any]:
    """The devices of a resource, those at the same NUMA nodes together."""
    together: defaultdict[tuple[int, ...], list[str]] = defaultdict(list)
    for one, at in nodes.items():
        together[at].append(one)
    for at, ids in sorted(together.items()):
        yield pb.ContainerDevices(
            resource_name=resource,
            device_ids=sorted(ids),
            topology=pb.TopologyInfo(nodes=[pb.NUMANode(ID=node) for node in at]) if at else None,
        )
