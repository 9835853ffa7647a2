"""The connection to one device plugin: calls with a time limit, and the stream of its devices.

The plugin is another program, and any answer of it may be late, huge or wrong: PluginFailed is all
that comes of it. Answers are read beside the event loop; what they mean is in `answers`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from nodeagent.pods.devices import answers
from nodeagent.pods.devices import deviceplugin_pb2 as pb
from nodeagent.pods.devices.allocation import Grant
from nodeagent.pods.devices.answers import AnswerError
from nodeagent.pods.devices.inventory import Device
from orch.component.grpc_channel import CallFailed, Channel, messages
from orch.component.grpc_server import socket_target
from orch.component.process import loops
from orch.component.process.threads import run_in_thread

T = TypeVar("T")

OPTIONS_S = 10.0
PREFERRED_S = 10.0
ALLOCATE_S = 60.0
PRE_START_S = 30.0
MESSAGE_BYTES = 4 * 1024 * 1024
_CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.default_authority", "localhost"),
    ("grpc.use_local_subchannel_pool", 1),  # else the former plugin's connection is used again
)


class PluginFailed(Exception):
    """The plugin cannot be reached, refuses, or answers what it must not."""


@dataclass(frozen=True, slots=True)
class PluginOptions:
    """What the plugin wants to be asked."""

    pre_start: bool = False
    preferred: bool = False


class DevicePlugin:
    """Of one resource, at the socket `endpoint` in the folder that the descriptor is of."""

    def __init__(self, resource: str, endpoint: str, folder: int) -> None:
        self.resource = resource
        self.endpoint = endpoint
        self.options = PluginOptions()
        self._folder = folder
        target = socket_target(folder, endpoint)
        self._channel = Channel(target, _stubs, options=_CHANNEL_OPTIONS)

    async def connect(self) -> None:
        """Ask for the options; PluginFailed when nothing answers there."""
        if not await run_in_thread(self._is_socket, name="plugin socket"):
            raise PluginFailed(
                f"failed to dial device plugin: there is no socket {self.endpoint} in the folder;"
                " a plugin serves before it registers"
            )
        try:
            found = await self._call("GetDevicePluginOptions", pb.Empty(), OPTIONS_S)
            self.options = await self._read("GetDevicePluginOptions", _options, found)
        except PluginFailed as error:
            raise PluginFailed(f"failed to get device plugin options: {error}") from None

    async def is_alive(self) -> bool:
        try:
            await self._call("GetDevicePluginOptions", pb.Empty(), OPTIONS_S)
        except PluginFailed:
            return False
        return True

    async def lists(self) -> AsyncIterator[bytes]:
        """All devices at every change, for `devices`, until the plugin ends it. PluginFailed."""
        try:
            with self._channel.failures():
                async for found in messages(self._channel.method("ListAndWatch")(pb.Empty())):
                    yield found
        except CallFailed as error:
            raise PluginFailed(f"ListAndWatch of {self.resource}: {error}") from error

    def devices(self, listed: bytes) -> Mapping[str, Device]:
        """By id; PluginFailed. It may take half a second of a processor."""
        try:
            return answers.devices(listed)
        except AnswerError as error:
            raise PluginFailed(f"ListAndWatch of {self.resource}: {error}") from error

    async def preferred(
        self, free: Sequence[str], taken: Sequence[str], count: int
    ) -> Sequence[str]:
        """Which of `free` it would give beside `taken`, `count` in all; () for no matter."""
        request = pb.PreferredAllocationRequest(
            container_requests=[
                pb.ContainerPreferredAllocationRequest(
                    available_deviceIDs=[*taken, *free],
                    must_include_deviceIDs=taken,
                    allocation_size=count,
                )
            ]
        )
        found = await self._call("GetPreferredAllocation", request, PREFERRED_S)
        return await self._read("GetPreferredAllocation", answers.preferred, found)

    async def allocate(self, ids: Collection[str]) -> Grant:
        """What a container gets with the devices. A cancelled caller waits for the answer."""
        requests = [pb.ContainerAllocateRequest(devices_ids=sorted(ids))]
        call = self._call("Allocate", pb.AllocateRequest(container_requests=requests), ALLOCATE_S)
        found = await loops.finish(call, name=f"allocate {self.resource}")
        return await self._read("Allocate", answers.grant, found)

    async def pre_start(self, ids: Collection[str]) -> None:
        """Tell the plugin that a container with these devices is about to start."""
        request = pb.PreStartContainerRequest(devices_ids=sorted(ids))
        call = self._call("PreStartContainer", request, PRE_START_S)
        await loops.finish(call, name=f"prepare {self.resource}")

    async def close(self) -> None:
        await self._channel.close()

    async def _call(self, name: str, request: Any, limit_s: float) -> bytes:
        try:
            found: bytes = await self._channel.call(name, request, limit_s)
        except CallFailed as error:
            raise PluginFailed(f"{name} of the plugin of {self.resource}: {error}") from error
        return found

    async def _read(self, name: str, read: Callable[[bytes], T], found: bytes) -> T:
        try:
            return await run_in_thread(partial(read, found), name="device plugin's answer")
        except AnswerError as error:
            raise PluginFailed(f"{name} of the plugin of {self.resource}: {error}") from error

    def _is_socket(self) -> bool:
        """A link may lead anywhere, and is none."""
        try:
            status = os.stat(self.endpoint, dir_fd=self._folder, follow_symlinks=False)
        except OSError:
            return False
        return stat.S_ISSOCK(status.st_mode)


def _options(found: bytes) -> PluginOptions:
    message = answers.decoded(pb.DevicePluginOptions, found)
    return PluginOptions(message.pre_start_required, message.get_preferred_allocation_available)


@dataclass(frozen=True, slots=True)
class _Undecoded:
    """A grpc channel whose answers stay bytes."""

    channel: Any

    def unary_unary(self, path: str, *, request_serializer: Any, **_: Any) -> Any:
        return self.channel.unary_unary(path, request_serializer=request_serializer)

    def unary_stream(self, path: str, *, request_serializer: Any, **_: Any) -> Any:
        return self.channel.unary_stream(path, request_serializer=request_serializer)


def _stubs(channel: Any) -> Sequence[Any]:
    from nodeagent.pods.devices import deviceplugin_pb2_grpc as rpc  # loads grpc

    return (rpc.DevicePluginStub(_Undecoded(channel)),)
