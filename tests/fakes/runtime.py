"""A container runtime in memory: the `ContainerRuntime` role without processes.

Containers "run" until a test ends them with `exit` or `crash`. Every call is recorded in `calls`;
`fail` makes an operation raise, `hold` makes it wait (operations are named as the role's methods).
The rules - what is idempotent, what is refused - are containerd's, and the contract suite holds
both to them.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nodeagent.runtime.base import (
    Container,
    ContainerDetail,
    ContainerSpec,
    ContainerState,
    ContainerUsage,
    EventKind,
    ExecResult,
    LinuxResources,
    RuntimeCallError,
    RuntimeCondition,
    RuntimeNotFound,
    RuntimeVersion,
    Sandbox,
    SandboxDetail,
    SandboxSpec,
    SandboxState,
    SandboxUsage,
)
from nodeagent.runtime.isolation import RuntimeFeatures
from tests.fakes.runtime_archive import ARCHIVE_MEMBERS, write_archive
from tests.fakes.runtime_events import FakeEvents
from tests.fakes.runtime_faults import changing, left_running
from tests.fakes.runtime_images import EPOCH_NS, FakeImages, fake_sandbox_usage, fake_usage
from tests.fakes.runtime_streams import FakeStreams

_MILLISECOND_NS = 1_000_000


@dataclass
class FakeSandbox:
    spec: SandboxSpec
    row: Sandbox
    ip: str
    pid: int | None


@dataclass
class FakeContainer:
    spec: ContainerSpec
    sandbox_id: str
    detail: ContainerDetail
    resources: LinuxResources

    @property
    def row(self) -> Container:
        return replace(self.detail.container, sandbox_id=self.sandbox_id)

    @property
    def state(self) -> ContainerState:
        return self.detail.container.state

    def turn(self, state: ContainerState, **changes: object) -> None:
        changed = replace(self.detail.container, state=state)
        self.detail = replace(self.detail, container=changed, **changes)  # type: ignore[arg-type]


class FakeRuntime(FakeImages, FakeEvents, FakeStreams):
    """`on_exec` answers exec_sync; `archive_members` are the files of a checkpoint archive."""

    def __init__(self, endpoint: str = "unix:///fake/runtime.sock") -> None:
        super().__init__()
        self.endpoint = endpoint
        self.sandboxes: dict[str, FakeSandbox] = {}
        self.containers: dict[str, FakeContainer] = {}
        self.about = RuntimeVersion("fake", "1.0.0", "v1")
        self.runtime_conditions = [
            RuntimeCondition("RuntimeReady", True),
            RuntimeCondition("NetworkReady", True),
        ]
        self.runtime_features = RuntimeFeatures(
            frozenset({"", "runc"}), recursive_readonly=frozenset({""})
        )
        self.on_exec: Callable[[str, Sequence[str]], ExecResult] = _exec_nothing
        self.archive_members = ARCHIVE_MEMBERS
        self.code_of_stopped = 137  # a process that exits by itself on SIGTERM may end with 0
        self.reopened: list[str] = []
        self.paused: set[str] = set()  # containers that a broken-off checkpoint left so
        self.closed = False
        self._numbers = itertools.count(1)

    # ---- what a test does to containers

    def exit(self, container_id: str, code: int = 0) -> None:
        """End a running container as if its process had ended with `code`."""
        self.containers[container_id].turn(
            ContainerState.EXITED,
            finished_at_ns=self._now_ns(),
            exit_code=code,
            reason="Error" if code else "Completed",
            pid=None,
        )
        self.tell(container_id, EventKind.STOPPED)

    def crash(self, container_id: str, signal: int = 9) -> None:
        """End a running container as if `signal` had killed its process."""
        self.exit(container_id, 128 + signal)

    # ---- the role: the runtime, sandboxes

    async def version(self) -> RuntimeVersion:
        await self.begin("version")
        return self.about

    async def conditions(self) -> Sequence[RuntimeCondition]:
        await self.begin("conditions")
        return tuple(self.runtime_conditions)

    async def features(self) -> RuntimeFeatures:
        await self.begin("features")
        return self.runtime_features

    @changing
    async def run_sandbox(self, spec: SandboxSpec) -> str:
        await self.begin("run_sandbox", f"{spec.namespace}/{spec.name}")
        wanted = (spec.name, spec.namespace, spec.uid, spec.attempt)
        for known in (sandbox.spec for sandbox in self.sandboxes.values()):
            if (known.name, known.namespace, known.uid, known.attempt) == wanted:
                raise RuntimeCallError("run_sandbox", f'name "{spec.name}" is reserved')
        if spec.runtime_handler not in self.runtime_features.handlers:
            text = f'no runtime for "{spec.runtime_handler}" is configured'
            raise RuntimeCallError("run_sandbox", text)
        number = next(self._numbers)
        row = Sandbox(
            id=f"{number:064x}",
            name=spec.name,
            namespace=spec.namespace,
            uid=spec.uid,
            attempt=spec.attempt,
            state=SandboxState.READY,
            created_at_ns=self._now_ns(),
            labels=dict(spec.labels),
            annotations=dict(spec.annotations),
        )
        ip = "" if spec.host_network else f"10.88.0.{number % 250 + 2}"
        self.sandboxes[row.id] = FakeSandbox(spec, row, ip, pid=1_000_000 + number)
        self.tell(row.id, EventKind.CREATED)
        self.tell(row.id, EventKind.STARTED)
        return row.id

    @changing
    async def stop_sandbox(self, sandbox_id: str) -> None:
        await self.begin("stop_sandbox", sandbox_id)
        if sandbox := self.sandboxes.get(sandbox_id):
            for container_id in self._containers_of(sandbox_id):
                self._stop(container_id)
            if sandbox.row.state is SandboxState.READY:
                self.tell(sandbox_id, EventKind.STOPPED)
            sandbox.row = replace(sandbox.row, state=SandboxState.NOT_READY)
            sandbox.pid, sandbox.ip = None, ""

    @changing
    async def remove_sandbox(self, sandbox_id: str) -> None:
        await self.begin("remove_sandbox", sandbox_id)
        for container_id in self._containers_of(sandbox_id):
            del self.containers[container_id]
            self.tell(container_id, EventKind.DELETED)
        if self.sandboxes.pop(sandbox_id, None):
            self.tell(sandbox_id, EventKind.DELETED)

    async def list_sandboxes(self) -> Sequence[Sandbox]:
        await self.begin("list_sandboxes")
        return tuple(sandbox.row for sandbox in self.sandboxes.values())

    async def sandbox_detail(self, sandbox_id: str) -> SandboxDetail:
        await self.begin("sandbox_detail", sandbox_id)
        sandbox = self._sandbox("sandbox_detail", sandbox_id)
        return SandboxDetail(sandbox.row, (sandbox.ip,) if sandbox.ip else (), sandbox.pid)

    async def sandbox_usage(self) -> Sequence[SandboxUsage]:
        await self.begin("sandbox_usage")
        rows = [container.row for container in self.containers.values()]
        return tuple(
            fake_sandbox_usage(sandbox.row, [row for row in rows if row.sandbox_id == sandbox_id])
            for sandbox_id, sandbox in self.sandboxes.items()
        )

    # ---- the role: containers

    @changing
    async def create_container(
        self, sandbox_id: str, spec: ContainerSpec, sandbox: SandboxSpec
    ) -> str:
        await self.begin("create_container", spec.name)
        self._sandbox("create_container", sandbox_id)
        image = next((i for i in self.images_known.values() if spec.image in (i.id, *i.tags)), None)
        if image is None:
            raise RuntimeNotFound("create_container", f'image "{spec.image}": not found')
        for known in (self.containers[c].spec for c in self._containers_of(sandbox_id)):
            if (known.name, known.attempt) == (spec.name, spec.attempt):
                raise RuntimeCallError("create_container", f'name "{spec.name}" is reserved')
        row = Container(
            id=f"{next(self._numbers):064x}",
            sandbox_id="",
            name=spec.name,
            attempt=spec.attempt,
            image=spec.image,
            image_ref=image.id,
            state=ContainerState.CREATED,
            created_at_ns=self._now_ns(),
            labels=dict(spec.labels),
            annotations=dict(spec.annotations),
        )
        log_path = str(Path(sandbox.log_directory, spec.log_path)) if spec.log_path else ""
        detail = ContainerDetail(container=row, log_path=log_path, resources=_told(spec.resources))
        self.containers[row.id] = FakeContainer(spec, sandbox_id, detail, spec.resources)
        self.tell(row.id, EventKind.CREATED)
        return row.id

    @changing
    async def start_container(self, container_id: str) -> None:
        await self.begin("start_container", container_id)
        container = self._container("start_container", container_id)
        if container.state is not ContainerState.CREATED:
            raise RuntimeCallError("start_container", f"container is {container.state.value}")
        pid = 2_000_000 + int(container_id, 16)
        container.turn(ContainerState.RUNNING, started_at_ns=self._now_ns(), pid=pid)
        self.tell(container_id, EventKind.STARTED)

    @left_running
    async def stop_container(self, container_id: str, *, timeout_s: int) -> None:
        await self.begin("stop_container", container_id)
        self._stop(container_id)

    @changing
    async def remove_container(self, container_id: str) -> None:
        await self.begin("remove_container", container_id)
        if self.containers.pop(container_id, None):
            self.tell(container_id, EventKind.DELETED)

    async def list_containers(self) -> Sequence[Container]:
        await self.begin("list_containers")
        return tuple(container.row for container in self.containers.values())

    async def container_detail(self, container_id: str) -> ContainerDetail:
        await self.begin("container_detail", container_id)
        return self._container("container_detail", container_id).detail

    async def checkpoint_container(
        self, container_id: str, *, location: str, timeout_s: float
    ) -> None:
        await self.begin("checkpoint_container", container_id)
        self._running("checkpoint_container", container_id)
        await asyncio.to_thread(write_archive, Path(location), self.archive_members)

    async def resume_container(self, container_id: str) -> bool:
        await self.begin("resume_container", container_id)
        self._container("resume_container", container_id)
        paused = container_id in self.paused
        self.paused.discard(container_id)
        return paused

    async def exec_sync(
        self, container_id: str, command: Sequence[str], *, timeout_s: float
    ) -> ExecResult:
        await self.begin("exec_sync", container_id)
        self._running("exec_sync", container_id)
        return self.on_exec(container_id, command)

    @changing
    async def update_resources(self, container_id: str, resources: LinuxResources) -> None:
        await self.begin("update_resources", container_id)
        container = self._container("update_resources", container_id)
        container.resources = resources
        container.detail = replace(container.detail, resources=_told(resources))

    @changing
    async def reopen_log(self, container_id: str) -> None:
        await self.begin("reopen_log", container_id)
        self._running("reopen_log", container_id)
        self.reopened.append(container_id)

    async def container_usage(self, container_id: str = "") -> Sequence[ContainerUsage]:
        await self.begin("container_usage", container_id)
        running = [c for c in self.containers.values() if c.state is ContainerState.RUNNING]
        return tuple(fake_usage(one.row) for one in running if container_id in ("", one.row.id))

    async def close(self) -> None:
        self.closed = True

    # ---- inside

    def _now_ns(self) -> int:
        return EPOCH_NS + next(self._numbers) * _MILLISECOND_NS

    def _containers_of(self, sandbox_id: str) -> list[str]:
        return [key for key, c in self.containers.items() if c.sandbox_id == sandbox_id]

    def _stop(self, container_id: str) -> None:
        container = self.containers.get(container_id)
        if container and container.state is ContainerState.RUNNING:
            self.exit(container_id, self.code_of_stopped)

    def _sandbox(self, operation: str, sandbox_id: str) -> FakeSandbox:
        if sandbox := self.sandboxes.get(sandbox_id):
            return sandbox
        raise RuntimeNotFound(operation, f'sandbox "{sandbox_id}": not found')

    def _ready(self, sandbox_id: str) -> None:
        if self._sandbox("open_port_forward", sandbox_id).row.state is not SandboxState.READY:
            raise RuntimeCallError("open_port_forward", f'sandbox "{sandbox_id}" is not running')

    def _container(self, operation: str, container_id: str) -> FakeContainer:
        if container := self.containers.get(container_id):
            return container
        raise RuntimeNotFound(operation, f'container "{container_id}": not found')

    def _running(self, operation: str, container_id: str) -> None:
        container = self._container(operation, container_id)
        if container.state is not ContainerState.RUNNING:
            raise RuntimeCallError(operation, f"container is {container.state.value}, not running")


def _exec_nothing(_container_id: str, _command: Sequence[str]) -> ExecResult:
    return ExecResult(0, b"", b"")


def _told(resources: LinuxResources) -> LinuxResources:
    """What a status says of them."""
    return replace(resources, oom_score_adj=None, unified={})
