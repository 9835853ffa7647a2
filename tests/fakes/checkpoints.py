"""A node with one pod whose containers can be checkpointed, in memory but for the archives."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nodeagent.archives.archive_index import ArchiveIndex
from nodeagent.archives.bounds import Bounds
from nodeagent.archives.encryption import Encryption
from nodeagent.archives.pruner import Pruner
from nodeagent.archives.reports import CheckpointReports
from nodeagent.archives.store import CheckpointStore
from nodeagent.checkpoint import CheckpointLimits, CheckpointService
from nodeagent.freezer import ContainerThawer
from nodeagent.runtime import base
from orch.wire.errors import ApiError
from orch.wire.records.pods import Pod
from tests.fakes.runtime import FakeRuntime

NOON = datetime(2026, 1, 31, 12, 0, 0, 999_000, tzinfo=UTC)  # a millisecond before 12:00:01
SPEC = {
    "containers": [{"name": "app"}, {"name": "side"}, {"name": "stopped"}],
    "initContainers": [{"name": "init"}],
    "ephemeralContainers": [{"name": "debug"}],
}
SANDBOX = base.SandboxSpec("web", "shop", "u1")


@dataclass
class Pods:
    """A pod registry with one pod; `running` maps container names to runtime ids."""

    pod: Pod = field(
        default_factory=lambda: Pod.from_wire(
            {"metadata": {"name": "web", "namespace": "shop", "uid": "u1"}, "spec": SPEC}
        )
    )
    running: dict[str, str] = field(default_factory=dict)

    def find(self, namespace: str, name: str) -> Pod | None:
        return self.pod if (namespace, name) == ("shop", "web") else None

    def live_uids(self) -> Collection[str] | None:
        return {"u1"}

    def running_container(self, namespace: str, pod: str, container: str) -> str | None:
        return self.running.get(container)


@dataclass
class RecordedEvents:
    """Events as (type, reason, message)."""

    recorded: list[tuple[str, str, str]] = field(default_factory=list)

    def normal(self, pod: Pod | None, reason: str, message: str) -> None:
        if pod:
            self.recorded.append(("Normal", reason, message))

    def warning(self, pod: Pod | None, reason: str, message: str) -> None:
        if pod:
            self.recorded.append(("Warning", reason, message))

    @property
    def reasons(self) -> list[str]:
        return [reason for _, reason, _ in self.recorded]


@dataclass
class Node:
    runtime: FakeRuntime
    pods: Pods
    root: Path
    moments: list[datetime]
    bounds: Bounds = field(default_factory=Bounds)
    memory_bytes: int = 0
    layer_of: Callable[[str], int] = lambda _container_id: 0
    today: datetime = NOON
    encryption: Encryption | None = None
    events: RecordedEvents = field(default_factory=RecordedEvents)
    reports: CheckpointReports = field(init=False)

    def __post_init__(self) -> None:
        self.reports = CheckpointReports(self.events)

    @property
    def index(self) -> ArchiveIndex:
        return ArchiveIndex(str(self.root))

    def pruner(self, bounds: Bounds | None = None) -> Pruner:
        return Pruner(
            self.index,
            bounds or self.bounds,
            self.pods,
            reports=self.reports,
            now=lambda: self.today,
        )

    def now(self) -> datetime:
        return self.moments.pop(0) if len(self.moments) > 1 else self.moments[0]

    def service(
        self,
        *,
        timeout_s: float = 120,
        max_concurrent: int = 2,
        pruner: Pruner | None = None,
        thawer: ContainerThawer | None = None,
    ) -> CheckpointService:
        return CheckpointService(
            self.pods,
            self.runtime,
            CheckpointStore(str(self.root), self.encryption),
            pruner or self.pruner(),
            thawer=thawer or ContainerThawer(self.runtime, cgroup_root=self.root / "cgroup"),
            limits=CheckpointLimits(
                timeout_s,
                max_concurrent,
                memory_of=lambda _container_id: self.memory_bytes,
                layer_of=self.layer_of,
            ),
            now=self.now,
        )

    @property
    def store(self) -> Path:
        return self.root / "checkpoints"

    def files(self) -> list[str]:
        """The files of the store except manifests."""
        return [name for name in sorted(os.listdir(self.store)) if not name.endswith(".json")]


async def checkpointable_node(root: Path) -> Node:
    """A node where every container of `SPEC` except `stopped` is running."""
    runtime, pods = FakeRuntime(), Pods()
    sandbox_id = await runtime.run_sandbox(SANDBOX)
    for name in ("app", "side", "init", "debug"):
        spec = base.ContainerSpec(name, 0, "localhost/busybox:1")
        pods.running[name] = await runtime.create_container(sandbox_id, spec, SANDBOX)
        await runtime.start_container(pods.running[name])
    runtime.calls.clear()
    return Node(runtime, pods, root, [NOON])


async def refusal(
    service: CheckpointService, *path: str, timeout: str = ""
) -> tuple[int, str, str]:
    with pytest.raises(ApiError) as caught:
        await service.checkpoint(*path, timeout=timeout)
    return caught.value.code, caught.value.reason, caught.value.message
