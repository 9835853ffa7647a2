"""A node for tests of pods: a runtime in memory on the loop's clock, real volumes and cgroup trees
below a temporary directory, and sources a test sets by hand.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from nodeagent.pods.cgroups.pod_cgroups import PodCgroups
from nodeagent.pods.counts import PodCounts
from nodeagent.pods.devices.assignment import Devices
from nodeagent.pods.events import PodEvents
from nodeagent.pods.images.node_logins import NodeLogins
from nodeagent.pods.logs.links import LogLinks
from nodeagent.pods.logs.termination_messages import TerminationMessages
from nodeagent.pods.pleg import Pleg
from nodeagent.pods.pod_workers import PodWorkers
from nodeagent.pods.prober.health import ContainerHealth
from nodeagent.pods.prober.probes import Prober
from nodeagent.pods.prober.results import ResultFiles
from nodeagent.pods.registry import PodRegistry
from nodeagent.pods.runtime_classes import RuntimeClasses
from nodeagent.pods.sources.source import Changed
from nodeagent.pods.spec.spec import PodSettings
from nodeagent.pods.user_namespaces import UserNamespaces
from nodeagent.pods.volumes.hosts import HostsFiles
from nodeagent.pods.volumes.objects import PodObjects
from nodeagent.pods.volumes.tokens import PodTokens
from nodeagent.pods.volumes.volumes import VolumeStore
from nodeagent.pods.worker.services import PodServices, SeccompProfiles, restored_sizes
from nodeagent.runtime.base import Login
from orch.component.process import loops
from orch.wire import names
from orch.wire.podrules import podspec
from orch.wire.records.core import Node
from orch.wire.records.meta import ApiObject
from orch.wire.records.pods import Container, ContainerState, Pod
from tests.fakes.api import FakeApi
from tests.fakes.apistore import FakeStore
from tests.fakes.runtime import FakeContainer, FakeRuntime

EPOCH = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
HIERARCHIES = ("cpu", "memory", "unified")


def now() -> datetime:
    """Wall time that moves with the loop's clock."""
    return EPOCH + timedelta(seconds=asyncio.get_running_loop().time())


class ClockedRuntime(FakeRuntime):
    """A FakeRuntime whose stamps are of the loop's clock."""

    def _now_ns(self) -> int:
        next(self._numbers)
        return int(now().timestamp() * 1e9)


class NoLogins(NodeLogins):
    """Of a node without a file of them: to look for one would take real time."""

    async def logins(self, image: str) -> Sequence[Login]:
        return ()


class FakeSource:
    """A source whose pods a test sets."""

    def __init__(self, *pods: Pod, name: str = podspec.FILE, ready: bool = True) -> None:
        self.name = name
        self.ready = ready
        self.incomplete = False
        self.given = list(pods)
        self._changed: Changed | None = None

    def pods(self) -> Sequence[Pod]:
        return [_from(self.name, pod) for pod in self.given]

    def set(self, *pods: Pod) -> None:
        self.given = list(pods)
        self.tell()

    def tell(self) -> None:
        if self._changed:
            self._changed()

    async def run(self, changed: Changed) -> None:
        self._changed = changed
        changed()
        await asyncio.Event().wait()


