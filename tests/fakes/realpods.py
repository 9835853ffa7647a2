"""The agent's pods on a real containerd, with directories and a node of their own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nodeagent.pods.cgroups.pod_cgroups import PodCgroups
from nodeagent.pods.counts import PodCounts
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
from nodeagent.pods.sources.files import FileSource
from nodeagent.pods.spec.spec import PodSettings
from nodeagent.pods.user_namespaces import UserNamespaces
from nodeagent.pods.volumes import kernel_mounts
from nodeagent.pods.volumes.hosts import HostsFiles
from nodeagent.pods.volumes.objects import PodObjects
from nodeagent.pods.volumes.volumes import VolumeStore
from nodeagent.pods.worker.services import PodServices, SeccompProfiles, restored_sizes
from nodeagent.runtime.base import RuntimeUnavailable
from nodeagent.runtime.cri import CriRuntime
from orch.client.events import EventRecorder
from orch.component.process import loops
from orch.wire.records.pods import Pod, PodStatus
from tests.conftest_runtime import CGROUPS

IMAGE = "localhost/busybox:1"
SLEEP = ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done"]


def manifest(name: str, *containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    listed = [{"image": IMAGE, "command": SLEEP, **one} for one in containers]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"terminationGracePeriodSeconds": 2, "containers": listed, **spec},
    }


class Agent:
    """The agent's pods, with directories and a node of its own on a shared containerd."""

    def __init__(self, directory: Path, endpoint: str, runtime: CriRuntime | None = None) -> None:
        self.directory = directory
        self.manifests = directory / "manifests"
        self.manifests.mkdir(exist_ok=True)
        self.node = f"{directory.name.replace('_', '-').lower()}-{os.getpid()}"
        self.cgroup = f"/orchpods-{self.node}"
        self.runtime = runtime or CriRuntime(endpoint)
        settings = PodSettings(
            node_name=self.node,
            root_dir=str(directory / "root"),
            pod_logs_dir=str(directory / "logs"),
            cgroup_parent=self.cgroup,
        )
        self.registry = PodRegistry(settings)
        self.counts = PodCounts()
        events = PodEvents(EventRecorder(None, "nodeagent"))
        prober = Prober(self.runtime)
        Path(settings.root_dir).mkdir(exist_ok=True)
        allocations, sizes = restored_sizes(settings.root_dir, events, self.counts)
        self.services = services = PodServices(
            settings=settings,
            runtime=self.runtime,
            registry=self.registry,
            counts=self.counts,
            pleg=Pleg(self.runtime, self.registry, self.counts, self.node),
            volumes=VolumeStore(settings.root_dir),
            cgroups=PodCgroups(self.cgroup, self.counts.timings),
            seccomp=SeccompProfiles(f"{settings.root_dir}/seccomp", default=False),
            health=ContainerHealth(
                prober, events, self.counts, files=ResultFiles(settings.root_dir)
            ),
            prober=prober,
            messages=TerminationMessages(settings.root_dir),
            log_links=LogLinks(settings.pod_logs_dir),
            hosts=HostsFiles(settings.root_dir),
            users=UserNamespaces(settings.root_dir),
            classes=RuntimeClasses(None),
            node_logins=NodeLogins(settings.root_dir),
            objects=PodObjects(None),
            events=events,
            allocations=allocations,
            sizes=sizes,
        )
        self.workers = PodWorkers(services, [FileSource(str(self.manifests), self.node)])
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = loops.spawn(self.workers.run(), name="pods")

    async def stop(self) -> None:
        if self._task:
            await loops.cancel(self._task)
        self._task = None

    async def close(self) -> None:
        await self.stop()
        await self.workers.remove_all(20)
        await self.runtime.close()
        for _ in range(50):  # grpc ends a stream in a thread of its own
            if asyncio.all_tasks() == {asyncio.current_task()}:
                break
            await asyncio.sleep(0.005)

    def put(self, data: dict[str, Any]) -> Path:
        path = self.manifests / f"{data['metadata']['name']}.json"
        path.write_text(json.dumps(data))
        return path

    def status(self, name: str) -> PodStatus:
        pod: Pod | None = self.registry.find("default", f"{name}-{self.node}")
        return pod.status if pod else PodStatus()

    def ids(self, name: str) -> dict[str, str]:
        statuses = self.status(name).containerStatuses or []
        return {s.name: s.containerID or "" for s in statuses if s.state and s.state.running}

    def restarts(self, name: str) -> dict[str, int]:
        return {s.name: s.restartCount for s in self.status(name).containerStatuses or ()}

    async def until(self, done: Callable[[], bool], *, within_s: float = 60) -> None:
        async with asyncio.timeout(within_s):
            while not done():
                await asyncio.sleep(0.1)

    async def runs(self, name: str) -> None:
        await self.until(lambda: self.status(name).phase == "Running" and ready(self.status(name)))

    def pid(self, container: str) -> int:
        views = self.registry.views().values()
        found = [c for view in views for c in view.containers if c.container.name == container]
        assert found and found[0].pid
        return found[0].pid

    def cgroups(self) -> list[Path]:
        return [path for path in CGROUPS.glob(f"*{self.cgroup}") if path.is_dir()]

    async def gone(self, *, within_s: float = 60) -> None:
        """Until nothing of it is left; a runtime too busy to answer is asked again."""
        async with asyncio.timeout(within_s):
            while True:
                with contextlib.suppress(RuntimeUnavailable):
                    if not await self.traces():
                        return
                await asyncio.sleep(0.2)

    async def traces(self) -> list[str]:
        rows = [*await self.runtime.list_sandboxes(), *await self.runtime.list_containers()]
        mine = [row.id for row in rows if row.labels.get("orch.io/node.name") == self.node]
        left = [*self.directory.glob("root/pods/*"), *self.directory.glob("logs/*")]
        inside = [  # walked, because they may go meanwhile
            os.path.join(parent, name)
            for top in self.cgroups()
            for parent, names, _ in os.walk(top)
            for name in names
            if name.startswith("pod")
        ]
        mounts = [m.path for m in kernel_mounts.mounts_below(str(self.directory))]
        return [*mine, *map(str, left), *inside, *mounts]


def ready(status: PodStatus) -> bool:
    return all(c.ready for c in status.containerStatuses or ())


def waiting(status: PodStatus, container: str) -> str:
    found = [c.state for c in status.containerStatuses or () if c.name == container]
    return (found[0].waiting.reason or "") if found and found[0] and found[0].waiting else ""
