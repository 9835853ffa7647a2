"""Gives devices to pods: on admission from the free ones, again to a container that restarts.

The plugin is asked first, then all that the pod was given is written down, and only then may it
start. One container of a resource is served at a time, so nothing is given twice; resources do not
wait for each other. Pods that hold nothing any more are found when the next one asks.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from nodeagent.pods import counts as pods_counts
from nodeagent.pods.counts import PodCounts
from nodeagent.pods.devices import allocation
from nodeagent.pods.devices.allocation import Allocation, Allocations, Book, DeviceError
from nodeagent.pods.devices.inventory import MAX_RESOURCES, Inventory
from nodeagent.pods.devices.ledger import Entry, Ledger, Record
from nodeagent.pods.devices.plugin import DevicePlugin, PluginFailed
from nodeagent.pods.devices.registration import Registration
from nodeagent.pods.registry import PodRegistry
from orch.component.process import loops
from orch.component.process.once_log import OnceLog
from orch.wire.podrules import podspec
from orch.wire.records.pods import Container, Pod, ResourceHealth, ResourceStatus

log = logging.getLogger(__name__)

FOLDER = "device-plugins"
FILE = "device-allocations.json"
_RETRY_S = 10.0  # of a file that cannot be written
_CHANGES_S = 1.0  # between two reports of changed amounts
_NONE: Allocations = {}

Listener = Callable[[str], None]  # gets the uid of a pod


class Devices:
    """`root_dir` is the agent's; `on_amounts` is called when the node's resources have changed.

    `shows_health`: the health of devices is part of the status of pods.
    """

    def __init__(
        self,
        root_dir: str,
        registry: PodRegistry,
        counts: PodCounts,
        *,
        on_amounts: Callable[[], None] = lambda: None,
        shows_health: bool = False,
    ) -> None:
        self.shows_health = shows_health
        self._on_amounts = on_amounts
        self.known = False  # whether an earlier agent's resources are known, or there were none
        self.book = Book()
        self._registry = registry
        self._counts = counts
        self._plugins = Registration(
            Path(root_dir, FOLDER), self._changed, counts.device_registrations
        )
        self._ledger = Ledger(Path(root_dir, FILE), self._snapshot)
        self._loaded = asyncio.Event()
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._asked: dict[str, asyncio.Task[str]] = {}  # by uid: pods that are being admitted
        self._on_health: list[Listener] = []
        self._on_assigned: Callable[[], None] = lambda: None
        self._report: asyncio.TimerHandle | None = None
        self._kept: frozenset[str] | None = None  # resources in the file
        self._listed = asyncio.Event()  # there may be others now
        self._outage = OnceLog(log, logging.ERROR)

    @property
    def inventory(self) -> Inventory:
        return self._plugins.inventory

    async def run(self) -> None:
        """Read what an earlier agent gave, then serve plugins until cancelled."""
        record = await self._load()
        self.known = record is not None
        for entry in record.entries if record else ():
            self.book.add(entry.pod, entry.container, entry.resource, entry.allocation)
        self._plugins.expect(record.resources[:MAX_RESOURCES] if record else ())
        self._loaded.set()
        self._on_assigned()
        self._on_amounts()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._plugins.run())
                group.create_task(self._keep_resources())
        finally:
            await loops.cancel(*self._asked.values())

    def on_health(self, listener: Listener) -> None:
        """Hear of pods a device of which has become healthy or unhealthy."""
        self._on_health.append(listener)

    def on_assigned(self, listener: Callable[[], None]) -> None:
        """Hear when `assigned` has another answer."""
        self._on_assigned = listener

    @property
    def is_loaded(self) -> bool:
        """Whether the inventory has the resources of an earlier agent."""
        return self._loaded.is_set()

    def offers(self, resource: str) -> bool:
        """Whether the resource's devices are given here, and not just counted by others."""
        return self.inventory.has(resource) or self.book.has(resource)

    # ---- pods

    def assigned(self, pod: Pod) -> str | None:
        """None: not yet; "": the pod has all its devices; else why it cannot have them."""
        if not self._loaded.is_set() or not (self.known or self._registry.all_read):
            return None  # without the file, only the runtime tells who has what
        uid = pod.metadata.uid or ""
        task = self._asked.get(uid)
        if task is None:
            wanted = {p.metadata.uid for p in self._registry.all_desired()}
            self._asked = {known: t for known, t in self._asked.items() if known in wanted}
            task = self._asked[uid] = loops.spawn(self._assign(pod), name=f"devices of {pod.key}")
            task.add_done_callback(lambda _: self._on_assigned())
        if not task.done():
            return None
        del self._asked[uid]
        return task.result()

    def release(self, uid: str) -> None:
        """The pod is not admitted after all."""
        self.book.retain({held for held, _, _, _ in self.book.all()} - {uid})

    async def of_container(self, pod: Pod, container: Container) -> Allocations:
        """What a container that is about to start has; DeviceError."""
        if not (wanted := allocation.amounts(container)):
            return _NONE
        uid = pod.metadata.uid or ""
        try:
            for resource in sorted(wanted):
                if self.offers(resource):
                    await self._prepare(pod, container, resource, wanted[resource])
        except PluginFailed as error:
            raise DeviceError(str(error)) from error
        except OSError as error:
            raise DeviceError(_unwritten(error)) from error
        return dict(self.book.of(uid, container.name))

    def statuses(self, uid: str) -> Mapping[str, list[ResourceStatus]]:
        """The health of a pod's devices by container."""
        return {
            name: [
                self._status(resource, held) for resource, held in self.book.of(uid, name).items()
            ]
            for name in self.book.containers(uid)
        }

    def settle(self) -> None:
        """Free what no pod holds any more, and note what only the runtime knows of."""
        holders = self._registry.device_holders()
        if holders is not None:
            self.book.retain(holders)
        for uid, container, text in self._registry.noted_devices():
            known = self.book.of(uid, container)
            for resource, held in allocation.noted(text).items():
                if resource not in known:
                    self.book.add(uid, container, resource, held)

    # ---- one pod

    async def _assign(self, pod: Pod) -> str:
        self.settle()
        try:
            for container in podspec.lasting(pod):
                for resource, wanted in sorted(allocation.amounts(container).items()):
                    if self.offers(resource):
                        await self._allocate(pod, container, resource, wanted)
            await self._ledger.catch_up()
        except (DeviceError, PluginFailed, OSError) as error:
            self.release(pod.metadata.uid or "")
            cause = _unwritten(error) if isinstance(error, OSError) else error
            return f"Allocate failed due to {cause}, which is unexpected"
        return ""

    async def _prepare(self, pod: Pod, container: Container, resource: str, wanted: int) -> None:
        """Before each start: devices that were given for good, and a plugin that knows of it."""
        uid = pod.metadata.uid or ""
        held = self.book.of(uid, container.name).get(resource)
        if held is None:
            await self._allocate(pod, container, resource, wanted)
            held = self.book.of(uid, container.name)[resource]
        elif held.grant is None:
            await self._give(uid, container.name, resource, sorted(held.ids))
        await self._ledger.catch_up()
        plugin = self._plugins.plugin(resource)
        if plugin and plugin.options.pre_start:
            await plugin.pre_start(held.ids)

    async def _allocate(self, pod: Pod, container: Container, resource: str, wanted: int) -> None:
        if wanted == 0:
            return
        uid, name = pod.metadata.uid or "", container.name
        async with self._locks[resource]:
            held = self.book.of(uid, name).get(resource)
            if held:
                allocation.require_unchanged(pod, name, resource, held, wanted)
            before = held.ids if held else ()
            healthy = allocation.require_healthy(resource, self.inventory.healthy(resource), before)
            if held:
                return
            allocation.require_few(self.book.count(uid) + wanted)
            again = allocation.reusable(pod, name, resource, self.book)
            used = self.book.holders(resource)
            choice = allocation.choose(resource, wanted, healthy, used, again)
            plugin = self._connected(resource)
            liked: Sequence[str] = ()
            if plugin.options.preferred and choice.missing < len(choice.free):
                liked = await plugin.preferred(choice.free, choice.taken, wanted)
            ids = allocation.complete(choice, liked)
            await self._give(uid, name, resource, ids)

    async def _give(self, uid: str, name: str, resource: str, ids: Sequence[str]) -> None:
        """Ask the plugin, and note what it grants."""
        loop = asyncio.get_running_loop()
        plugin, began_s = self._connected(resource), loop.time()
        listed = [(one, self.inventory.device(resource, one)) for one in ids]
        grant = await plugin.allocate(ids)
        took_s = loop.time() - began_s
        self._counts.timings.observe(pods_counts.DEVICE_ALLOCATION, took_s, resource)
        nodes = {one: device.numa_nodes if device else () for one, device in listed}
        self.book.add(uid, name, resource, Allocation(nodes, grant))
        self._ledger.changed()

    def _connected(self, resource: str) -> DevicePlugin:
        plugin = self._plugins.plugin(resource)
        if plugin is None:
            raise DeviceError(f"the plugin of {resource} is gone")
        return plugin

    def _status(self, resource: str, held: Allocation) -> ResourceStatus:
        healths = [
            ResourceHealth(resourceID=one, health=self.inventory.health(resource, one))
            for one in sorted(held.ids)
        ]
        return ResourceStatus(name=resource, resources=healths)

    # ---- all

    async def _keep_resources(self) -> None:
        """Write down which resources there are, so that the next agent knows them as such."""
        while True:
            resources = frozenset(self.inventory.resources())
            if resources != self._kept:
                try:
                    await self._ledger.save()
                except OSError as error:
                    text = "cannot write down which devices there are, retrying: %s"
                    self._outage.failed(text, error.strerror or error)
                    asyncio.get_running_loop().call_later(_RETRY_S, self._listed.set)
                else:
                    self._kept = resources
                    self._outage.recovered("devices are written down again")
            await self._listed.wait()
            self._listed.clear()

    def _changed(self, resource: str, ids: Collection[str]) -> None:
        if ids and self.shows_health:
            holders = self.book.holders(resource)
            for uid in {holders[one] for one in ids if one in holders}:
                for listener in self._on_health:
                    listener(uid)
        self._listed.set()
        if self._report is None:
            loop = asyncio.get_running_loop()
            self._on_amounts()
            self._report = loop.call_later(_CHANGES_S, self._report_again, self._state())

    def _report_again(self, told: object) -> None:
        """Tell what has changed since the last report, at its proper time."""
        self._report = None
        if self._state() != told:
            self._changed("", ())

    def _state(self) -> object:
        return self.inventory.counts()

    def _snapshot(self) -> Record:
        entries = tuple(Entry(*row) for row in self.book.all())
        return Record(entries, tuple(self.inventory.resources()))

    async def _load(self) -> Record | None:
        record = None
        try:
            record = await self._ledger.load()
        except OSError as error:
            log.error("earlier allocations of devices are not known: %s", error)
        return record


def _unwritten(error: OSError) -> str:
    return f"the allocation cannot be written down: {error.strerror or error}"
