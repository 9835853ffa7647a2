"""Binding and eviction of pods.

A binding is the only way to set `spec.nodeName` after creation. An eviction marks the pod as
disrupted, then deletes it with grace, as `kubectl drain` asks; there are no disruption budgets to
consult, and a pod that has ended is deleted as it is.
"""

from __future__ import annotations

from dataclasses import replace

from orch.server.objects import metadata
from orch.server.objects.backend import Backend, charge_nothing
from orch.server.objects.delete import check_preconditions, delete
from orch.server.objects.document import Attempt, Document, ObjectTarget, decode, encode
from orch.server.objects.modify import modify
from orch.server.objects.options import DeleteOptions, WriteOptions, parse_delete_options
from orch.server.storage.base import Stored, Write
from orch.server.strategy.base import text_at
from orch.server.strategy.pods import node_of
from orch.wire import causes, raw, times
from orch.wire.errors import bad_request, invalid
from orch.wire.names import CORE_VERSION
from orch.wire.podrules.podspec import FINAL_PHASES
from orch.wire.validation import dns1123_subdomain_problems


async def bind(backend: Backend, target: ObjectTarget, binding: Document, *, dry_run: bool) -> None:
    """`binding` is a Binding record, and may be changed; of a uid or a version, it is of no other.

    ApiError 400, 403 for a full node, 404, 409 when bound, gated or being deleted, 422.
    """
    _node_of_binding(target, binding)
    asked = Attempt("CREATE", binding, dry_run=dry_run, kind=(CORE_VERSION, "Binding"))
    binding = await backend.ask_webhooks(target, asked) or binding
    node = _node_of_binding(target, binding)
    uid, version = (raw.text(binding, "metadata", key) for key in ("uid", "resourceVersion"))
    expected = DeleteOptions(uid=uid or None, resource_version=version or None)

    async def write(stored: Stored) -> None:
        pod = decode(stored)
        check_preconditions(target, pod, expected)
        if pod["metadata"].get("deletionTimestamp"):
            raise target.conflict(
                f"pod {target.name} is being deleted, cannot be assigned to a host"
            )
        if node_of(pod):
            raise target.conflict(f'pod {target.name} is already assigned to node "{node_of(pod)}"')
        if raw.records(pod, "spec", "schedulingGates"):
            raise target.conflict(f"pod {target.name} has non-empty .spec.schedulingGates")
        bound = _bound(pod, node, times.format_time(backend.now()))
        await backend.admitted(target, bound, pod)
        data = encode(bound)
        async with backend.charge(target, bound, Write(stored.key, data, stored.revision)):
            if not dry_run:
                await backend.storage.update(stored.key, data, stored.revision)

    await backend.write_current(target, write)


def _node_of_binding(target: ObjectTarget, binding: Document) -> str:
    sent = metadata.fit_to_kind("Binding", (CORE_VERSION,), binding)
    if not isinstance(binding.get("target", {}), dict):
        raise bad_request("target: must be an object")
    name = text_at(sent, "name")
    if name and name != target.name:
        raise bad_request(f"the binding names the pod {name}, the URL {target.name}")
    metadata.fit_to_namespace(target.namespace, sent)
    kind = text_at(binding, "target.kind")
    if kind not in ("", "Node"):
        cause = causes.not_supported("target.kind", kind, ("Node",))
        raise invalid("Binding", target.name, (cause,))
    node = text_at(binding, "target.name")
    if not node:
        raise invalid("Binding", target.name, (causes.required("target.name"),))
    for problem in dns1123_subdomain_problems(node):
        cause = causes.invalid_value("target.name", node, problem)
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


# K:pkg/registry/core/pod/storage/eviction.go AcceptsGroupVersion: older clients send the second.
_API_VERSIONS = ("policy/v1", "policy/v1beta1")
_CONDITION = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}


async def evict(
    backend: Backend, target: ObjectTarget, eviction: Document, *, dry_run: bool
) -> None:
    """`eviction` is an Eviction record, and may be changed. ApiError 400, 404, 409, 422.

    It is a way to delete: a full namespace must not stop it, so the mark costs nothing.
    """
    _delete_options_of(target, eviction)
    kind = (eviction["apiVersion"], "Eviction")
    attempt = Attempt("CREATE", eviction, dry_run=dry_run, kind=kind)
    eviction = await backend.ask_webhooks(target, attempt) or eviction
    asked = _delete_options_of(target, eviction)
    options = parse_delete_options({"dryRun": "All"} if dry_run else {}, asked)
    now = times.format_time(backend.now())

    def disrupt(pod: Document) -> Document:
        check_preconditions(target, pod, options)
        if text_at(pod, "status.phase") in FINAL_PHASES or pod["metadata"].get("deletionTimestamp"):
            return pod
        status = pod.get("status") or {}
        others = [c for c in status.get("conditions") or () if c["type"] != _CONDITION["type"]]
        marked = {**_CONDITION, "lastTransitionTime": now}
        return {**pod, "status": {**status, "conditions": [*others, marked]}}

    status = target._replace(subresource="status")
    backend = replace(backend, webhooks=None)  # they were asked about the eviction
    marking = replace(backend, charge=charge_nothing)
    marked = await modify(marking, status, disrupt, WriteOptions(dry_run=options.dry_run))
    if options.resource_version:  # of the pod before it was marked
        options = replace(options, resource_version=str(marked.revision))
    await delete(backend, target, options)


def _delete_options_of(target: ObjectTarget, eviction: Document) -> Document:
    sent = metadata.fit_to_kind("Eviction", _API_VERSIONS, eviction)
    name = text_at(sent, "name")
    if name and name != target.name:
        raise bad_request(f"name in URL does not match name in Eviction object: {name}")
    metadata.fit_to_namespace(target.namespace, sent)
    options = eviction.get("deleteOptions") or {}
    if not isinstance(options, dict):
        raise bad_request("deleteOptions: must be an object")
    return options
