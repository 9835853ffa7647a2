"""A CRI v1 server on a unix socket with a FakeRuntime behind it.

Methods are named as in CRI (`CheckpointContainer`): `refuse` answers them with a status, `hang`
never answers until the server stops, `delay` answers late, `garble` with bytes that are no message.
`stop` cuts every connection at once, as a killed runtime does; `start` serves again on the same
socket.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc

from nodeagent.runtime import base
from nodeagent.runtime import cri_pb2 as pb
from nodeagent.runtime import cri_pb2_grpc as rpc
from orch.component.secret import Secret
from tests.fakes import cri_convert
from tests.fakes.runtime import FakeRuntime

_CODES: tuple[tuple[type[base.RuntimeCallError], Any], ...] = (
    (base.RuntimeNotFound, grpc.StatusCode.NOT_FOUND),
    (base.RuntimeNotSupported, grpc.StatusCode.UNIMPLEMENTED),
    (base.RuntimeTimeout, grpc.StatusCode.DEADLINE_EXCEEDED),
    (base.RuntimeUnavailable, grpc.StatusCode.UNAVAILABLE),
    (base.RuntimeCallError, grpc.StatusCode.UNKNOWN),
)

Fault = Callable[[Any], Awaitable[None]]


class CriServer:
    def __init__(self, runtime: FakeRuntime, socket: Path) -> None:
        self.runtime = runtime
        self.endpoint = f"unix://{socket}"
        self.requests: list[tuple[str, Any, float | None]] = []  # method, message, seconds left
        self.faults: dict[str, Fault] = {}
        self.garbled: dict[str, bytes] = {}
        self._socket = socket
        self._server: Any = None

    async def start(self) -> None:
        self._socket.unlink(missing_ok=True)
        self._server = grpc.aio.server(interceptors=[_Faults(self)])
        rpc.add_RuntimeServiceServicer_to_server(_Runtime(self.runtime), self._server)
        rpc.add_ImageServiceServicer_to_server(_Images(self.runtime), self._server)
        self._server.add_generic_rpc_handlers((_containerd_tasks(self.runtime),))
        self._server.add_insecure_port(f"unix:{self._socket}")
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    def refuse(self, method: str, code: Any, details: str) -> None:
        async def fault(context: Any) -> None:
            await context.abort(code, details)

        self.faults[method] = fault

    def hang(self, method: str) -> None:
        async def fault(_context: Any) -> None:
            await asyncio.Event().wait()

        self.faults[method] = fault

    def delay(self, method: str, delay_s: float) -> None:
        async def fault(_context: Any) -> None:
            await asyncio.sleep(delay_s)

        self.faults[method] = fault

    def garble(self, method: str, answer: bytes = b"\xff") -> None:
        self.garbled[method] = answer

    def heal(self) -> None:
        self.faults.clear()
        self.garbled.clear()

    def serializer(self, method: str, serialize: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
        return lambda answer: self.garbled.get(method) or serialize(answer)


def _containerd_tasks(runtime: FakeRuntime) -> Any:
    """The part of containerd's own API that the agent uses beside CRI."""

    async def resume(request: Any, context: Any) -> Any:
        if not await runtime.resume_container(request.container_id):
            raise base.RuntimeCallError("Resume", "cannot resume a running process")
        return pb.StartContainerResponse()

    handler = grpc.unary_unary_rpc_method_handler(
        resume,
        pb.StartContainerRequest.FromString,
        pb.StartContainerResponse.SerializeToString,
    )
    return grpc.method_handlers_generic_handler(
        "containerd.services.tasks.v1.Tasks", {"Resume": handler}
    )


