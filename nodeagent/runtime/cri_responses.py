"""CRI messages → the agent's values; pure.

Reads what runtimes really send: an unset sub-message is "not reported" (None), an enum value this
definition does not know becomes the harmless one, and the free-form `info` of verbose answers is
read for the process id only.

A failed CRI call → the error of `base` that callers tell apart.

Knows the names of gRPC status codes, but not grpc itself. Texts have the form operators know from
other CRI clients: `rpc error: code = Unavailable desc = …`.

Optional calls are refused in two ways: containerd answers UNIMPLEMENTED, CRI-O and older runtimes
answer UNKNOWN with a sentence. Both mean "not supported". The sentences are looked for only in
answers to optional calls: a refused image pull may well say "not supported" of a media type.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from nodeagent.runtime import cri_pb2 as pb
from nodeagent.runtime.base import (
    Container,
    ContainerDetail,
    ContainerEvent,
    ContainerState,
    EventKind,
    ExecResult,
    FilesystemUsage,
    Image,
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

Row = TypeVar("Row")

_CONTAINER_STATES = {
    pb.CONTAINER_CREATED: ContainerState.CREATED,
    pb.CONTAINER_RUNNING: ContainerState.RUNNING,
    pb.CONTAINER_EXITED: ContainerState.EXITED,
}

_EVENTS = {
    pb.CONTAINER_CREATED_EVENT: EventKind.CREATED,
    pb.CONTAINER_STARTED_EVENT: EventKind.STARTED,
    pb.CONTAINER_STOPPED_EVENT: EventKind.STOPPED,
    pb.CONTAINER_DELETED_EVENT: EventKind.DELETED,
}


def version(answer: Any) -> RuntimeVersion:
    return RuntimeVersion(
        name=answer.runtime_name,
        version=answer.runtime_version,
        api_version=answer.runtime_api_version,
    )


def conditions(answer: Any) -> tuple[RuntimeCondition, ...]:
    return tuple(
        RuntimeCondition(type=c.type, status=c.status, reason=c.reason, message=c.message)
        for c in answer.status.conditions
    )


def sandbox(item: Any) -> Sandbox:
    """A Sandbox from a PodSandbox or a PodSandboxStatus, whose names agree."""
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


def sandbox_detail(answer: Any) -> SandboxDetail:
    """The status of a sandbox; on the host's network it has no addresses of its own."""
    network = answer.status.network
    addresses = [network.ip, *(extra.ip for extra in network.additional_ips)]
    return SandboxDetail(
        sandbox=sandbox(answer.status),
        ips=tuple(address for address in addresses if address),
        pid=process_id(answer.info),
    )


def container(item: Any) -> Container:
    return Container(
        id=item.id,
        sandbox_id=item.pod_sandbox_id,
        name=item.metadata.name,
        attempt=item.metadata.attempt,
        image=item.image.image,
        image_ref=item.image_ref,
        state=container_state(item.state),
        created_at_ns=item.created_at,
        labels=dict(item.labels),
        annotations=dict(item.annotations),
    )


class Rows(Generic[Row]):
    """The rows of one list again and again: only one whose state differs is made anew.

    Nothing else of a sandbox or container changes in CRI once it is made.
    """

    def __init__(self, make: Callable[[Any], Row]) -> None:
        self._make = make
        self._rows: dict[str, tuple[int, Row]] = {}

    def of(self, items: Iterable[Any]) -> tuple[Row, ...]:
        """The rows of these items; what was not listed again is forgotten."""
        known, self._rows = self._rows, {}
        for item in items:
            one, state = item.id, item.state
            entry = known.get(one)
            if entry is None or entry[0] != state:
                entry = (state, self._make(item))
            self._rows[one] = entry
        return tuple(row for _, row in self._rows.values())


