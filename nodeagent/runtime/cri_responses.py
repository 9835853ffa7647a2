"""CRI messages → the agent's values, and failed calls → its errors; pure.

An unset sub-message is None, an enum value that this definition does not know becomes the harmless
one, and the free-form `info` of verbose responses is read for the process id only. Knows the names
of gRPC status codes, but not grpc; error texts have the form of other CRI clients (`rpc error: code
= Unavailable desc = …`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from nodeagent.psi import Pressure, PressureLine
from nodeagent.runtime import cri_pb2 as pb
from nodeagent.runtime.base import (
    Container,
    ContainerDetail,
    ContainerEvent,
    ContainerState,
    ContainerUsage,
    EventKind,
    ExecResult,
    FilesystemUsage,
    Image,
    InterfaceUsage,
    RuntimeAnswerTooLarge,
    RuntimeCallError,
    RuntimeCondition,
    RuntimeFeatures,
    RuntimeNotFound,
    RuntimeNotSupported,
    RuntimeTimeout,
    RuntimeUnavailable,
    RuntimeVersion,
    Sandbox,
    SandboxDetail,
    SandboxState,
    SandboxUsage,
)

Row = TypeVar("Row")

_CONTAINER_STATES = {
    pb.CONTAINER_CREATED: ContainerState.CREATED,
    pb.CONTAINER_RUNNING: ContainerState.RUNNING,
    pb.CONTAINER_EXITED: ContainerState.EXITED,
}

_SHOWN = 4096  # characters of a text for a pod's status; it may quote a command of megabytes

_EVENTS = {
    pb.CONTAINER_CREATED_EVENT: EventKind.CREATED,
    pb.CONTAINER_STARTED_EVENT: EventKind.STARTED,
    pb.CONTAINER_STOPPED_EVENT: EventKind.STOPPED,
    pb.CONTAINER_DELETED_EVENT: EventKind.DELETED,
}


def version(response: Any) -> RuntimeVersion:
    return RuntimeVersion(
        name=response.runtime_name,
        version=response.runtime_version,
        api_version=response.runtime_api_version,
    )


def conditions(response: Any) -> tuple[RuntimeCondition, ...]:
    return tuple(
        RuntimeCondition(type=c.type, status=c.status, reason=c.reason, message=c.message)
        for c in response.status.conditions
    )


def features(response: Any) -> RuntimeFeatures:
    return RuntimeFeatures(
        handlers=frozenset(handler.name for handler in response.runtime_handlers),
        strict_groups=response.features.supplemental_groups_policy,
        recursive_readonly=frozenset(
            handler.name
            for handler in response.runtime_handlers
            if handler.features.recursive_read_only_mounts
        ),
    )


def sandbox(item: Any) -> Sandbox:
    """From a PodSandbox or a PodSandboxStatus, whose fields have the same names."""
    ready = item.state == pb.SANDBOX_READY
    return Sandbox(
        id=item.id,
        name=item.metadata.name,
        namespace=item.metadata.namespace,
        uid=item.metadata.uid,
        attempt=item.metadata.attempt,
        state=SandboxState.READY if ready else SandboxState.NOT_READY,
        created_at_ns=item.created_at,
        labels=dict(item.labels),
        annotations=dict(item.annotations),
    )


def sandbox_detail(response: Any) -> SandboxDetail:
    """The status of a sandbox, which has no addresses on the host's network."""
    network = response.status.network
    addresses = [network.ip, *(extra.ip for extra in network.additional_ips)]
    return SandboxDetail(
        sandbox=sandbox(response.status),
        ips=tuple(address for address in addresses if address),
        pid=process_id(response.info),
    )


def container(item: Any) -> Container:
    return _container(item, item.pod_sandbox_id)


def _container(item: Any, sandbox_id: str) -> Container:
    """From a Container or a ContainerStatus, whose other fields have the same names."""
    return Container(
        id=item.id,
        sandbox_id=sandbox_id,
        name=item.metadata.name,
        attempt=item.metadata.attempt,
        image=item.image.image,
        image_ref=item.image_ref,
        state=container_state(item.state),
        created_at_ns=item.created_at,
        labels=dict(item.labels),
        annotations=dict(item.annotations),
    )


class RowCache(Generic[Row]):
    """Rows of a list that is fetched repeatedly; a row is rebuilt only when its state differs.

    Nothing else about a sandbox or container changes in CRI after its creation.
    """

    def __init__(self, build: Callable[[Any], Row]) -> None:
        self._build = build
        self._rows: dict[str, tuple[int, Row]] = {}

    @property
    def ids(self) -> Iterable[str]:
        return self._rows.keys()

    def of(self, items: Iterable[Any]) -> tuple[Row, ...]:
        """The rows of these items; rows that are no longer listed are dropped."""
        known, self._rows = self._rows, {}
        for item in items:
            id_, state = item.id, item.state
            entry = known.get(id_)
            if entry is None or entry[0] != state:
                entry = (state, self._build(item))
            self._rows[id_] = entry
        return tuple(row for _, row in self._rows.values())