class _Faults(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Records every request, applies the faults, and turns the fake's errors into statuses."""

    def __init__(self, server: CriServer) -> None:
        self._server = server

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        handler = await continuation(details)
        if handler is None:
            return None
        method = details.method.rpartition("/")[2]
        if handler.unary_stream:
            return self._streaming(method, handler)

        async def answer(request: Any, context: Any) -> Any:
            self._server.requests.append((method, request, context.time_remaining()))
            if fault := self._server.faults.get(method):
                await fault(context)
            try:
                return await handler.unary_unary(request, context)
            except base.RuntimeCallError as error:
                code = next(code for kind, code in _CODES if isinstance(error, kind))
                await context.abort(code, str(error))

        return grpc.unary_unary_rpc_method_handler(
            answer, handler.request_deserializer, self._serializer(method, handler)
        )

    def _serializer(self, method: str, handler: Any) -> Callable[[Any], bytes]:
        return self._server.serializer(method, handler.response_serializer)

    def _streaming(self, method: str, handler: Any) -> Any:
        async def answers(request: Any, context: Any) -> AsyncIterator[Any]:
            self._server.requests.append((method, request, context.time_remaining()))
            if fault := self._server.faults.get(method):
                await fault(context)
            try:
                async for item in handler.unary_stream(request, context):
                    yield item
            except base.RuntimeCallError as error:
                code = next(code for kind, code in _CODES if isinstance(error, kind))
                await context.abort(code, str(error))

        return grpc.unary_stream_rpc_method_handler(
            answers, handler.request_deserializer, self._serializer(method, handler)
        )


class _Runtime(rpc.RuntimeServiceServicer):  # type: ignore[misc]
    def __init__(self, runtime: FakeRuntime) -> None:
        self._runtime = runtime

    async def Version(self, request: Any, context: Any) -> Any:
        known = await self._runtime.version()
        return pb.VersionResponse(
            version="0.1.0",
            runtime_name=known.name,
            runtime_version=known.version,
            runtime_api_version=known.api_version,
        )

    async def Status(self, request: Any, context: Any) -> Any:
        rows = [
            pb.RuntimeCondition(type=c.type, status=c.status, reason=c.reason, message=c.message)
            for c in await self._runtime.conditions()
        ]
        features = self._runtime.runtime_features
        return pb.StatusResponse(
            status=pb.RuntimeStatus(conditions=rows),
            runtime_handlers=[cri_convert.handler(name, features) for name in features.handlers],
            features=pb.RuntimeFeatures(supplemental_groups_policy=features.strict_groups),
        )

    async def RunPodSandbox(self, request: Any, context: Any) -> Any:
        spec = replace(
            cri_convert.sandbox_spec(request.config), runtime_handler=request.runtime_handler
        )
        sandbox_id = await self._runtime.run_sandbox(spec)
        return pb.RunPodSandboxResponse(pod_sandbox_id=sandbox_id)

    async def StopPodSandbox(self, request: Any, context: Any) -> Any:
        await self._runtime.stop_sandbox(request.pod_sandbox_id)
        return pb.StopPodSandboxResponse()

    async def RemovePodSandbox(self, request: Any, context: Any) -> Any:
        await self._runtime.remove_sandbox(request.pod_sandbox_id)
        return pb.RemovePodSandboxResponse()

    async def PodSandboxStatus(self, request: Any, context: Any) -> Any:
        detail = await self._runtime.sandbox_detail(request.pod_sandbox_id)
        return cri_convert.sandbox_status(detail)

    async def ListPodSandbox(self, request: Any, context: Any) -> Any:
        rows = [
            cri_convert.sandbox_row(row)
            for row in await self._runtime.list_sandboxes()
            if request.filter.id in ("", row.id)
        ]
        return pb.ListPodSandboxResponse(items=rows)

    async def CreateContainer(self, request: Any, context: Any) -> Any:
        container_id = await self._runtime.create_container(
            request.pod_sandbox_id,
            cri_convert.container_spec(request.config),
            cri_convert.sandbox_spec(request.sandbox_config),
        )
        return pb.CreateContainerResponse(container_id=container_id)

    async def StartContainer(self, request: Any, context: Any) -> Any:
        await self._runtime.start_container(request.container_id)
        return pb.StartContainerResponse()

    async def StopContainer(self, request: Any, context: Any) -> Any:
        await self._runtime.stop_container(request.container_id, timeout_s=request.timeout)
        return pb.StopContainerResponse()

    async def RemoveContainer(self, request: Any, context: Any) -> Any:
        await self._runtime.remove_container(request.container_id)
        return pb.RemoveContainerResponse()

    async def ListContainers(self, request: Any, context: Any) -> Any:
        wanted = request.filter.pod_sandbox_id
        listed = await self._runtime.list_containers()
        rows = [row for row in listed if wanted in ("", row.sandbox_id)]
        return pb.ListContainersResponse(containers=[cri_convert.container_row(r) for r in rows])

    async def ContainerStatus(self, request: Any, context: Any) -> Any:
        detail = await self._runtime.container_detail(request.container_id)
        return cri_convert.container_status(detail)

    async def UpdateContainerResources(self, request: Any, context: Any) -> Any:
        wanted = cri_convert.resources(request.linux)
        await self._runtime.update_resources(request.container_id, wanted)
        return pb.UpdateContainerResourcesResponse()

    async def ReopenContainerLog(self, request: Any, context: Any) -> Any:
        await self._runtime.reopen_log(request.container_id)
        return pb.ReopenContainerLogResponse()

    async def ExecSync(self, request: Any, context: Any) -> Any:
        result = await self._runtime.exec_sync(
            request.container_id, tuple(request.cmd), timeout_s=request.timeout
        )
        return pb.ExecSyncResponse(
            stdout=result.stdout, stderr=result.stderr, exit_code=result.exit_code
        )

    async def Exec(self, request: Any, context: Any) -> Any:
        command, options = tuple(request.cmd), cri_convert.stream_options(request)
        address = await self._runtime.open_exec(request.container_id, command, options)
        return pb.ExecResponse(url=cri_convert.stream_url(address))

    async def Attach(self, request: Any, context: Any) -> Any:
        options = cri_convert.stream_options(request)
        address = await self._runtime.open_attach(request.container_id, options)
        return pb.AttachResponse(url=cri_convert.stream_url(address))

    async def PortForward(self, request: Any, context: Any) -> Any:
        ports = tuple(request.port)
        address = await self._runtime.open_port_forward(request.pod_sandbox_id, ports)
        return pb.PortForwardResponse(url=cri_convert.stream_url(address))

    async def CheckpointContainer(self, request: Any, context: Any) -> Any:
        await self._runtime.checkpoint_container(
            request.container_id, location=request.location, timeout_s=request.timeout
        )
        return pb.CheckpointContainerResponse()

    async def GetContainerEvents(self, request: Any, context: Any) -> AsyncIterator[Any]:
        async with contextlib.aclosing(self._runtime.events()) as events:
            async for event in events:
                yield cri_convert.container_event(event)

    async def ListContainerStats(self, request: Any, context: Any) -> Any:
        wanted = request.filter.pod_sandbox_id
        listed = await self._runtime.list_containers()
        held = {row.id for row in listed if wanted in ("", row.sandbox_id)}
        usages = await self._runtime.container_usage(request.filter.id)
        usages = [usage for usage in usages if usage.id in held]
        return pb.ListContainerStatsResponse(stats=[cri_convert.container_stats(u) for u in usages])

    async def ListPodSandboxStats(self, request: Any, context: Any) -> Any:
        usages = await self._runtime.sandbox_usage()
        return pb.ListPodSandboxStatsResponse(stats=[cri_convert.sandbox_stats(u) for u in usages])


class _Images(rpc.ImageServiceServicer):  # type: ignore[misc]
    def __init__(self, runtime: FakeRuntime) -> None:
        self._runtime = runtime

    async def ListImages(self, request: Any, context: Any) -> Any:
        known = await self._runtime.images()
        return pb.ListImagesResponse(images=[cri_convert.image(image) for image in known])

    async def ImageStatus(self, request: Any, context: Any) -> Any:
        known = await self._runtime.image(request.image.image)
        return pb.ImageStatusResponse(image=cri_convert.image(known) if known else None)

    async def PullImage(self, request: Any, context: Any) -> Any:
        auth = request.auth
        login = (
            base.Login(auth.username, Secret(auth.password)) if request.HasField("auth") else None
        )
        reference = await self._runtime.pull_image(request.image.image, login)
        return pb.PullImageResponse(image_ref=reference)

    async def RemoveImage(self, request: Any, context: Any) -> Any:
        await self._runtime.remove_image(request.image.image)
        return pb.RemoveImageResponse()

    async def ImageFsInfo(self, request: Any, context: Any) -> Any:
        usages = await self._runtime.image_filesystems()
        return pb.ImageFsInfoResponse(image_filesystems=[cri_convert.filesystem(u) for u in usages])