def container_detail(answer: Any) -> ContainerDetail:
    """The status of a container; CRI does not tell its sandbox here, so `sandbox_id` is ""."""
    status = answer.status
    return ContainerDetail(
        container=Container(
            id=status.id,
            sandbox_id="",
            name=status.metadata.name,
            attempt=status.metadata.attempt,
            image=status.image.image,
            image_ref=status.image_ref,
            state=container_state(status.state),
            created_at_ns=status.created_at,
            labels=dict(status.labels),
            annotations=dict(status.annotations),
        ),
        started_at_ns=status.started_at,
        finished_at_ns=status.finished_at,
        exit_code=status.exit_code,
        reason=status.reason,
        message=status.message,
        log_path=status.log_path,
        pid=process_id(answer.info),
    )


def container_state(state: int) -> ContainerState:
    return _CONTAINER_STATES.get(state, ContainerState.UNKNOWN)


def container_event(item: Any) -> ContainerEvent | None:
    """None for a kind of event that is not known here."""
    kind = _EVENTS.get(item.container_event_type)
    return ContainerEvent(item.container_id, kind, item.created_at) if kind else None


def process_id(info: Any) -> int | None:
    """The `pid` in the JSON that a verbose answer carries under `info`; None when there is none."""
    try:
        described = json.loads(info.get("info", "") or "{}")
    except ValueError:
        return None
    pid = described.get("pid") if isinstance(described, dict) else None
    return pid if isinstance(pid, int) and pid > 0 else None


def exec_result(answer: Any) -> ExecResult:
    return ExecResult(exit_code=answer.exit_code, stdout=answer.stdout, stderr=answer.stderr)


def image(item: Any) -> Image:
    return Image(
        id=item.id,
        tags=tuple(item.repo_tags),
        digests=tuple(item.repo_digests),
        size_bytes=item.size,
        pinned=item.pinned,
    )


def image_filesystems(answer: Any) -> tuple[FilesystemUsage, ...]:
    return tuple(
        FilesystemUsage(
            mountpoint=usage.fs_id.mountpoint,
            used_bytes=usage.used_bytes.value,
            inodes_used=usage.inodes_used.value if usage.HasField("inodes_used") else None,
            timestamp_ns=usage.timestamp,
        )
        for usage in answer.image_filesystems
    )


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

# containerd's shim by its own state, runc by the cgroup's
_NOT_PAUSED = ("cannot resume a ", "container not paused")

_CODE_TEXTS = {"OK": "OK", "CANCELLED": "Canceled"}  # the rest follow from the code's name


def from_status(
    operation: str, code: str, details: str, *, overdue: bool = False
) -> RuntimeCallError:
    """The error for a call that ended with a status other than OK.

    `operation` is the CRI method (`StartContainer`), `code` the name of the gRPC status code
    (`NOT_FOUND`), `details` the runtime's own sentence. `overdue`: the call's deadline has passed;
    a runtime that notices it first cancels the call, which is a timeout all the same.
    """
    if code == "CANCELLED" and overdue:
        code = "DEADLINE_EXCEEDED"
    kind = _KINDS.get(code, RuntimeCallError)
    if code == "UNKNOWN" and _refuses(operation, details.lower()):
        kind = RuntimeNotSupported
    return kind(operation, f"rpc error: code = {code_text(code)} desc = {details}")


def says_not_paused(error: RuntimeCallError) -> bool:
    """Tell whether a container was not resumed because nothing had paused it."""
    return any(text in str(error) for text in _NOT_PAUSED)


def code_text(code: str) -> str:
    """`DEADLINE_EXCEEDED` → `DeadlineExceeded`, as Go clients print it."""
    return _CODE_TEXTS.get(code) or "".join(word.capitalize() for word in code.split("_"))


def _refuses(operation: str, details: str) -> bool:
    optional = operation in OPTIONAL_CALLS
    texts = _REFUSALS_OF_ANY_CALL + (_REFUSALS_OF_OPTIONAL_CALLS if optional else ())
    return any(text in details for text in texts)
