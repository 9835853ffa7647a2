"""What the agent needs of a container runtime: the role, its values and its errors.

`ContainerRuntime` is the role; `cri.CriRuntime` plays it over CRI v1 gRPC, the tests' FakeRuntime
in memory, and both pass one contract suite. Values are frozen and in the agent's own units: times
in nanoseconds since the epoch where the runtime counts so, 0 or None meaning "not yet".
Nothing here knows gRPC, HTTP or pods as the API writes them.

What a runtime tells by itself: that a container or a sandbox changed; pure values.

An event says that it is worth looking, not what is there: events may come late, twice or not at
all, and states are always read. `base` hands them out under its own name.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from nodeagent.runtime.usage import ContainerUsage as ContainerUsage
from nodeagent.runtime.usage import FilesystemUsage as FilesystemUsage
from nodeagent.runtime.usage import InterfaceUsage as InterfaceUsage
from nodeagent.runtime.usage import SandboxUsage as SandboxUsage


class EventKind(Enum):
    CREATED = "created"
    STARTED = "started"
    STOPPED = "stopped"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class ContainerEvent:
    """`id` is a container's or a sandbox's."""

    id: str
    kind: EventKind
    at_ns: int  # since the epoch


class RuntimeCallError(Exception):
    """The runtime refused or failed a call; `operation` is the call, the text is the runtime's."""

    def __init__(self, operation: str, message: str) -> None:
        super().__init__(message)
        self.operation = operation


class RuntimeUnavailable(RuntimeCallError):
    """The runtime cannot be reached, or did not answer at all."""


class RuntimeTimeout(RuntimeCallError):
    """The call's deadline passed; whether it took effect is unknown."""


class RuntimeNotFound(RuntimeCallError):
    """The sandbox, container or image that the call names does not exist."""


class RuntimeNotSupported(RuntimeCallError):
    """The runtime does not implement the call."""


@dataclass(frozen=True, slots=True)
class RuntimeVersion:
    name: str  # containerd
    version: str  # 2.1.9
    api_version: str  # v1


@dataclass(frozen=True, slots=True)
class RuntimeCondition:
    type: str  # RuntimeReady | NetworkReady
    status: bool
    reason: str = ""
    message: str = ""


class SandboxState(Enum):
    READY = "ready"
    NOT_READY = "notready"


class ContainerState(Enum):
    CREATED = "created"
    RUNNING = "running"
    EXITED = "exited"
    UNKNOWN = "unknown"


class SeccompKind(Enum):
    RUNTIME_DEFAULT = "RuntimeDefault"
    UNCONFINED = "Unconfined"
    LOCALHOST = "Localhost"


@dataclass(frozen=True, slots=True)
class SeccompSetting:
    kind: SeccompKind
    localhost_path: str = ""  # absolute, only for LOCALHOST


@dataclass(frozen=True, slots=True)
class PortMapping:
    container_port: int
    host_port: int = 0
    protocol: str = "TCP"  # TCP | UDP | SCTP
    host_ip: str = ""


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """A pod sandbox to run; `attempt` grows when a sandbox of the same pod is made anew."""

    name: str
    namespace: str
    uid: str
    attempt: int = 0
    hostname: str = ""
    log_directory: str = ""
    cgroup_parent: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    port_mappings: Sequence[PortMapping] = ()
    sysctls: Mapping[str, str] = field(default_factory=dict)
    host_network: bool = False
    host_pid: bool = False
    host_ipc: bool = False
    privileged: bool = False
    run_as_user: int | None = None
    run_as_group: int | None = None
    supplemental_groups: Sequence[int] = ()
    dns_servers: Sequence[str] = ()
    dns_searches: Sequence[str] = ()
    dns_options: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Mount:
    """`image` names an image to mount read-only instead of `host_path`, which is "" then."""

    host_path: str
    container_path: str
    readonly: bool = False
    propagation: str = "private"  # private | host_to_container | bidirectional
    recursive_readonly: bool = False
    image: str = ""


