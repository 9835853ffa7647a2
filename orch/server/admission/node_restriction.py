"""Permissions that depend on the object: creating by a PUT, and everything a node writes.

The authorizer lets a node write its own Node, Lease, events and pods; here the bodies must agree:
its own names, mirror pods of itself only, no labels or taints by which a node could attract other
workloads (as the reference's NodeRestriction).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from orch.server.authz.authorizer import Authorizer, forbidden
from orch.server.objects.document import Document, ObjectTarget
from orch.server.request.attributes import request_about
from orch.server.strategy.base import text_at
from orch.server.strategy.pods import RESIZE, node_of
from orch.wire import names
from orch.wire.podrules.podspec import mirror_hash
from orch.wire.podrules.references import api_references
from orch.wire.records.authentication import node_name_of
from orch.wire.records.kinds import Resource

# Domains whose labels nodes may not set on themselves, because others choose nodes by them; this
# service's and the reference's (K:pkg/kubelet/apis/well_known_labels.go).
_RESERVED = ("orch.io", "kubernetes.io", "k8s.io")
# The exceptions: these keys, and every key in these domains and below.
_OWN_LABELS = frozenset(
    (
        names.LABEL_ARCH,
        names.LABEL_HOSTNAME,
        names.LABEL_OS,
        names.LABEL_INSTANCE_TYPE,
        names.LABEL_REGION,
        names.LABEL_ZONE,
        *(f"kubernetes.io/{name}" for name in ("arch", "hostname", "os")),
        *(f"beta.kubernetes.io/{name}" for name in ("arch", "instance-type", "os")),
        *(
            f"{domain}.kubernetes.io/{name}"
            for domain in ("topology", "failure-domain.beta")
            for name in ("region", "zone")
        ),
    )
)
_OWN_DOMAINS = ("nodeagent.orch.io", "node.orch.io", "kubelet.kubernetes.io", "node.kubernetes.io")
# Set by administrators to keep workloads off nodes that are not trusted with them.
_RESTRICTIONS = ("node-restriction.orch.io", "node-restriction.kubernetes.io")


class CreationGuard:
    """The `Admission` of what a PUT or an apply creates."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def judges(self, resource: Resource) -> bool:
        return resource.is_stored

    def check(self, target: ObjectTarget, _new: Document, old: Document | None) -> None:
        """ApiError 403 unless the caller, authorized to change, may also create."""
        if old is not None or not target.name:
            return
        info = request_about("create", target.strategy.resource, target.namespace, target.name)
        decision = self._authorizer.decide(target.identity, info)
        if not decision.allowed:
            raise forbidden(target.identity, info, decision.reason)


class NodeRestriction:
    """The `Admission` of what nodes write; it judges nodes alone.

    `uid_of_node`: the uid of a Node by name, "" when there is none.
    """

    def __init__(self, uid_of_node: Callable[[str], str]) -> None:
        self._uid_of_node = uid_of_node
        self._rules: Mapping[str, Callable[[str, ObjectTarget, Document, Document | None], str]] = {
            "nodes": _check_node,
            "leases": _check_lease,
            "pods": self._check_pod,
        }

    def judges(self, resource: Resource) -> bool:
        return resource.plural in self._rules

    def check(self, target: ObjectTarget, new: Document, old: Document | None) -> None:
        """ApiError 403 with the rule that a node's write breaks."""
        node = node_name_of(target.identity)
        rule = self._rules.get(target.strategy.resource.plural)
        if node is None or rule is None:
            return
        _require(target, new["metadata"].get("name", ""), rule(node, target, new, old))

    def _check_pod(
        self, node: str, target: ObjectTarget, new: Document, old: Document | None
    ) -> str:
        if old is not None:
            return _check_bound_pod(node, target, new, old)
        problem = _check_mirror(node, new)
        if problem or not _owners(new):
            return problem
        uid = self._uid_of_node(node)
        given = _owners(new)[0]["uid"]
        if not uid:
            return f'its owner, node "{node}", does not exist'
        return "" if given == uid else f'node "{node}" UID mismatch: expected {uid}, got {given}'

    def check_deletion(self, target: ObjectTarget, old: Document) -> None:
        """ApiError 403 when a node deletes an object that is not its own.

        The authorizer judged the name; since then a pod of that name may have been bound elsewhere,
        or created. `old` is the state that is deleted, or the deletion is retried.
        """
        node = node_name_of(target.identity)
        rule = _DELETIONS.get(target.strategy.resource.plural)
        if node is not None and rule is not None:
            _require(target, target.name, rule(node, old))


