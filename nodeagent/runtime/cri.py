"""The container runtime over CRI v1 gRPC on a unix socket.

Owns the channel, the deadline of every call and the translation of failures. `cri_requests` and
`cri_responses` know the meaning of the messages. The channel is created at the first call and
reconnects on its own: calls fail at once while the runtime is away, and succeed within a second of
its return.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import math
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from typing import Any

from nodeagent.runtime import cri_pb2 as pb
from nodeagent.runtime import cri_requests, cri_responses, cri_usage
from nodeagent.runtime.base import (
    Container,
    ContainerDetail,
    ContainerEvent,
    ContainerSpec,
    ContainerUsage,
    ExecResult,
    FilesystemUsage,
    Image,
    LinuxResources,
    Login,
    RuntimeAnswerTooLarge,
    RuntimeCallError,
    RuntimeCondition,
    RuntimeUnavailable,
    RuntimeVersion,
    Sandbox,
    SandboxDetail,
    SandboxSpec,
    SandboxUsage,
)
from nodeagent.runtime.endpoint import StreamAddress, StreamOptions, socket_path, stream_address
from nodeagent.runtime.isolation import RuntimeFeatures
from orch.component.grpc_channel import (
    CLOSED,
    CallFailed,
    Channel,
    Observe,
    messages,
    observed,
)
from orch.component.process import loops
from orch.component.process.once_log import OnceLog
from orch.component.process.threads import run_in_thread

log = logging.getLogger(__name__)

READ_TIMEOUT_S = 10.0  # lists, states, statistics: the runtime has them in memory
PULL_TIMEOUT_S = 3600.0  # images may be large; the runtime gives up when a download stalls
LONGEST_S = 2**31 - 1  # that is passed on: longer deadlines are over at once, here and there
_CHANNEL_OPTIONS = (
    ("grpc.default_authority", "localhost"),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 10_000),  # what a busy runtime may take to greet
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.max_receive_message_length", 80 * 1024 * 1024),  # CRI-O's bound; containerd's is 16 MiB
    ("grpc.service_config", cri_responses.BOUNDS),
    ("grpc.use_local_subchannel_pool", 1),  # the connection ends with this channel
    ("grpc.http2.bdp_probe", 0),  # bandwidth probes: a third of its threads' CPU here
)


class CriRuntime:
    """A `ContainerRuntime` at `endpoint`: `unix:///path/to.sock`, or the path alone.

    `timeout_s` is the deadline of calls that change something; every finished call is reported to
    `observe`. ValueError: not a unix socket.
    """

    def __init__(
        self, endpoint: str, *, timeout_s: float = 120.0, observe: Observe = lambda *_: None
    ) -> None:
        self.endpoint = endpoint
        self._channel = Channel(f"unix:{socket_path(endpoint)}", _stubs, options=_CHANNEL_OPTIONS)
        self._timeout_s = timeout_s
        self._observe = observe
        self._too_large = OnceLog(log)  # lists of sandboxes and containers
        self._left_stops: dict[str, asyncio.Task[Any]] = {}  # by container; their callers are gone
        self._made: set[str] = set()  # sandboxes, until they are removed
        self._sandboxes = cri_responses.RowCache(cri_responses.sandbox)
        self._containers = cri_responses.RowCache(cri_responses.container)

    async def version(self) -> RuntimeVersion:
        return cri_responses.version(await self._read("Version", pb.VersionRequest(version="v1")))

    async def conditions(self) -> Sequence[RuntimeCondition]:
        return cri_responses.conditions(await self._read("Status", pb.StatusRequest()))

    async def features(self) -> RuntimeFeatures:
        return cri_responses.features(await self._read("Status", pb.StatusRequest()))

    # ---- sandboxes

    async def run_sandbox(self, spec: SandboxSpec) -> str:
        with _writing("RunPodSandbox"):
            request = pb.RunPodSandboxRequest(
                config=cri_requests.sandbox_config(spec), runtime_handler=spec.runtime_handler
            )
        return await loops.finish(self._run_sandbox(request), name="runtime RunPodSandbox")

    async def _run_sandbox(self, request: Any) -> str:
        """Known even if its caller is cancelled."""
        timeout_s = 2 * self._timeout_s  # a sandbox also waits for the network plugins
        response = await self._call("RunPodSandbox", request, timeout_s)
        self._made.add(sandbox_id := str(response.pod_sandbox_id))
        return sandbox_id

    async def stop_sandbox(self, sandbox_id: str) -> None:
        await self._write("StopPodSandbox", pb.StopPodSandboxRequest(pod_sandbox_id=sandbox_id))

    async def remove_sandbox(self, sandbox_id: str) -> None:
        await self._write("RemovePodSandbox", pb.RemovePodSandboxRequest(pod_sandbox_id=sandbox_id))
        self._made.discard(sandbox_id)

    async def list_sandboxes(self) -> Sequence[Sandbox]:
        """All of them; where they exceed a message, those that are known or have containers."""
        try:
            response = await self._read("ListPodSandbox", pb.ListPodSandboxRequest())
        except RuntimeAnswerTooLarge as error:
            self._too_large.failed("its sandboxes are listed one by one: %s", error, cause="size")
            return self._sandboxes.of(await self._sandboxes_singly())
        self._too_large.recovered()
        return self._sandboxes.of(response.items)

    async def _sandboxes_singly(self) -> list[Any]:
        containers = await self._read("ListContainers", pb.ListContainersRequest())
        holding = {item.pod_sandbox_id for item in containers.containers}
        rows: list[Any] = []
        for sandbox_id in {*self._made, *self._sandboxes.ids, *holding}:
            chosen = pb.PodSandboxFilter(id=sandbox_id)
            response = await self._read("ListPodSandbox", pb.ListPodSandboxRequest(filter=chosen))
            rows.extend(response.items)
        return rows

    async def sandbox_detail(self, sandbox_id: str) -> SandboxDetail:
        request = pb.PodSandboxStatusRequest(pod_sandbox_id=sandbox_id, verbose=True)
        return cri_responses.sandbox_detail(await self._describe("PodSandboxStatus", request))

    # ---- containers

    async def create_container(
        self, sandbox_id: str, spec: ContainerSpec, sandbox: SandboxSpec
    ) -> str:
        make = functools.partial(cri_requests.creation, sandbox_id, spec, sandbox)
        return await loops.finish(self._create_container(make), name="runtime CreateContainer")

    async def _create_container(self, make: Callable[[], Any]) -> str:
        with _writing("CreateContainer"):
            request = await run_in_thread(make, name="request for a container")
        return str((await self._call("CreateContainer", request, self._timeout_s)).container_id)

    async def start_container(self, container_id: str) -> None:
        await self._write("StartContainer", pb.StartContainerRequest(container_id=container_id))

    async def stop_container(self, container_id: str, *, timeout_s: int) -> None:
        """A call whose caller was cancelled goes on until the next for the same container, which
        does its work: a pod that is deleted with ever less grace would have thousands of them.
        """
        if left := self._left_stops.pop(container_id, None):
            left.cancel()
        timeout_s = min(timeout_s, LONGEST_S)
        request = pb.StopContainerRequest(container_id=container_id, timeout=timeout_s)
        call = self._call("StopContainer", request, timeout_s + self._timeout_s)
        task = loops.spawn(call, name="runtime StopContainer")
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                self._left_stops[container_id] = task
                task.add_done_callback(functools.partial(self._forget_stop, container_id))
            raise

    def _forget_stop(self, container_id: str, task: asyncio.Task[Any]) -> None:
        if self._left_stops.get(container_id) is task:
            del self._left_stops[container_id]
        loops.retrieve_error(task)

    async def remove_container(self, container_id: str) -> None:
        await self._write("RemoveContainer", pb.RemoveContainerRequest(container_id=container_id))

    async def list_containers(self) -> Sequence[Container]:
        found = await self._of_all("ListContainers", pb.ListContainersRequest())
        return self._containers.of(item for some in found for item in some.containers)

    async def _of_all(self, operation: str, request: Any) -> list[Any]:
        """One answer, or one for each sandbox; RuntimeAnswerTooLarge if some might be missed."""
        try:
            found = [await self._read(operation, request)]
        except RuntimeAnswerTooLarge as error:
            text = "its containers are listed by sandbox: %s"
            self._too_large.failed(text, error, subject=operation, cause="size")
            found = []
            for sandbox in await self.list_sandboxes():
                request.filter.pod_sandbox_id = sandbox.id
                found.append(await self._read(operation, request))
        else:
            self._too_large.recovered(subject=operation)
        return found

    async def container_detail(self, container_id: str) -> ContainerDetail:
        request = pb.ContainerStatusRequest(container_id=container_id, verbose=True)
        return cri_responses.container_detail(await self._describe("ContainerStatus", request))

    async def checkpoint_container(
        self, container_id: str, *, location: str, timeout_s: float
    ) -> None:
        """Make the runtime write an archive to `location`; `timeout_s` limits both sides."""
        request = pb.CheckpointContainerRequest(
            container_id=container_id, location=location, timeout=math.ceil(timeout_s)
        )
        await self._call("CheckpointContainer", request, timeout_s)

    async def resume_container(self, container_id: str) -> bool:
        try:
            await self._read("Resume", pb.StartContainerRequest(container_id=container_id))
        except RuntimeCallError as error:
            if cri_responses.is_not_paused(error):
                return False
            raise
        return True

    async def exec_sync(
        self, container_id: str, command: Sequence[str], *, timeout_s: float
    ) -> ExecResult:
        """Run `command` to its end; `timeout_s` is rounded up to CRI's whole seconds.

        RuntimeTimeout when the command did not end in time and the runtime killed it.
        """
        whole_s = max(1, math.ceil(min(timeout_s, LONGEST_S)))
        request = pb.ExecSyncRequest(container_id=container_id, cmd=command, timeout=whole_s)
        response = await self._call("ExecSync", request, request.timeout + READ_TIMEOUT_S)
        return cri_responses.exec_result(response)

    async def open_exec(
        self, container_id: str, command: Sequence[str], streams: StreamOptions
    ) -> StreamAddress:
        wanted = dataclasses.asdict(streams)
        request = pb.ExecRequest(container_id=container_id, cmd=command, **wanted)
        return await self._stream("Exec", request)

    async def open_attach(self, container_id: str, streams: StreamOptions) -> StreamAddress:
        request = pb.AttachRequest(container_id=container_id, **dataclasses.asdict(streams))
        return await self._stream("Attach", request)

    async def open_port_forward(self, sandbox_id: str, ports: Sequence[int]) -> StreamAddress:
        request = pb.PortForwardRequest(pod_sandbox_id=sandbox_id, port=ports)
        return await self._stream("PortForward", request)

    async def _stream(self, operation: str, request: Any) -> StreamAddress:
        response = await self._read(operation, request)
        try:
            return stream_address(response.url)
        except ValueError as error:
            text = f"the runtime's address for streams is not used: {error}"
            raise RuntimeCallError(operation, text) from None

    async def update_resources(self, container_id: str, resources: LinuxResources) -> None:
        with _writing("UpdateContainerResources"):
            request = pb.UpdateContainerResourcesRequest(
                container_id=container_id, linux=cri_requests.resources(resources)
            )
        await self._write("UpdateContainerResources", request)

    async def reopen_log(self, container_id: str) -> None:
        request = pb.ReopenContainerLogRequest(container_id=container_id)
        await self._write("ReopenContainerLog", request)

    async def container_usage(self, container_id: str = "") -> Sequence[ContainerUsage]:
        request = pb.ListContainerStatsRequest()
        if container_id:
            request.filter.id = container_id
        found = await self._of_all("ListContainerStats", request)
        return tuple(cri_usage.container_usage(item) for some in found for item in some.stats)

    async def sandbox_usage(self) -> Sequence[SandboxUsage]:
        response = await self._read("ListPodSandboxStats", pb.ListPodSandboxStatsRequest())
        return tuple(cri_usage.sandbox_usage(item) for item in response.stats)

    async def events(self) -> AsyncGenerator[ContainerEvent, None]:
        """Has no deadline; a broken connection ends it with RuntimeUnavailable."""
        with self._translating("GetContainerEvents"):
            call = self._channel.method("GetContainerEvents")(pb.GetEventsRequest())
            try:
                async for response in messages(call):
                    if event := cri_responses.container_event(response):
                        yield event
            finally:
                call.cancel()

    # ---- images

    async def image(self, reference: str) -> Image | None:
        request = pb.ImageStatusRequest(image=cri_requests.image_spec(reference))
        response = await self._read("ImageStatus", request)
        return cri_responses.image(response.image) if response.HasField("image") else None

    async def images(self) -> Sequence[Image]:
        response = await self._read("ListImages", pb.ListImagesRequest())
        return tuple(cri_responses.image(item) for item in response.images)

    async def pull_image(self, reference: str, login: Login | None = None) -> str:
        with _writing("PullImage"):
            request = cri_requests.pull(reference, login)
        return str((await self._call("PullImage", request, PULL_TIMEOUT_S)).image_ref)

    async def remove_image(self, reference: str) -> None:
        request = pb.RemoveImageRequest(image=cri_requests.image_spec(reference))
        await self._write("RemoveImage", request)

    async def image_filesystems(self) -> Sequence[FilesystemUsage]:
        response = await self._read("ImageFsInfo", pb.ImageFsInfoRequest())
        return cri_usage.image_filesystems(response)

    # ---- the connection

    async def close(self) -> None:
        """Close the connection for good; calls in flight end with RuntimeUnavailable."""
        await self._channel.close()

    async def _describe(self, operation: str, request: Any) -> Any:
        """The verbose answer, which has the process id, or if that is too large the plain one."""
        try:
            return await self._read(operation, request)
        except RuntimeAnswerTooLarge:
            request.verbose = False
            return await self._read(operation, request)

    async def _read(self, operation: str, request: Any) -> Any:
        return await self._call(operation, request, READ_TIMEOUT_S)

    async def _write(self, operation: str, request: Any, timeout_s: float | None = None) -> Any:
        """A call that is not cancelled with its caller, who waits for its end (`loops.finish`)."""
        call = self._call(operation, request, timeout_s or self._timeout_s)
        return await loops.finish(call, name=f"runtime {operation}")

    async def _call(self, operation: str, request: Any, timeout_s: float) -> Any:
        due_s = asyncio.get_running_loop().time() + timeout_s
        with observed(self._observe, operation), self._translating(operation, due_s=due_s):
            response = await self._channel.call(operation, request, timeout_s)
            cri_responses.require_answer(operation, request, response)
            return response

    @contextlib.contextmanager
    def _translating(self, operation: str, *, due_s: float = math.inf) -> Iterator[None]:
        """Translate failures into the agent's errors; `due_s` is the deadline in loop time."""
        try:
            with self._channel.failures():
                yield
        except CallFailed as failure:
            if failure.code == CLOSED:
                text = f"the connection to {self.endpoint} was closed"
                raise RuntimeUnavailable(operation, text) from failure
            overdue = asyncio.get_running_loop().time() >= due_s
            raise cri_responses.from_status(
                operation, failure.code, failure.details, overdue=overdue
            ) from failure


@contextlib.contextmanager
def _writing(operation: str) -> Iterator[None]:
    """RuntimeCallError for what no message can hold: a surrogate in a text, a number too large."""
    try:
        yield
    except ValueError as error:
        raise RuntimeCallError(operation, f"the request cannot be written: {error}") from None


def _stubs(channel: Any) -> tuple[Any, ...]:
    from nodeagent.runtime import cri_pb2_grpc as rpc  # loads grpc

    return rpc.RuntimeServiceStub(channel), rpc.ImageServiceStub(channel), _ContainerdTasks(channel)


class _ContainerdTasks:
    """A call that CRI lacks, on containerd's own API, which is served on the same socket.

    Its ResumeTaskRequest is a string, field 1, like StartContainerRequest; its response is empty.
    Other runtimes do not know the service.
    """

    def __init__(self, channel: Any) -> None:
        resume = channel.unary_unary(
            "/containerd.services.tasks.v1.Tasks/Resume",
            request_serializer=pb.StartContainerRequest.SerializeToString,
            response_deserializer=pb.StartContainerResponse.FromString,
        )
        namespace = (("containerd-namespace", "k8s.io"),)  # that of its CRI containers
        self.Resume = functools.partial(resume, metadata=namespace)
