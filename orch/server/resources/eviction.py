"""Evict a pod: say on it that it is disrupted, then delete it with grace, as `kubectl drain` asks.

There are no disruption budgets to ask first; a pod that has ended is deleted as it is.
"""

from __future__ import annotations

from dataclasses import replace

from orch.server.resources import metadata
from orch.server.resources.backend import Backend, Target
from orch.server.resources.delete import check_preconditions, delete
from orch.server.resources.document import Document
from orch.server.resources.modify import modify
from orch.server.resources.options import WriteOptions, parse_delete_options
from orch.server.strategy.base import text_at
from orch.server.strategy.pods import FINISHED
from orch.wire import times
from orch.wire.errors import bad_request

# K:pkg/registry/core/pod/storage/eviction.go AcceptsGroupVersion: older clients send the second.
_API_VERSIONS = ("policy/v1", "policy/v1beta1")
_CONDITION = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}


async def evict(backend: Backend, target: Target, eviction: Document, *, dry_run: bool) -> None:
    """`eviction` is an Eviction record, taken over. ApiError 400, 404, 409, 422."""
    asked = _delete_options_of(target, eviction)
    options = parse_delete_options({"dryRun": "All"} if dry_run else {}, asked)
    now = times.format_time(backend.now())

    def disrupt(pod: Document) -> Document:
        check_preconditions(target, pod, options)
        if text_at(pod, "status.phase") in FINISHED or pod["metadata"].get("deletionTimestamp"):
            return pod
        status = pod.get("status") or {}
        others = [c for c in status.get("conditions") or () if c["type"] != _CONDITION["type"]]
        marked = {**_CONDITION, "lastTransitionTime": now}
        return {**pod, "status": {**status, "conditions": [*others, marked]}}

    status = Target(target.strategy, target.identity, target.namespace, target.name, "status")
    marked = await modify(backend, status, disrupt, WriteOptions(dry_run=options.dry_run))
    if options.resource_version:  # of the pod before it was marked
        options = replace(options, resource_version=str(marked.revision))
    await delete(backend, target, options)


def _delete_options_of(target: Target, eviction: Document) -> Document:
    metadata.fit_to_kind("Eviction", _API_VERSIONS, eviction)
    if not isinstance(eviction.get("metadata", {}), dict):
        raise bad_request("metadata: must be an object")
    name = text_at(eviction, "metadata.name")
    if name and name != target.name:
        raise bad_request(f"name in URL does not match name in Eviction object: {name}")
    metadata.fit_to_namespace(target.namespace, eviction.setdefault("metadata", {}))
    options = eviction.get("deleteOptions") or {}
    if not isinstance(options, dict):
        raise bad_request("deleteOptions: must be an object")
    return options
