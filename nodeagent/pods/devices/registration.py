"""The plugins of this node: their registration, their devices as they list them, their end.

Serves `Registration` on a socket in the plugins' folder, from which sockets of an earlier time are
removed first: plugins see the new one and register again. The newest list of a plugin counts. A
plugin whose stream ends is gone.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from nodeagent.pods.devices import answers
from nodeagent.pods.devices import deviceplugin_pb2 as pb
from nodeagent.pods.devices.answers import AnswerError
from nodeagent.pods.devices.inventory import (
    GRACE_S,
    MAX_RESOURCES,
    Device,
    Inventory,
    TooManyDevices,
)
from nodeagent.pods.devices.plugin import DevicePlugin, PluginFailed
from orch.component import grpc_server
from orch.component.grpc_server import Refused, UnixServer
from orch.component.process import loops

log = logging.getLogger(__name__)

REGISTER_S = 30.0
MESSAGE_BYTES = 64 * 1024
_LIST_INTERVAL_S = 0.1  # a plugin that changes its mind more often is read more slowly
_PAUSES = 4  # as long as a list took to read: the loop waits for the interpreter meanwhile
_AGAIN_PER_S, _AT_ONCE = 10, MAX_RESOURCES  # registrations, each of which has its list read
_FILES_MAX = 10_000  # looked at in the folder

Changed = Callable[[str, Collection[str]], None]  # a resource, and the ids whose health changed


class Registration:
    """`on_change` is called after every change of the inventory, in the event loop."""

    def __init__(self, folder: Path, on_change: Changed, registrations: Counter[str]) -> None:
        self.inventory = Inventory()
        self._on_change = on_change
        self._registrations = registrations
        self._plugins: dict[str, DevicePlugin] = {}
        self._streams: dict[str, asyncio.Task[None]] = {}
        self._connecting: set[str] = set()
        self._reading = asyncio.Lock()
        self._rate = loops.RateLimit(_AGAIN_PER_S, _AT_ONCE)
        self._server = UnixServer(
            folder / answers.OWN_SOCKET,
            self._add_to,
            message_bytes=MESSAGE_BYTES,
            prepare=_remove_stale,
        )

    async def run(self) -> None:
        """Serve until cancelled."""
        try:
            await self._server.serve("device plugins cannot register")
        finally:
            await loops.cancel(*self._streams.values())

    def plugin(self, resource: str) -> DevicePlugin | None:
        """None while the plugin of the resource is gone."""
        return self._plugins.get(resource)

    async def Register(self, request: Any, context: Any) -> Any:
        """As the API names it."""
        return await grpc_server.answer(context, self._register(request), limit_s=REGISTER_S)

    def _add_to(self, server: Any) -> None:
        from nodeagent.pods.devices import deviceplugin_pb2_grpc as rpc  # loads grpc

        rpc.add_RegistrationServicer_to_server(self, server)

    async def _register(self, request: Any) -> Any:
        resource, endpoint = request.resource_name, request.endpoint
        try:
            answers.require_registration(request.version, resource, endpoint)
            await self._rate.begin()
            await self._connect(resource, endpoint)
        except (AnswerError, PluginFailed) as error:
            log.warning("the device plugin at %.100r is not registered: %s", endpoint, error)
            raise Refused("UNKNOWN", str(error)) from error
        return pb.Empty()

    async def _connect(self, resource: str, endpoint: str) -> None:
        if self._resources(resource) > MAX_RESOURCES:
            self.inventory.drop_gone()
        if self._resources(resource) > MAX_RESOURCES:
            raise PluginFailed(f"{MAX_RESOURCES} resources have plugins, and no more may register")
        if resource in self._connecting:
            raise PluginFailed(f"another plugin of {resource} is registering")
        self._connecting.add(resource)
        try:
            await self._require_unused(resource, endpoint)
            plugin = DevicePlugin(resource, endpoint, self._server.folder)
            try:
                await plugin.connect()
            except BaseException:
                await plugin.close()
                raise
            self._drop(resource)
            self._plugins[resource] = plugin
            self._count(resource)
            stream = loops.spawn(self._follow(plugin), name=f"device plugin {resource}")
            self._streams[resource] = stream
        finally:
            self._connecting.discard(resource)

    def _resources(self, one: str) -> int:
        """How many there are once this one is among them."""
        return len({*self.inventory.resources(), *self._plugins, *self._connecting, one})

    def _count(self, resource: str) -> None:
        """Each resource is a label of a metric, and stays one."""
        if resource in self._registrations or len(self._registrations) < MAX_RESOURCES:
            self._registrations[resource] += 1

    async def _require_unused(self, resource: str, endpoint: str) -> None:
        """A plugin may register again; another may only once the first is gone."""
        former = self._plugins.get(resource)
        if former and former.endpoint != endpoint and await former.is_alive():
            raise PluginFailed(
                f"the ResourceName {resource} is already taken by another active device plugin,"
                f" at {former.endpoint}"
            )

    def _drop(self, resource: str) -> None:
        """Leave the former plugin of a resource, whose devices stay as they were listed."""
        if self._plugins.pop(resource, None):
            self._streams.pop(resource).cancel()

    async def _follow(self, plugin: DevicePlugin) -> None:
        resource, why = plugin.resource, "it ended the stream of its devices"
        is_first = True
        try:
            async for listed in plugin.lists():
                await self._read(plugin, listed, is_first=is_first)
                is_first = False
                await asyncio.sleep(_LIST_INTERVAL_S)
        except (PluginFailed, TooManyDevices) as error:
            why = str(error)
        finally:
            await plugin.close()
        if self._plugins.get(resource) is plugin:
            log.warning("the device plugin %s is gone: %s", plugin.endpoint, why)
            del self._plugins[resource], self._streams[resource]
            self._lose(resource)

    async def _read(self, plugin: DevicePlugin, listed: bytes, *, is_first: bool) -> None:
        """One list at a time, in a thread, for a fifth of the time."""

        def read() -> tuple[Mapping[str, Device], frozenset[str]]:
            devices = plugin.devices(listed)
            return devices, self.inventory.changes(plugin.resource, devices)

        loop = asyncio.get_running_loop()
        async with self._reading:
            began_s = loop.time()
            devices, changed = await loops.finish_in_thread(read, name="devices")
            took_s = loop.time() - began_s
            self.inventory.list(plugin.resource, devices)
            if is_first:
                text = "the device plugin %s offers %d devices of %s"
                log.info(text, plugin.endpoint, len(devices), plugin.resource)
            self._on_change(plugin.resource, changed)
            await asyncio.sleep(_PAUSES * took_s)

    def _lose(self, resource: str) -> None:
        loop = asyncio.get_running_loop()
        self._on_change(resource, self.inventory.lose(resource, loop.time()))
        loop.call_later(GRACE_S, self.expire)

    def expect(self, resources: Collection[str]) -> None:
        """Resources of an earlier agent: without healthy devices until their plugins register."""
        loop = asyncio.get_running_loop()
        self.inventory.expect(resources, loop.time())
        loop.call_later(GRACE_S, self.expire)

    def expire(self) -> None:
        """Drop resources whose plugins did not come back."""
        if self.inventory.expire(asyncio.get_running_loop().time()):
            self._on_change("", ())


def _remove_stale(folder: int) -> None:
    """Remove the sockets of plugins that an earlier agent knew. Blocking I/O."""
    with os.scandir(folder) as entries:
        for _, entry in zip(range(_FILES_MAX), entries, strict=False):
            if entry.name != answers.OWN_SOCKET:
                grpc_server.remove_socket(folder, entry.name)
