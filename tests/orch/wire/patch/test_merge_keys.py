from __future__ import annotations

import pytest

from orch.wire.names import COORDINATION_GROUP
from orch.wire.patch.merge_keys import schema_of
from orch.wire.patch.strategic_patch import Schema


def _find(schema: Schema, path: str) -> Schema:
    for part in path.split("."):
        schema = schema.of(part)
    return schema


# The reference system's api/openapi-spec/swagger.json, x-kubernetes-patch-merge-key.
@pytest.mark.parametrize(
    ("kind", "path", "key"),
    [
        ("Pod", "metadata.ownerReferences", "uid"),
        ("Pod", "spec.containers", "name"),
        ("Pod", "spec.initContainers.env", "name"),
        ("Pod", "spec.containers.ports", "containerPort"),
        ("Pod", "spec.ephemeralContainers.volumeMounts", "mountPath"),
        ("Pod", "spec.containers.volumeDevices", "devicePath"),
        ("Pod", "spec.volumes", "name"),
        ("Pod", "spec.topologySpreadConstraints", "topologyKey"),
        ("Pod", "spec.hostAliases", "ip"),
        ("Pod", "status.conditions", "type"),
        ("Pod", "status.podIPs", "ip"),
        ("Pod", "status.hostIPs", "ip"),
        ("Node", "status.conditions", "type"),
        ("Node", "status.addresses", "type"),
        ("Namespace", "status.conditions", "type"),
        ("ServiceAccount", "imagePullSecrets", "name"),
        ("ConfigMap", "metadata.ownerReferences", "uid"),
        ("Node", "spec.taints", ""),
        ("Node", "status.images", ""),
        ("Pod", "spec.tolerations", ""),
        ("Pod", "spec.containers.envFrom", ""),
        ("Pod", "status.containerStatuses", ""),
    ],
)
def test_lists_merge_by_the_key_of_the_reference(kind: str, path: str, key: str) -> None:
    assert _find(schema_of("v1", kind), path).merge_key == key


@pytest.mark.parametrize(
    ("kind", "path"), [("Pod", "metadata.finalizers"), ("Node", "spec.podCIDRs")]
)
def test_lists_of_plain_values_merge_as_sets(kind: str, path: str) -> None:
    assert _find(schema_of("v1", kind), path).merge_set


def test_other_groups_merge_only_their_metadata() -> None:
    lease = schema_of(f"{COORDINATION_GROUP}/v1", "Lease")
    assert _find(lease, "metadata.finalizers").merge_set
    assert not _find(lease, "spec.anything").merges_lists
    assert not _find(schema_of("other/v1", "Pod"), "spec.containers").merges_lists