class PodWorld:
    """One node's pods; several agents one after the other may work on the same runtime."""

    def __init__(
        self, directory: Path, runtime: FakeRuntime | None = None, *, gives_devices: bool = False
    ) -> None:
        self.directory = directory
        self.gives_devices = gives_devices
        self.runtime = runtime or ClockedRuntime()
        self.source = FakeSource()
        self.api = FakeApi(FakeStore(now))  # holds the ConfigMaps and Secrets that pods refer to
        self.removed: list[Pod] = []
        self.node: Node | None = Node()
        self.frozen: set[str] = set()  # ids of containers that are being checkpointed
        self.events: list[tuple[str, str, str]] = []  # pod, reason, message
        self._task: asyncio.Task[None] | None = None
        self._heirs: list[PodWorld] = []
        for name in HIERARCHIES:
            (directory / "cgroup" / name).mkdir(parents=True, exist_ok=True)
        self.settings = PodSettings(
            node_name="node1",
            root_dir=str(directory / "root"),
            pod_logs_dir=str(directory / "logs"),
            host_ip="192.0.2.1",
        )
        self.seccomp_root = directory / "root" / "seccomp"
        Path(self.settings.root_dir).mkdir(exist_ok=True)
        self.use(self.source)

    def _pod_workers(self, sources: Sequence[FakeSource]) -> PodWorkers:
        events = PodEvents(self)
        prober = Prober(self.runtime)
        counts = self.counts
        Path(self.settings.root_dir).mkdir(exist_ok=True)
        allocations, sizes = restored_sizes(self.settings.root_dir, events, counts, now)
        self.services = PodServices(
            settings=self.settings,
            runtime=self.runtime,
            registry=self.registry,
            counts=counts,
            pleg=Pleg(self.runtime, self.registry, counts, self.settings.node_name),
            volumes=VolumeStore(self.settings.root_dir),
            cgroups=PodCgroups("/orchpods", counts.timings, root=str(self.directory / "cgroup")),
            seccomp=SeccompProfiles(str(self.seccomp_root), default=False),
            health=ContainerHealth(
                prober,
                events,
                counts,
                files=ResultFiles(self.settings.root_dir),
                checkpoints=self,
                now=now,
            ),
            prober=prober,
            messages=TerminationMessages(self.settings.root_dir),
            log_links=LogLinks(str(self.directory / "pods")),
            hosts=HostsFiles(self.settings.root_dir),
            users=UserNamespaces(self.settings.root_dir),
            classes=RuntimeClasses(self.api),  # type: ignore[arg-type]
            node_logins=NoLogins(self.settings.root_dir),
            objects=PodObjects(
                self.api,  # type: ignore[arg-type]
                tokens=PodTokens(self.api, now=now, jitter=lambda: 0.0),  # type: ignore[arg-type]
            ),
            events=events,
            allocations=allocations,
            sizes=sizes,
            devices=self.devices,
            now=now,
        )
        return PodWorkers(
            self.services, sources, on_removed=self.removed.append, node=lambda static: self.node
        )

    def use(self, *sources: FakeSource) -> None:
        """Work with these sources instead of the one."""
        self.registry = PodRegistry(self.settings)
        self.counts = PodCounts()
        self.devices = self._devices() if self.gives_devices else None
        self.workers = self._pod_workers(sources)

    def _devices(self) -> Devices:
        return Devices(self.settings.root_dir, self.registry, self.counts, shows_health=True)

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.workers.run())
            if self.devices:
                group.create_task(self.devices.run())

    async def start(self, *pods: Pod) -> None:
        self.source.set(*pods)
        self._task = loops.spawn(self._run(), name="pods")
        await self.until(lambda: len(self.registry.pods()) >= min(1, len(pods)))

    async def stop(self) -> None:
        """End the agent and its successors, not the pods; their errors come out here."""
        for heir in self._heirs:
            await heir.stop()
        if self._task is not None:
            task, self._task = self._task, None
            failed = task.exception() if task.done() and not task.cancelled() else None
            await loops.cancel(task)
            if failed:
                raise failed

    def successor(self) -> PodWorld:
        """Another agent for the same node, as after a restart."""
        world = PodWorld(self.directory, self.runtime, gives_devices=self.gives_devices)
        world.source = FakeSource(*self.source.given)
        world.use(world.source)
        self._heirs.append(world)
        return world

    def note(self, obj: ApiObject, type: str, reason: str, message: str) -> None:  # noqa: A002
        """As a recorder of events."""
        self.events.append((obj.metadata.name, reason, message))

    def is_frozen(self, container_id: str) -> bool:
        """As the checkpoint service."""
        return container_id in self.frozen

    # ---- what a test looks at

    def reasons(self) -> list[str]:
        """The reasons of all events, in their order."""
        return [reason for _, reason, _ in self.events]

    def running(self) -> dict[str, str]:
        """Container name → id of every running container."""
        return {c.spec.name: key for key, c in self.runtime.containers.items() if _runs(c)}

    def made(self, name: str) -> FakeContainer:
        """The newest container of that name."""
        return [c for c in self.runtime.containers.values() if c.spec.name == name][-1]

    def status(self, name: str = "web") -> Pod:
        pod = self.registry.find("default", name)
        assert pod is not None, f"no pod {name}"
        return pod

    def state(self, container: str = "app", name: str = "web") -> ContainerState:
        statuses = self.status(name).status.containerStatuses or []
        found = next((s for s in statuses if s.name == container), None)
        return (found and found.state) or ContainerState()

    def waiting(self, container: str = "app", name: str = "web") -> str:
        waiting = self.state(container, name).waiting
        return (waiting.reason or "") if waiting else ""

    def traces(self) -> list[str]:
        """What pods have left below the directory and in the runtime."""
        found = [
            str(path.relative_to(self.directory))
            for pattern in ("root/pods/*", "logs/*", "containers/*")
            for path in self.directory.glob(pattern)
        ]
        found += [  # walked, because they may go meanwhile
            os.path.join(parent, name)
            for parent, names, _ in os.walk(self.directory / "cgroup")
            for name in names
            if name.startswith("pod")
        ]
        return [*found, *self.runtime.sandboxes, *self.runtime.containers]

    async def until(self, done: object, *, within_s: float = 60.0) -> None:
        """Wait, in the loop's time, until `done()` is true. Threads that its clock does not know of
        have a little of everybody's time, too.
        """
        assert callable(done)
        deadline_s = asyncio.get_running_loop().time() + within_s
        while not done():
            assert asyncio.get_running_loop().time() < deadline_s, "it never came true"
            await asyncio.sleep(0.1)
            time.sleep(0.001)


def _runs(container: FakeContainer) -> bool:
    return container.state.value == "running"


def _from(source: str, pod: Pod) -> Pod:
    annotations = {**(pod.metadata.annotations or {}), names.ANNOTATION_CONFIG_SOURCE: source}
    metadata = pod.metadata.model_copy(update={"annotations": annotations})
    return pod.model_copy(update={"metadata": metadata})


def named(pod: Pod, name: str, uid: str) -> Pod:
    """The same pod under another name and uid."""
    metadata = pod.metadata.model_copy(update={"name": name, "uid": uid})
    return pod.model_copy(update={"metadata": metadata})


def changed(pod: Pod, container: Container) -> Pod:
    """The pod with one container only: this one."""
    return pod.model_copy(update={"spec": pod.spec.model_copy(update={"containers": [container]})})