def container_detail(response: Any) -> ContainerDetail:
    """The status of a container; CRI does not report its sandbox here, so `sandbox_id` is ""."""
    status = response.status
    return ContainerDetail(
        container=_container(status, sandbox_id=""),
        started_at_ns=status.started_at,
        finished_at_ns=status.finished_at,
        exit_code=status.exit_code,
        reason=status.reason[:_SHOWN],
        message=status.message[:_SHOWN],
        log_path="" if "\0" in status.log_path else status.log_path,
        pid=process_id(response.info),
    )


def container_state(state: int) -> ContainerState:
    return _CONTAINER_STATES.get(state, ContainerState.UNKNOWN)


def container_event(item: Any) -> ContainerEvent | None:
    """None for an unknown kind of event."""
    kind = _EVENTS.get(item.container_event_type)
    return ContainerEvent(item.container_id, kind, item.created_at) if kind else None


def process_id(info: Any) -> int | None:
    """The `pid` in the JSON under `info` of a verbose response; None without one."""
    try:
        described = json.loads(info.get("info", "") or "{}")
    except (ValueError, RecursionError):
        return None
    pid = described.get("pid") if isinstance(described, dict) else None
    return pid if type(pid) is int and pid > 0 else None


def exec_result(response: Any) -> ExecResult:
    return ExecResult(exit_code=response.exit_code, stdout=response.stdout, stderr=response.stderr)


def image(item: Any) -> Image:
    return Image(
        id=item.id,
        tags=tuple(item.repo_tags),
        digests=tuple(item.repo_digests),
        size_bytes=item.size,
        pinned=item.pinned,
        uid=_value(item, "uid"),
        username=item.username,
    )


def image_filesystems(response: Any) -> tuple[FilesystemUsage, ...]:
    return tuple(
        FilesystemUsage(
            mountpoint=usage.fs_id.mountpoint,
            used_bytes=usage.used_bytes.value,
            inodes_used=_value(usage, "inodes_used"),
            timestamp_ns=usage.timestamp,
        )
        for usage in response.image_filesystems
    )


def container_usage(stats: Any) -> ContainerUsage:
    """The usage of one container from a ContainerStats message.

    containerd measures layers every ten seconds; one not measured yet has 0 bytes and no stamp.
    """
    layer = stats.writable_layer
    is_measured = layer.timestamp or _value(layer, "used_bytes")
    return ContainerUsage(
        id=stats.attributes.id,
        name=stats.attributes.metadata.name,
        labels=dict(stats.attributes.labels),
        writable_layer_used_bytes=_value(layer, "used_bytes") if is_measured else None,
        writable_layer_inodes_used=_value(layer, "inodes_used") if is_measured else None,
        writable_layer_timestamp_ns=layer.timestamp,
        swap_available_bytes=_value(stats.swap, "swap_available_bytes"),
        swap_usage_bytes=_value(stats.swap, "swap_usage_bytes"),
        **_shared(stats),
    )


def sandbox_usage(stats: Any) -> SandboxUsage:
    """The usage of one pod from a PodSandboxStats message."""
    attributes, linux = stats.attributes, stats.linux
    network = linux.network
    interfaces = list(network.interfaces)
    if network.HasField("default_interface"):
        interfaces.insert(0, network.default_interface)
    return SandboxUsage(
        namespace=attributes.metadata.namespace,
        uid=attributes.metadata.uid,
        total=ContainerUsage(
            id=attributes.id,
            name=attributes.metadata.name,
            labels=dict(attributes.labels),
            writable_layer_used_bytes=None,
            writable_layer_inodes_used=None,
            **_shared(linux),
        ),
        network_timestamp_ns=network.timestamp,
        interfaces=tuple(_interface(item) for item in interfaces),
        process_count=_value(linux.process, "process_count"),
        containers=tuple(container_usage(item) for item in linux.containers),
    )


def pressure(psi: Any) -> Pressure:
    """The two lines of a PsiStats message; `full` is None when the runtime omits it."""
    return Pressure(
        some=_pressure_line(psi.Some),
        full=_pressure_line(psi.Full) if psi.HasField("Full") else None,
    )


def _shared(stats: Any) -> dict[str, Any]:
    """The fields that containers and pods share, by their names in ContainerUsage."""
    cpu, memory = stats.cpu, stats.memory
    return {
        "cpu_usage_core_ns": _value(cpu, "usage_core_nano_seconds"),
        "cpu_usage_nano_cores": _value(cpu, "usage_nano_cores"),
        "cpu_timestamp_ns": cpu.timestamp,
        "memory_timestamp_ns": memory.timestamp,
        "memory_working_set_bytes": _value(memory, "working_set_bytes"),
        "memory_available_bytes": _value(memory, "available_bytes"),
        "memory_usage_bytes": _value(memory, "usage_bytes"),
        "memory_rss_bytes": _value(memory, "rss_bytes"),
        "page_faults": _value(memory, "page_faults"),
        "major_page_faults": _value(memory, "major_page_faults"),
        "cpu_pressure": _pressure_of(cpu),
        "memory_pressure": _pressure_of(memory),
        "io_pressure": _pressure_of(stats.io),
    }


