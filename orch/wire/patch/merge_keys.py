"""The lists that a strategic merge patch merges, by kind, and their merge keys.

From `x-kubernetes-patch-merge-key` / `-strategy` in the reference system's OpenAPI document.
Other lists are replaced: notably a node's taints and a pod's tolerations.
"""

from __future__ import annotations

from collections.abc import Mapping

from orch.wire.names import ADMISSION_GROUP
from orch.wire.patch.strategic_patch import Schema


def _by(key: str, **fields: Schema) -> Schema:
    return Schema(fields, merge_key=key)


def _object(**fields: Schema) -> Schema:
    return Schema(fields)


_AS_SET = Schema(merge_set=True)
_METADATA = _object(ownerReferences=_by("uid"), finalizers=_AS_SET)
_CONDITIONS = _by("type")

_CONTAINERS = _by(
    "name",
    env=_by("name"),
    ports=_by("containerPort"),
    volumeMounts=_by("mountPath"),
    volumeDevices=_by("devicePath"),
)
_POD_SPEC = _object(
    containers=_CONTAINERS,
    initContainers=_CONTAINERS,
    ephemeralContainers=_CONTAINERS,
    volumes=_by("name"),
    imagePullSecrets=_by("name"),
    hostAliases=_by("ip"),
    topologySpreadConstraints=_by("topologyKey"),
    schedulingGates=_by("name"),
    resourceClaims=_by("name"),
)
_POD_STATUS = _object(
    conditions=_CONDITIONS, podIPs=_by("ip"), hostIPs=_by("ip"), resourceClaimStatuses=_by("name")
)

_PLAIN = _object(metadata=_METADATA)
_WEBHOOKS = _object(metadata=_METADATA, webhooks=_by("name", matchConditions=_by("name")))
_KINDS: Mapping[tuple[str, str], Schema] = {
    ("v1", "Pod"): _object(metadata=_METADATA, spec=_POD_SPEC, status=_POD_STATUS),
    ("v1", "PodTemplate"): _object(
        metadata=_METADATA, template=_object(metadata=_METADATA, spec=_POD_SPEC)
    ),
    ("v1", "Node"): _object(
        metadata=_METADATA,
        spec=_object(podCIDRs=_AS_SET),
        status=_object(conditions=_CONDITIONS, addresses=_by("type")),
    ),
    ("v1", "Namespace"): _object(metadata=_METADATA, status=_object(conditions=_CONDITIONS)),
    ("v1", "ServiceAccount"): _object(
        metadata=_METADATA, secrets=_by("name"), imagePullSecrets=_by("name")
    ),
    (f"{ADMISSION_GROUP}/v1", "MutatingWebhookConfiguration"): _WEBHOOKS,
    (f"{ADMISSION_GROUP}/v1", "ValidatingWebhookConfiguration"): _WEBHOOKS,
}


def schema_of(api_version: str, kind: str) -> Schema:
    """The schema of a kind; kinds without an entry only merge their metadata's lists."""
    return _KINDS.get((api_version, kind), _PLAIN)