@dataclass(frozen=True, slots=True)
class LinuxResources:
    """cgroup settings; None leaves the runtime's default."""

    cpu_shares: int | None = None
    cpu_quota_usec: int | None = None
    cpu_period_usec: int | None = None
    memory_limit_bytes: int | None = None
    oom_score_adj: int | None = None
    unified: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    name: str
    attempt: int
    image: str
    command: Sequence[str] = ()
    args: Sequence[str] = ()
    working_dir: str = ""
    env: Sequence[tuple[str, str]] = ()
    mounts: Sequence[Mount] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    log_path: str = ""  # relative to the sandbox's log directory
    stdin: bool = False
    tty: bool = False
    resources: LinuxResources = field(default_factory=LinuxResources)
    seccomp: SeccompSetting = SeccompSetting(SeccompKind.UNCONFINED)
    privileged: bool = False
    no_new_privileges: bool = False
    readonly_rootfs: bool = False
    run_as_user: int | None = None
    run_as_group: int | None = None
    supplemental_groups: Sequence[int] = ()
    add_capabilities: Sequence[str] = ()
    drop_capabilities: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Sandbox:
    """One row of the runtime's sandbox list."""

    id: str
    name: str
    namespace: str
    uid: str
    attempt: int
    state: SandboxState
    created_at_ns: int
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SandboxDetail:
    """A sandbox's own status; `pid` is its first process on the host, None when it has none."""

    sandbox: Sandbox
    ips: Sequence[str] = ()
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class Container:
    """One row of the runtime's container list."""

    id: str
    sandbox_id: str
    name: str
    attempt: int
    image: str
    image_ref: str
    state: ContainerState
    created_at_ns: int
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ContainerDetail:
    """A container's own status; exit fields mean something only in state EXITED."""

    container: Container
    started_at_ns: int = 0
    finished_at_ns: int = 0
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    log_path: str = ""
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class Image:
    id: str
    tags: Sequence[str] = ()
    digests: Sequence[str] = ()
    size_bytes: int = 0
    pinned: bool = False  # the runtime itself needs it


@dataclass(frozen=True, slots=True)
class ExecResult:
    exit_code: int
    stdout: bytes
    stderr: bytes


class ContainerRuntime(Protocol):
    """Every call may raise RuntimeCallError or one of its subclasses; none blocks the loop.

    Stopping and removing may be repeated, and what is unknown counts as stopped and removed; any
    other call for what is unknown raises RuntimeNotFound. The contract suite of the tests holds
    every implementation to this.
    """

    endpoint: str

    async def version(self) -> RuntimeVersion: ...
    async def conditions(self) -> Sequence[RuntimeCondition]: ...

    async def run_sandbox(self, spec: SandboxSpec) -> str: ...
    async def stop_sandbox(self, sandbox_id: str) -> None: ...
    async def remove_sandbox(self, sandbox_id: str) -> None: ...
    async def list_sandboxes(self) -> Sequence[Sandbox]: ...
    async def sandbox_detail(self, sandbox_id: str) -> SandboxDetail: ...

    async def create_container(
        self, sandbox_id: str, spec: ContainerSpec, sandbox: SandboxSpec
    ) -> str: ...
    async def start_container(self, container_id: str) -> None: ...
    async def stop_container(self, container_id: str, *, timeout_s: int) -> None: ...
    async def remove_container(self, container_id: str) -> None: ...
    async def list_containers(self) -> Sequence[Container]: ...
    async def container_detail(self, container_id: str) -> ContainerDetail: ...
    async def checkpoint_container(
        self, container_id: str, *, location: str, timeout_s: float
    ) -> None: ...
    async def resume_container(self, container_id: str) -> bool:
        """Let a container that a broken-off checkpoint left paused run on; False: it was not.

        RuntimeNotSupported: the runtime has no way to do it; its cgroup is all there is.
        """
        ...

    async def exec_sync(
        self, container_id: str, command: Sequence[str], *, timeout_s: float
    ) -> ExecResult: ...
    async def update_resources(self, container_id: str, resources: LinuxResources) -> None: ...
    async def reopen_log(self, container_id: str) -> None: ...
    async def container_usage(self, container_id: str = "") -> Sequence[ContainerUsage]:
        """Of all containers, or of this one alone: none where it is gone."""
        ...

    async def sandbox_usage(self) -> Sequence[SandboxUsage]: ...

    def events(self) -> AsyncGenerator[ContainerEvent, None]:
        """Changes of any container or sandbox as they happen, for as long as the runtime tells.

        Close it when done. The stream ends without an error when the runtime ends it.
        RuntimeNotSupported: the runtime tells nothing by itself.
        """
        ...

    async def image(self, reference: str) -> Image | None: ...
    async def images(self) -> Sequence[Image]: ...
    async def pull_image(self, reference: str) -> str: ...
    async def remove_image(self, reference: str) -> None: ...
    async def image_filesystems(self) -> Sequence[FilesystemUsage]: ...

    async def close(self) -> None: ...
