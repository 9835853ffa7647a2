"""Any value in the place of any part of an object: it is stored whole or refused in words."""

from __future__ import annotations

import asyncio
import base64
import copy
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orch.component import signing_requests
from orch.server.objects.backend import Backend
from orch.server.objects.create import create
from orch.server.objects.document import ObjectTarget, decode_as
from orch.server.objects.modify import modify
from orch.server.objects.options import WriteOptions
from orch.server.request.bodies import drop_nulls
from orch.server.storage.group_commit import GroupCommitStorage
from orch.server.strategy import namespaces
from orch.server.strategy.base import Strategy
from orch.server.strategy.table import STRATEGIES
from orch.wire.errors import ApiError
from orch.wire.records.authentication import Identity
from orch.wire.records.kinds import CUSTOM_RESOURCE_DEFINITIONS
from tests.examples import examples
from tests.fakes.medium import FakeMedium

pytestmark = pytest.mark.slow

STORED = [one for one in STRATEGIES if one.resource.is_stored]
ADMIN = Identity("admin", ("system:masters",))
CONTAINER = {
    "name": "c", "image": "i", "command": ["a"], "env": [{"name": "A", "value": "b"}],
    "ports": [{"containerPort": 80, "protocol": "TCP"}],
    "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}},
    "livenessProbe": {"httpGet": {"path": "/", "port": 80}, "periodSeconds": 1},
    "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    "securityContext": {"privileged": True, "capabilities": {"add": ["A"]}},
}  # fmt: skip
SIDECAR = {
    "restartPolicy": "Always",
    "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
}
FIELD = {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}
SELECTOR = {"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}
TERM = {"labelSelector": SELECTOR, "namespaces": ["n"], "topologyKey": "t"}
SOON = "requiredDuringSchedulingIgnoredDuringExecution"
RULE = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}
BINDING = {
    "subjects": [{"kind": "User", "name": "jane"}, {"kind": "ServiceAccount", "name": "s",
                                                   "namespace": "default"}],
    "roleRef": {"kind": "ClusterRole", "name": "r"},
}  # fmt: skip
PEM = b64encode(b"-----BEGIN CERTIFICATE-----").decode()
HOOK = {
    "name": "a.example.com",
    "clientConfig": {"url": "https://h/p", "caBundle": PEM},
    "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["*"], "resources": ["*/*"],
               "scope": "*"}],
    "failurePolicy": "Fail", "matchPolicy": "Exact", "namespaceSelector": SELECTOR,
    "objectSelector": {"matchLabels": {"a": "b"}}, "sideEffects": "None", "timeoutSeconds": 3,
    "admissionReviewVersions": ["v1"],
}  # fmt: skip
REQUEST = base64.b64encode(
    signing_requests.make_request(signing_requests.make_key(), "system:node:n", "system:nodes")
).decode()
BODIES: dict[str, dict[str, Any]] = {
    "Namespace": {"spec": {"finalizers": ["a.io/b"]}, "status": {"phase": "Active"}},
    "Node": {
        "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}], "unschedulable": True},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}], "capacity": {"cpu": "1"},
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "nodeInfo": {"osImage": "x"},
        },
    },
    "Pod": {
        "spec": {
            "containers": [CONTAINER], "initContainers": [{**CONTAINER, **SIDECAR, "name": "i"}],
            "volumes": [
                {"name": "v", "projected": {"sources": [
                    {"downwardAPI": {"items": [{"path": "p", **FIELD}]}},
                    {"serviceAccountToken": {"path": "t", "expirationSeconds": 600}},
                ]}},
                {"name": "w", "image": {"reference": "i"}},
            ],
            "nodeName": "n1", "terminationGracePeriodSeconds": 3, "restartPolicy": "Always",
            "tolerations": [
                {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3},
            ],
            "affinity": {
                "nodeAffinity": {SOON: {"nodeSelectorTerms": [SELECTOR]}},
                "podAffinity": {SOON: [TERM]},
            },
            "topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "t", "whenUnsatisfiable": "DoNotSchedule"},
            ],
            "dnsConfig": {
                "nameservers": ["10.0.0.1"], "searches": ["a"], "options": [{"name": "o"}],
            },
            "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["h"]}],
            "readinessGates": [{"conditionType": "a/b"}], "overhead": {"cpu": "1"},
        },
        "status": {"phase": "Running", "containerStatuses": [{"name": "c", "state": {}}]},
    },
    "Event": {
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}, "count": 1,
        "lastTimestamp": "2026-01-01T00:00:00Z", "series": {"count": 2}, "source": {"host": "h"},
    },
    "EventReport": {
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"}, "note": "n",
        "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "a.b/c", "action": "a",
        "reportingInstance": "i", "reason": "R", "type": "Normal",
        "series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:00.000000Z"},
    },
    "ConfigMap": {"data": {"a": "b"}, "binaryData": {"c": "eA=="}, "immutable": True},
    "Secret": {"data": {"a": "eA=="}, "stringData": {"b": "c"}, "type": "Opaque"},
    "ServiceAccount": {"secrets": [{"name": "a"}], "imagePullSecrets": [{"name": "b"}]},
    "LimitRange": {
        "spec": {"limits": [
            {"type": "Container", "min": {"cpu": 1}, "max": {"cpu": "4"}, "default": {"cpu": "2"},
             "defaultRequest": {"cpu": "2"}, "maxLimitRequestRatio": {"cpu": "2"}},
        ]},
    },
    "ResourceQuota": {
        "spec": {
            "hard": {"pods": "2", "requests.cpu": 1}, "scopes": ["NotBestEffort"],
            "scopeSelector": {"matchExpressions": [
                {"scopeName": "PriorityClass", "operator": "In", "values": ["a"]},
            ]},
        },
        "status": {"hard": {"pods": "2"}, "used": {"pods": "1"}},
    },
    "PodTemplate": {
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {
            "containers": [CONTAINER], "volumes": [{"name": "v", "emptyDir": {}}],
        }},
    },
    "RuntimeClass": {
        "handler": "kata", "overhead": {"podFixed": {"cpu": "250m", "memory": 1}},
        "scheduling": {"nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}]},
    },
    "CertificateSigningRequest": {
        "spec": {
            "request": REQUEST, "signerName": "example.com/signer", "usages": ["client auth"],
            "expirationSeconds": 600,
        },
    },
    "CustomResourceDefinition": {
        "spec": {
            "group": "b.io", "scope": "Cluster", "names": {
                "plural": "a", "kind": "A", "shortNames": ["aa"], "categories": ["all"],
            },
            "versions": [{
                "name": "v1", "served": True, "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {
                        "type": "object", "required": ["a"],
                        "anyOf": [{"required": ["b"]}, {"properties": {"a": {"enum": [1]}}}],
                        "properties": {
                            "a": {"type": "integer", "minimum": 1, "default": 2},
                            "b": {"type": "string", "pattern": "^a$", "format": "date"},
                            "c": {
                                "type": "array", "x-kubernetes-list-type": "map",
                                "x-kubernetes-list-map-keys": ["k"],
                                "items": {"type": "object", "required": ["k"],
                                          "properties": {"k": {"type": "string"}}},
                            },
                            "d": {"type": "object", "additionalProperties": {"type": "number"}},
                            "e": {"x-kubernetes-int-or-string": True},
                        },
                    },
                }}},
                "subresources": {"status": {}, "scale": {
                    "specReplicasPath": ".spec.a", "statusReplicasPath": ".status.a",
                }},
                "additionalPrinterColumns": [
                    {"name": "A", "type": "integer", "jsonPath": ".spec.c[0].k", "priority": 1},
                ],
            }],
            "conversion": {"strategy": "None"},
        },
        "status": {"storedVersions": ["v1"], "conditions": [{"type": "A", "status": "True"}]},
    },
    "PriorityClass": {"value": 7, "globalDefault": True, "preemptionPolicy": "Never"},
    "ValidatingWebhookConfiguration": {"webhooks": [HOOK]},
    "MutatingWebhookConfiguration": {"webhooks": [{**HOOK, "reinvocationPolicy": "IfNeeded"}]},
    "Lease": {"spec": {"holderIdentity": "n", "leaseDurationSeconds": 4, "renewTime":
                       "2026-01-01T00:00:00.000000Z"}},
    "Role": {"rules": [RULE]},
    "ClusterRole": {"rules": [RULE, {"verbs": ["get"], "nonResourceURLs": ["/x"]}],
                    "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}},
    "RoleBinding": BINDING,
    "ClusterRoleBinding": BINDING,
}  # fmt: skip
METADATA = {
    "name": "x", "labels": {"a": "b"}, "annotations": {"a": "b"}, "finalizers": ["a.io/b"],
    "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}],
}  # fmt: skip
ODD: tuple[Any, ...] = (
    None, True, 0, -1, 2**62, 1.5, "", "x", "\x00", "ü", "9" * 400, [], {}, [None], [[]],
    {"a": None}, {"": 1}, {"name": 7}, [{"name": "c"}, {"name": "c"}],
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of everything in a document."""
    children = value.items() if isinstance(value, dict) else enumerate(value)
    for key, child in children:
        yield (*path, key)
        if isinstance(child, dict | list):
            yield from places(child, (*path, key))


def changed(document: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    result = copy.deepcopy(document)
    inner: Any = result
    for part in path[:-1]:
        inner = inner[part]
    inner[path[-1]] = copy.deepcopy(value)
    return result


def name_of(strategy: Strategy) -> str:
    """That of its body: two kinds are called Event."""
    return "EventReport" if strategy.resource.stored_form else strategy.resource.kind


async def tried(strategy: Strategy, document: dict[str, Any]) -> str:
    """Create it, show it and change it back; what refused it, "" when nothing did."""
    storage = GroupCommitStorage(FakeMedium())
    await storage.open()
    try:
        backend = Backend(storage)
        default = ObjectTarget(namespaces.STRATEGY, ADMIN, name="default")
        await create(backend, default, {"metadata": {"name": "default"}}, WriteOptions())
        scope = "default" if strategy.resource.namespaced else ""
        target = ObjectTarget(strategy, ADMIN, scope)
        stored = await create(backend, target, drop_nulls(document), WriteOptions())
        made = decode_as(strategy.resource, stored)
        strategy.selectable_fields(made)
        strategy.layout.cells(made, backend.now())
        one = ObjectTarget(strategy, ADMIN, scope, made["metadata"]["name"])
        await modify(backend, one, lambda current: {**current, **BODIES[name_of(strategy)]},
                     WriteOptions())  # fmt: skip
    except ApiError as error:
        assert 400 <= error.code < 500
        return error.message
    else:
        return ""
    finally:
        await storage.close()


@pytest.mark.parametrize("strategy", STORED, ids=lambda one: name_of(one))
def test_any_part_of_an_object_may_be_anything(strategy: Strategy) -> None:
    document: dict[str, Any] = {"metadata": dict(METADATA), **BODIES[name_of(strategy)]}
    if strategy.resource is CUSTOM_RESOURCE_DEFINITIONS:
        document["metadata"]["name"] = "a.b.io"
    everywhere = list(places(document))

    @settings(max_examples=examples(150), deadline=None)
    @given(st.sampled_from(everywhere), st.sampled_from(ODD))
    def any_part(path: tuple[Any, ...], value: Any) -> None:
        asyncio.run(tried(strategy, changed(document, path, value)))

    assert asyncio.run(tried(strategy, copy.deepcopy(document))) == ""
    any_part()
