"""The role of a container runtime, its values and its errors.

`cri.CriRuntime` plays it over CRI v1 gRPC, the tests' FakeRuntime in memory; both pass one contract
suite. Values are frozen: times in nanoseconds since the epoch, 0 or None for "not yet" or "not
reported". Nothing here knows gRPC, HTTP or the API's pods.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol

from nodeagent.psi import Pressure
from nodeagent.runtime.endpoint import StreamingRuntime
from nodeagent.runtime.isolation import (
    UNCONFINED,
    ContainerUser,
    RuntimeFeatures,
    SeccompSetting,
    SELinuxLabel,
    UserNamespace,
)
from orch.component.secret import Secret


class EventKind(Enum):
    CREATED = "created"
    STARTED = "started"
    STOPPED = "stopped"
    DELETED = "deleted"


class ContainerEvent(NamedTuple):
    """A hint to look at a container or sandbox: it may come late, twice or not at all."""

    id: str
    kind: EventKind
    at_ns: int  # since the epoch


class RuntimeCallError(Exception):
    """The runtime refused or failed the call `operation`; the text is the runtime's."""

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


class RuntimeAnswerTooLarge(RuntimeCallError):
    """The answer exceeds what the runtime sends, or the agent takes, in one message."""


class RuntimeVersion(NamedTuple):
    name: str  # containerd
    version: str  # 2.1.9
    api_version: str  # v1


class RuntimeCondition(NamedTuple):
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


class PortMapping(NamedTuple):
    container_port: int
    host_port: int = 0
    protocol: str = "TCP"  # TCP | UDP | SCTP
    host_ip: str = ""


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """A pod sandbox to run; `attempt` grows with every new sandbox of the same pod."""

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
    shared_pid: bool = False  # one PID namespace for all containers
    privileged: bool = False
    run_as_user: int | None = None
    run_as_group: int | None = None
    supplemental_groups: Sequence[int] = ()
    strict_groups: bool = False  # no further groups from the image
    selinux: SELinuxLabel | None = None
    user_namespace: UserNamespace | None = None  # None: the host's
    runtime_handler: str = ""
    dns_servers: Sequence[str] = ()
    dns_searches: Sequence[str] = ()
    dns_options: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Mount:
    """With `image` set, that image is mounted read-only, and `host_path` is ""."""

    host_path: str
    container_path: str
    readonly: bool = False
    propagation: str = "private"  # private | host_to_container | bidirectional
    recursive_readonly: bool = False
    image: str = ""
    selinux_relabel: bool = False  # what is there gets the container's label, where SELinux is on


class HostDevice(NamedTuple):
    container_path: str
    host_path: str
    permissions: str  # of the letters r, w and m


@dataclass(frozen=True, slots=True)
class LinuxResources:
    """cgroup settings; None leaves the runtime's default."""

    cpu_shares: int | None = None
    cpu_quota_usec: int | None = None
    cpu_period_usec: int | None = None
    memory_limit_bytes: int | None = None
    oom_score_adj: int | None = None
    unified: Mapping[str, str] = field(default_factory=dict)
    hugepage_bytes: Mapping[str, int] = field(default_factory=dict)  # size of a page: 2MB, 1GB


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
    devices: Sequence[HostDevice] = ()
    cdi_devices: Sequence[str] = ()  # vendor.com/class=name
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    log_path: str = ""  # relative to the sandbox's log directory
    stdin: bool = False
    stdin_once: bool = False  # closed with the first client that was attached to it
    tty: bool = False
    pid_of: str = ""  # id of a container whose processes it sees; "": its own, or its pod's
    resources: LinuxResources = field(default_factory=LinuxResources)
    seccomp: SeccompSetting = UNCONFINED
    apparmor: SeccompSetting | None = None  # `localhost_path`: the name of a loaded profile
    privileged: bool = False
    selinux: SELinuxLabel | None = None
    unmasked: bool = False  # /proc as it is: needs a user namespace
    stop_signal: str = ""  # SIGUSR1, SIGRTMIN+1, …; "": the image's, or SIGTERM
    no_new_privileges: bool = False
    readonly_rootfs: bool = False
    run_as_user: int | None = None
    run_as_group: int | None = None
    supplemental_groups: Sequence[int] = ()
    add_capabilities: Sequence[str] = ()
    drop_capabilities: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A row of the runtime's sandbox list."""

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
    """A sandbox's status; `pid` is its first process on the host, None without one."""

    sandbox: Sandbox
    ips: Sequence[str] = ()
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class Container:
    """A row of the runtime's container list."""

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
    """A container's status; exit fields count in state EXITED, `resources` None: not reported."""

    container: Container
    started_at_ns: int = 0
    finished_at_ns: int = 0
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    log_path: str = ""
    pid: int | None = None
    resources: LinuxResources | None = None
    user: ContainerUser | None = None  # that its first process had at its start
    stop_signal: str = ""  # "" from a runtime that heeds none


