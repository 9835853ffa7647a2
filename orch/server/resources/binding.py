"""Bind a pod to a node: the one way `spec.nodeName` is set after creation."""

from __future__ import annotations

from orch.server import fieldcauses
from orch.server.resources import metadata
from orch.server.resources.backend import Backend, Target
from orch.server.resources.document import Document, decode, encode
from orch.server.storage.base import KeyMissing, RevisionMismatch
from orch.server.strategy.base import text_at
from orch.server.strategy.pods import node_of
from orch.wire import times
from orch.wire.errors import bad_request, invalid
from orch.wire.names import CORE_VERSION
from orch.wire.validation import dns1123_subdomain_problems

_TRIES = 16


async def bind(backend: Backend, target: Target, binding: Document, *, dry_run: bool) -> None:
    """`binding` is a Binding record, taken over.

    ApiError 400, 404, 409 when bound or leaving, 422.
    """
    node = _node_of_binding(target, binding)
    for _ in range(_TRIES):
        stored = backend.find(target)
        pod = decode(stored)
        if pod["metadata"].get("deletionTimestamp"):
            raise target.conflict(
                f"pod {target.name} is being deleted, cannot be assigned to a host"
            )
        if node_of(pod):
            raise target.conflict(f'pod {target.name} is already assigned to node "{node_of(pod)}"')
        bound = _bound(pod, node, times.format_time(backend.now()))
        backend.admit(target, bound, pod)
        if dry_run:
            return
        try:
            await backend.storage.update(stored.key, encode(bound), stored.revision)
        except KeyMissing:
            raise target.not_found() from None
        except RevisionMismatch:
            continue
        return
    raise target.conflict()


def _node_of_binding(target: Target, binding: Document) -> str:
    metadata.fit_to_kind("Binding", (CORE_VERSION,), binding)
    for part in ("metadata", "target"):
        if not isinstance(binding.get(part, {}), dict):
            raise bad_request(f"{part}: must be an object")
    name = text_at(binding, "metadata.name")
    if name and name != target.name:
        raise bad_request(f"the binding names the pod {name}, the URL {target.name}")
    metadata.fit_to_namespace(target.namespace, binding.setdefault("metadata", {}))
    kind = text_at(binding, "target.kind")
    if kind not in ("", "Node"):
        cause = fieldcauses.not_supported("target.kind", kind, ("Node",))
        raise invalid("Binding", target.name, (cause,))
    node = text_at(binding, "target.name")
    if not node:
        raise invalid("Binding", target.name, (fieldcauses.required("target.name"),))
    for problem in dns1123_subdomain_problems(node):
        cause = fieldcauses.invalid_value("target.name", node, problem)
        raise invalid("Binding", target.name, (cause,))
    return node


def _bound(pod: Document, node: str, now: str) -> Document:
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now}
    status = pod.get("status") or {}
    others = [c for c in status.get("conditions") or () if c.get("type") != "PodScheduled"]
    return {
        **pod,
        "spec": {**pod["spec"], "nodeName": node},
        "status": {**status, "conditions": [*others, scheduled]},
    }
