"""The types of kinds, by what the reference's OpenAPI document says of their lists and objects."""

from __future__ import annotations

import pytest

from orch.wire.managed import typed
from orch.wire.managed.kinds import type_of
from orch.wire.managed.typed import Type
from orch.wire.records.kinds import RESOURCES, resource_of
from orch.wire.records.pods import Pod

# From client-go, applyconfigurations/internal/internal.go: keys, "set", "atomic", or "" (separate).
MERGES = """
ConfigMap data
ClusterRole rules atomic
RuntimeClass scheduling.nodeSelector atomic
RuntimeClass scheduling.tolerations atomic
Event involvedObject atomic
Namespace status.conditions type
Node metadata.finalizers set
Node metadata.labels
Node spec.podCIDRs set
Node spec.taints atomic
Node status.addresses type
Node status.capacity
Node status.conditions type
Node status.images atomic
Node status.volumesAttached atomic
Pod metadata.ownerReferences uid
Pod metadata.ownerReferences[] atomic
Pod spec.affinity.nodeAffinity
Pod spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution atomic
Pod spec.containers name
Pod spec.containers[].args atomic
Pod spec.containers[].env name
Pod spec.containers[].env[].valueFrom
Pod spec.containers[].env[].valueFrom.configMapKeyRef atomic
Pod spec.containers[].env[].valueFrom.fieldRef atomic
Pod spec.containers[].envFrom atomic
Pod spec.containers[].ports containerPort,protocol
Pod spec.containers[].resizePolicy atomic
Pod spec.containers[].resources.claims name
Pod spec.containers[].resources.limits
Pod spec.containers[].volumeDevices devicePath
Pod spec.containers[].volumeMounts mountPath
Pod spec.dnsConfig.options atomic
Pod spec.ephemeralContainers[].env name
Pod spec.hostAliases ip
Pod spec.imagePullSecrets name
Pod spec.imagePullSecrets[] atomic
Pod spec.initContainers name
Pod spec.nodeSelector atomic
Pod spec.readinessGates atomic
Pod spec.schedulingGates name
Pod spec.securityContext
Pod spec.tolerations atomic
Pod spec.topologySpreadConstraints topologyKey,whenUnsatisfiable
Pod spec.volumes name
Pod spec.volumes[].configMap.items atomic
Pod spec.volumes[].projected.sources atomic
Pod spec.containers[].restartPolicyRules atomic
Pod spec.containers[].restartPolicyRules[].exitCodes.values set
Pod status.conditions type
Pod status.containerStatuses atomic
Pod status.hostIPs atomic
Pod status.podIPs ip
PodTemplate template.spec.containers name
ResourceQuota spec.hard
ResourceQuota spec.scopeSelector atomic
ResourceQuota spec.scopes atomic
Role rules atomic
RuntimeClass scheduling.nodeSelector atomic
RuntimeClass scheduling.tolerations atomic
RoleBinding roleRef atomic
RoleBinding subjects atomic
RuntimeClass scheduling.nodeSelector atomic
RuntimeClass scheduling.tolerations atomic
Secret data
ServiceAccount imagePullSecrets atomic
ServiceAccount secrets name
ServiceAccount secrets[] atomic
"""
KINDS = {resource.kind: resource.model for resource in RESOURCES}


def at(kind: Type, path: str) -> Type:
    for part in path.replace("[]", ".[]").split("."):
        if part == "[]":
            assert kind.list is not None
            kind = kind.list.element
        else:
            assert kind.map is not None
            kind = kind.map.of(part)
    return kind


def relation(kind: Type) -> str:
    if kind.list is not None and kind.map is None:
        return "atomic" if kind.list.atomic else ",".join(kind.list.keys) or "set"
    return "atomic" if kind.map is not None and kind.map.atomic else ""


@pytest.mark.parametrize("line", MERGES.strip().splitlines())
def test_lists_and_objects_merge_as_in_the_reference(line: str) -> None:
    kind, path, *expected = line.split(" ")
    found = at(type_of(KINDS[kind]), path)
    if found.list is not None and found.map is not None:  # not described: any list is atomic
        assert expected in (["atomic"], [])
        assert found.list.atomic
        return
    assert [relation(found)] == (expected or [""])


def test_a_port_is_told_by_its_protocol_even_where_that_is_missing() -> None:
    ports = at(type_of(Pod), "spec.containers[].ports").list
    assert ports is not None
    assert typed.elements_of(
        ports, [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}]
    ) == [
        'k:{"containerPort":80,"protocol":"TCP"}',
        'k:{"containerPort":80,"protocol":"UDP"}',
    ]


@pytest.mark.parametrize("model", KINDS.values(), ids=list(KINDS))
def test_every_kind_has_a_type_with_fields_that_are_unknown_here(model: type) -> None:
    kind = type_of(model)
    assert kind.map is not None
    assert kind.map.fields.keys() >= {"apiVersion", "kind", "metadata"}
    future = {"spec": {"new": {"a": [1], "b": 2}}}
    assert not list(typed.problems(kind, future))
    assert resource_of(model).kind
