"""Pods, sandboxes and containers for tests: short constructors with sensible rest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nodeagent.pods.observed import ObservedPod, observed_pod
from nodeagent.pods.resize.sizes import container_size, definition
from nodeagent.pods.spec import spec
from nodeagent.runtime.base import (
    Container,
    ContainerDetail,
    ContainerState,
    Sandbox,
    SandboxDetail,
    SandboxState,
)
from orch.wire import names
from orch.wire.records.pods import Container as ContainerRecord
from orch.wire.records.pods import Pod

UID = "11111111-2222-3333-4444-555555555555"
SECOND_NS = 1_000_000_000
T0_NS = 1_700_000_000 * SECOND_NS


def pod(*containers: Any, **spec: Any) -> Pod:
    """A pod `default/web`; containers are names or container data."""
    records = [one if isinstance(one, dict) else container_data(one) for one in containers]
    meta = {"name": "web", "namespace": "default", "uid": UID, **spec.pop("metadata", {})}
    status = spec.pop("status", {})
    listed = records or [container_data("app")]
    return Pod.from_wire(
        {"metadata": meta, "spec": {"containers": listed, **spec}, "status": status}
    )


def container_data(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": "localhost/busybox:1", **fields}


def sandbox(attempt: int = 0, *, ready: bool = True, **fields: Any) -> SandboxDetail:
    """The sandbox `s<attempt>` of the pod."""
    row = Sandbox(
        id=f"s{attempt}",
        name="web",
        namespace="default",
        uid=UID,
        attempt=attempt,
        state=SandboxState.READY if ready else SandboxState.NOT_READY,
        created_at_ns=T0_NS + attempt * SECOND_NS,
        labels={
            names.RUNTIME_LABEL_POD_UID: UID,
            names.RUNTIME_LABEL_POD_NAME: "web",
            names.RUNTIME_LABEL_POD_NAMESPACE: "default",
        },
        annotations=fields.pop("annotations", {}),
    )
    return SandboxDetail(row, ips=("10.0.0.2",) if ready else (), pid=100 if ready else None)


def instance(
    name: str = "app",
    attempt: int = 0,
    state: ContainerState = ContainerState.RUNNING,
    *,
    exit_code: int = 0,
    step: int = 0,
    sandbox_id: str = "s0",
    ran_s: float = 1,
    ended_ns: int = T0_NS,
    record: ContainerRecord | None = None,
) -> ContainerDetail:
    """A container of the pod, `<name><attempt>`; `record` is what it was made from."""
    made_from = record or ContainerRecord.from_wire(container_data(name))
    row = Container(
        id=f"{name}{attempt}",
        sandbox_id=sandbox_id,
        name=name,
        attempt=attempt,
        image=made_from.image,
        image_ref="sha256:abc",
        state=state,
        created_at_ns=T0_NS + attempt,
        labels={names.RUNTIME_LABEL_POD_UID: UID, names.RUNTIME_LABEL_CONTAINER_NAME: name},
        annotations={
            names.RUNTIME_ANNOTATION_CONTAINER_HASH: definition(
                spec.container_hash(made_from), container_size(Pod(), made_from)
            ),
            names.RUNTIME_ANNOTATION_BACKOFF_STEP: str(step),
        },
    )
    ended = state is ContainerState.EXITED
    started = state in (ContainerState.RUNNING, ContainerState.EXITED)
    return ContainerDetail(
        container=row,
        started_at_ns=ended_ns - int(ran_s * SECOND_NS) if started else 0,
        finished_at_ns=ended_ns if ended else 0,
        exit_code=exit_code,
        reason=("Error" if exit_code else "Completed") if ended else "",
        pid=200 if state is ContainerState.RUNNING else None,
    )


def exited(name: str = "app", attempt: int = 0, code: int = 1, **fields: Any) -> ContainerDetail:
    return instance(name, attempt, ContainerState.EXITED, exit_code=code, **fields)


def seen(*details: SandboxDetail | ContainerDetail) -> ObservedPod:
    """What the runtime holds of the pod."""
    return observed_pod(UID, details)


def logged(detail: ContainerDetail, path: object) -> ContainerDetail:
    """The same container with a log."""
    return replace(detail, log_path=str(path))