def _require(target: ObjectTarget, name: str, problem: str) -> None:
    if problem:
        raise target.forbidden(name, problem)


def _check_node(node: str, _target: ObjectTarget, new: Document, old: Document | None) -> str:
    if new["metadata"]["name"] != node:
        return f'node "{node}" is not allowed to modify node "{new["metadata"]["name"]}"'
    if new["metadata"].get("ownerReferences") != _metadata(old).get("ownerReferences"):
        return f'node "{node}" is not allowed to modify ownerReferences'
    if old is not None and _taints(new) != _taints(old):
        return f'node "{node}" is not allowed to modify taints'
    before, after = _metadata(old).get("labels") or {}, new["metadata"].get("labels") or {}
    changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    refused = sorted(key for key in changed if not _may_label(key))
    if refused:
        return f'node "{node}" is not allowed to modify labels: {", ".join(refused)}'
    return ""


def _may_label(key: str) -> bool:
    domain = key.rpartition("/")[0]
    if _is_in(domain, _RESTRICTIONS):
        return False
    return not _is_in(domain, _RESERVED) or key in _OWN_LABELS or _is_in(domain, _OWN_DOMAINS)


def _is_in(domain: str, parents: tuple[str, ...]) -> bool:
    return any(domain == parent or domain.endswith(f".{parent}") for parent in parents)


def _check_lease(node: str, _target: ObjectTarget, new: Document, _old: Document | None) -> str:
    return _delete_lease(node, new)


def _delete_lease(node: str, lease: Document) -> str:
    metadata = lease["metadata"]
    if metadata["namespace"] == names.NODE_LEASE_NAMESPACE and metadata["name"] == node:
        return ""
    return f'node "{node}" can only use the lease of its own name in {names.NODE_LEASE_NAMESPACE}'


def _check_bound_pod(node: str, target: ObjectTarget, new: Document, old: Document) -> str:
    if target.subresource == "ephemeralcontainers":
        return f'node "{node}" may not add containers to a pod'
    if target.subresource == RESIZE:
        return f'node "{node}" may not resize a pod'
    if new["metadata"].get("labels") != old["metadata"].get("labels"):
        return f'node "{node}" cannot change the labels of a pod through its status'
    return _delete_pod(node, old)


def _check_mirror(node: str, new: Document) -> str:
    if mirror_hash(new) is None:
        return (
            f'pod does not have the annotation {names.ANNOTATION_CONFIG_MIRROR}, node "{node}"'
            " can only create mirror pods"
        )
    if node_of(new) != node:
        return f'node "{node}" can only create pods with spec.nodeName set to itself'
    owners = _owners(new)
    if owners and not (len(owners) == 1 and _is_own_node(node, owners[0])):
        return f'node "{node}" can only create pods whose one owner and controller is itself'
    return _references(new)


def _owners(document: Document) -> list[Document]:
    return document["metadata"].get("ownerReferences") or []


def _is_own_node(node: str, owner: Document) -> bool:
    """An owner that blocks its deletion is refused: the agent recreates mirrors while it runs."""
    wanted = {"apiVersion": "v1", "kind": "Node", "name": node, "controller": True}
    found = {name: owner.get(name) for name in wanted}
    return found == wanted and owner.get("blockOwnerDeletion") is not True


def _references(pod: Document) -> str:
    """A mirror pod mirrors a file on the node: it may not reference objects of the API."""
    spec = pod.get("spec") or {}
    if text_at(spec, "serviceAccountName"):
        return "a mirror pod may not reference a service account"
    for found in api_references(spec):
        return f"a mirror pod may not reference API objects ({found.holder})"
    return ""


def _metadata(document: Document | None) -> Document:
    return document["metadata"] if document else {}


def _taints(document: Document) -> list[Document]:
    return (document.get("spec") or {}).get("taints") or []


def _delete_pod(node: str, old: Document) -> str:
    return "" if node_of(old) == node else f'the pod is not bound to node "{node}"'


def _delete_node(node: str, _old: Document) -> str:
    return f'node "{node}" may not delete nodes'


_DELETIONS: Mapping[str, Callable[[str, Document], str]] = {
    "nodes": _delete_node,
    "leases": _delete_lease,
    "pods": _delete_pod,
}