def _pressure_of(usage: Any) -> Pressure | None:
    return pressure(usage.psi) if usage.HasField("psi") else None


def _pressure_line(data: Any) -> PressureLine:
    """CRI's totals are nanoseconds; the agent uses the kernel's microseconds."""
    return PressureLine(data.Avg10, data.Avg60, data.Avg300, data.Total // 1000)


def _interface(item: Any) -> InterfaceUsage:
    return InterfaceUsage(
        name=item.name,
        rx_bytes=_value(item, "rx_bytes"),
        rx_errors=_value(item, "rx_errors"),
        tx_bytes=_value(item, "tx_bytes"),
        tx_errors=_value(item, "tx_errors"),
    )


def _value(message: Any, name: str) -> int | None:
    return int(getattr(message, name).value) if message.HasField(name) else None


_ANSWERS: dict[str, Callable[[Any, Any], bool]] = {
    "RunPodSandbox": lambda _, response: bool(response.pod_sandbox_id),
    "CreateContainer": lambda _, response: bool(response.container_id),
    "PodSandboxStatus": lambda request, found: found.status.id == request.pod_sandbox_id,
    "ContainerStatus": lambda request, found: found.status.id == request.container_id,
}


def require_answer(operation: str, request: Any, response: Any) -> None:
    """RuntimeCallError for a message that does not answer the request: of nothing, of another."""
    if operation in _ANSWERS and not _ANSWERS[operation](request, response):
        raise RuntimeCallError(operation, f"{operation}: the runtime's answer names another object")


# Runtimes refuse optional calls in two ways: containerd with UNIMPLEMENTED, CRI-O and old runtimes
# with UNKNOWN and a sentence. Some sentences count for optional calls alone: a refused image pull
# may well contain "not supported" about a media type.
OPTIONAL_CALLS = frozenset(
    {
        "CheckpointContainer",
        "GetContainerEvents",
        "ListContainerStats",
        "ListPodSandboxStats",
        "ReopenContainerLog",
        "UpdateContainerResources",
    }
)

_KINDS: dict[str, type[RuntimeCallError]] = {
    "UNAVAILABLE": RuntimeUnavailable,
    "DEADLINE_EXCEEDED": RuntimeTimeout,
    "NOT_FOUND": RuntimeNotFound,
    "UNIMPLEMENTED": RuntimeNotSupported,
}

_REFUSALS_OF_ANY_CALL = ("unknown method", "unknown service", "not implemented")
_REFUSALS_OF_OPTIONAL_CALLS = ("not supported", "not available", "does not support")

# From containerd's shim, which checks its own state, and from runc, which checks the cgroup.
_NOT_PAUSED = ("cannot resume a ", "container not paused")

# gRPC's sentences about a message, from either side, and what makes an answer of CRI so large.
_TOO_LARGE = "message larger than max"
_FREE_IT = "look for pods with large labels or annotations (crictl pods -v) and delete them"

_CODE_TEXTS = {"OK": "OK", "CANCELLED": "Canceled"}  # others follow from the code's name


def from_status(
    operation: str, code: str, details: str, *, overdue: bool = False
) -> RuntimeCallError:
    """The error for a call that ended with a status other than OK.

    `operation` is the CRI method (`StartContainer`), `code` the name of the gRPC status code
    (`NOT_FOUND`), `details` the runtime's own sentence. `overdue`: the call's deadline has passed;
    if the runtime notices that first and cancels the call, it is still a timeout.
    """
    if code == "CANCELLED" and overdue:
        code = "DEADLINE_EXCEEDED"
    kind = _KINDS.get(code, RuntimeCallError)
    if code == "UNKNOWN" and _refuses(operation, details.lower()):
        kind = RuntimeNotSupported
    if code == "RESOURCE_EXHAUSTED" and _TOO_LARGE in details:
        kind, details = RuntimeAnswerTooLarge, f"{details}; {_FREE_IT}"
    return kind(operation, f"rpc error: code = {code_text(code)} desc = {details}")


def is_not_paused(error: RuntimeCallError) -> bool:
    """Whether a container could not be resumed because it was not paused."""
    return any(text in str(error) for text in _NOT_PAUSED)


def code_text(code: str) -> str:
    """`DEADLINE_EXCEEDED` → `DeadlineExceeded`, as Go clients print it."""
    return _CODE_TEXTS.get(code) or "".join(word.capitalize() for word in code.split("_"))


def _refuses(operation: str, details: str) -> bool:
    optional = operation in OPTIONAL_CALLS
    texts = _REFUSALS_OF_ANY_CALL + (_REFUSALS_OF_OPTIONAL_CALLS if optional else ())
    return any(text in details for text in texts)
