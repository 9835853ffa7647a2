"""CRI messages → the agent's values, and failed calls → its errors; pure.

An unset sub-message is None, an enum value that this definition does not know becomes the harmless
one, and the free-form `info` of verbose responses is read for the process id only. Knows the names
of gRPC status codes, but not grpc; error texts are as other CRI clients' (`rpc error: code = …`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import orjson

from nodeagent.runtime import cri_pb2 as pb
from nodeagent.runtime.base import (
    Container,
    ContainerDetail,
    ContainerEvent,
    ContainerState,
    EventKind,
    ExecResult,
    Image,
    RuntimeAnswerTooLarge,
    RuntimeCallError,
    RuntimeCondition,
    RuntimeNotFound,
    RuntimeNotSupported,
    RuntimeTimeout,
    RuntimeUnavailable,
    RuntimeVersion,
    Sandbox,
    SandboxDetail,
    SandboxState,
)
from nodeagent.runtime.cri_requests import told_resources
from nodeagent.runtime.isolation import ContainerUser, RuntimeFeatures

Row = TypeVar("Row")

_CONTAINER_STATES = {
    pb.CONTAINER_CREATED: ContainerState.CREATED,
    pb.CONTAINER_RUNNING: ContainerState.RUNNING,
    pb.CONTAINER_EXITED: ContainerState.EXITED,
}

_GROUPS_SHOWN = 1024  # of a container's user
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
        user_namespaces=frozenset(
            handler.name
            for handler in response.runtime_handlers
            if handler.features.user_namespaces
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
        resources=told_resources(status),
        user=_user(status.user),
        stop_signal=_signal(status.stop_signal),
    )


def _user(message: Any) -> ContainerUser | None:
    if not message.HasField("linux"):
        return None
    user = message.linux
    return ContainerUser(user.uid, user.gid, tuple(user.supplemental_groups[:_GROUPS_SHOWN]))


def _signal(value: int) -> str:
    if value == pb.RUNTIME_DEFAULT or value not in pb.Signal.values():
        return ""
    return str(pb.Signal.Name(value)).replace("PLUS", "+").replace("MINUS", "-")


def container_state(state: int) -> ContainerState:
    return _CONTAINER_STATES.get(state, ContainerState.UNKNOWN)


def container_event(item: Any) -> ContainerEvent | None:
    """None for an unknown kind of event."""
    kind = _EVENTS.get(item.container_event_type)
    return ContainerEvent(item.container_id, kind, item.created_at) if kind else None


def process_id(info: Any) -> int | None:
    """The `pid` in the JSON under `info` of a verbose response; None without one."""
    try:
        described = orjson.loads(info.get("info", "") or "{}")  # it may have megabytes
    except ValueError:
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
        uid=item.uid.value if item.HasField("uid") else None,
        username=item.username,
    )


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


# containerd refuses optional calls with UNIMPLEMENTED, others with UNKNOWN and a sentence. Some of
# those count for optional calls alone: a refused image pull may well say "not supported".
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
_EXEC_BYTES = 1024 * 1024  # of a command's output: all containers of a node may run one at once
_EXEC = {"service": "runtime.v1.RuntimeService", "method": "ExecSync"}
# What gRPC takes of the answers of single methods.
BOUNDS = json.dumps({"methodConfig": [{"name": [_EXEC], "maxResponseMessageBytes": _EXEC_BYTES}]})
_PRINT_LESS = "the command has to print less"
_FREE_IT = "look for pods with large labels or annotations (crictl pods -v) and delete them"

_CODE_TEXTS = {"OK": "OK", "CANCELLED": "Canceled"}  # others follow from the code's name


_UNCONNECTED = re.compile(r"connect failed: addr: (\S+) error: ([^;:]{1,100})")  # as gRPC says it
_FIND_IT = "start the runtime, or set containerRuntimeEndpoint to its socket"


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
    what_to_do = _PRINT_LESS if operation == _EXEC["method"] else _FREE_IT
    if code == "RESOURCE_EXHAUSTED" and _TOO_LARGE in details:
        kind, details = RuntimeAnswerTooLarge, f"{details}; {what_to_do}"
    if unconnected := _UNCONNECTED.search(details):
        address, cause = unconnected.groups()
        details = f"cannot connect to {address}: {cause.lower()}; {_FIND_IT}"
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