@dataclass(frozen=True, slots=True)
class Image:
    id: str
    tags: Sequence[str] = ()
    digests: Sequence[str] = ()
    size_bytes: int = 0
    pinned: bool = False  # needed by the runtime
    uid: int | None = None  # the user that it runs as, if it names one by number;
    username: str = ""  # or by name; neither: root


class Login(NamedTuple):
    """Who a registry is told is pulling."""

    user: str
    password: Secret


class ExecResult(NamedTuple):
    exit_code: int
    stdout: bytes
    stderr: bytes


class FilesystemUsage(NamedTuple):
    mountpoint: str
    used_bytes: int
    inodes_used: int | None
    timestamp_ns: int


@dataclass(frozen=True, slots=True)
class ContainerUsage:
    """The runtime's own measurements of a container; missing stamps are 0, all else None."""

    id: str
    name: str
    labels: Mapping[str, str]
    cpu_usage_core_ns: int | None
    cpu_timestamp_ns: int
    memory_working_set_bytes: int | None
    memory_usage_bytes: int | None
    writable_layer_used_bytes: int | None
    writable_layer_inodes_used: int | None
    writable_layer_timestamp_ns: int = 0
    cpu_usage_nano_cores: int | None = None
    memory_timestamp_ns: int = 0
    memory_available_bytes: int | None = None
    memory_rss_bytes: int | None = None
    page_faults: int | None = None
    major_page_faults: int | None = None
    swap_available_bytes: int | None = None
    swap_usage_bytes: int | None = None
    cpu_pressure: Pressure | None = None
    memory_pressure: Pressure | None = None
    io_pressure: Pressure | None = None


class InterfaceUsage(NamedTuple):
    """Counters of a network interface since its creation; None where not reported."""

    name: str
    rx_bytes: int | None
    rx_errors: int | None
    tx_bytes: int | None
    tx_errors: int | None


@dataclass(frozen=True, slots=True)
class SandboxUsage:
    """The runtime's own measurements of a pod as a whole and of each of its containers.

    `total` has the sandbox's id and the pod's name, no writable layer and no swap. The default
    interface comes first.
    """

    namespace: str
    uid: str
    total: ContainerUsage
    network_timestamp_ns: int = 0
    interfaces: Sequence[InterfaceUsage] = ()
    process_count: int | None = None
    containers: Sequence[ContainerUsage] = ()


class ContainerRuntime(StreamingRuntime, Protocol):
    """Every call may raise RuntimeCallError or one of its subclasses; none blocks the loop.

    Stopping and removing are idempotent, also for unknown ids; other calls for an unknown id raise
    RuntimeNotFound. A call that changes something is never cancelled: a cancelled caller waits for
    its end (`loops.finish`), or leaves it running until the next for the same container
    (`stop_container`). A pull, a command and a checkpoint may be broken off.
    """

    endpoint: str

    async def version(self) -> RuntimeVersion: ...
    async def conditions(self) -> Sequence[RuntimeCondition]: ...
    async def features(self) -> RuntimeFeatures: ...
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
        """Resume what an aborted checkpoint left paused; False: it was not. RuntimeNotSupported."""

    async def exec_sync(
        self, container_id: str, command: Sequence[str], *, timeout_s: float
    ) -> ExecResult: ...
    async def update_resources(self, container_id: str, resources: LinuxResources) -> None: ...
    async def reopen_log(self, container_id: str) -> None: ...
    async def container_usage(self, container_id: str = "") -> Sequence[ContainerUsage]:
        """The usage of all containers, or of the given one: empty when it is gone."""
        ...

    async def sandbox_usage(self) -> Sequence[SandboxUsage]: ...

    def events(self) -> AsyncGenerator[ContainerEvent, None]:
        """Changes, until the runtime ends the stream. Close it. RuntimeNotSupported: it has none"""
        ...

    async def image(self, reference: str) -> Image | None: ...
    async def images(self) -> Sequence[Image]: ...
    async def pull_image(self, reference: str, login: Login | None = None) -> str: ...
    async def remove_image(self, reference: str) -> None: ...
    async def image_filesystems(self) -> Sequence[FilesystemUsage]: ...

    async def close(self) -> None: ...
