"""Limits on the writes of a node, beyond its authorization."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from orch.server.admission.node_restriction import NodeRestriction
from orch.server.objects.document import ObjectTarget
from orch.server.strategy import events, nodes, pods
from orch.wire.errors import ApiError
from orch.wire.records.authentication import Identity
from tests.orch.server.admission.test_role_guard import give
from tests.orch.server.harness import LEASES, NODES, PODS, Api, lease
from tests.orch.server.harness import pod as bound_pod

NODE = Identity("system:node:n1", ("system:nodes",))
JSON = {"Content-Type": "application/json"}
MIRROR = {"orch.io/config.mirror": "hash"}


def restriction(uid: str = "1") -> NodeRestriction:
    return NodeRestriction(lambda name: uid if name == "n1" else "")


def refusal(strategy, new, old=None, identity=NODE, uid="1") -> str:
    try:
        restriction(uid).check(ObjectTarget(strategy, identity), new, old)
    except ApiError as error:
        assert (error.code, error.reason) == (403, "Forbidden")
        return error.message
    return ""


def node(name: str = "n1", **fields: Any) -> dict[str, Any]:
    spec = fields.pop("spec", {})
    return {"metadata": {"name": name, **fields}, "spec": spec}


@pytest.mark.parametrize(
    ("new", "old", "text"),
    [  # K:plugin/pkg/admission/noderestriction/admission_test.go
        (node(), None, ""),
        (node(spec={"taints": [{"key": "a"}]}), None, ""),
        (node("n2"), None, 'not allowed to modify node "n2"'),
        (node(spec={"taints": [{"key": "a"}]}), node(), "taints"),
        (node(spec={"unschedulable": True}), node(), ""),
        (node(ownerReferences=[{"uid": "1"}]), node(), "ownerReferences"),
        (node(labels={"orch.io/arch": "amd64", "orch.io/hostname": "x"}), node(), ""),
        (
            node(labels={"topology.orch.io/zone": "z", "node.orch.io/instance-type": "m"}),
            node(),
            "",
        ),
        (node(labels={"nodeagent.orch.io/x": "y", "node.orch.io/anything": "y"}), node(), ""),
        (node(labels={"example.com/x": "y", "plain": "y"}), node(), ""),
        (node(labels={"node-restriction.orch.io/x": "y"}), node(), "node-restriction.orch.io/x"),
        (node(labels={"node-role.orch.io/admin": ""}), node(), "node-role.orch.io/admin"),
        (node(labels={"orch.io/other": ""}), None, "orch.io/other"),
        (node(), node(labels={"node-restriction.orch.io/x": "y"}), "node-restriction.orch.io/x"),
        (
            node(labels={"node-restriction.orch.io/x": "y", "orch.io/os": "linux"}),
            node(labels={"node-restriction.orch.io/x": "y"}),
            "",
        ),
    ],
)
def test_a_node_keeps_to_its_own_node_and_labels(new, old, text) -> None:
    refused = refusal(nodes.NODE_STRATEGY, new, old)
    assert text in refused
    assert bool(refused) is bool(text)


# K:pkg/kubelet/apis/well_known_labels.go, and the reference's documentation of NodeRestriction.
OWN_LABELS = (
    "kubernetes.io/hostname", "kubernetes.io/arch", "kubernetes.io/os", "beta.kubernetes.io/arch",
    "beta.kubernetes.io/os", "beta.kubernetes.io/instance-type", "topology.kubernetes.io/zone",
    "node.kubernetes.io/instance-type", "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region",
    "kubelet.kubernetes.io/x", "a.kubelet.kubernetes.io/x", "node.kubernetes.io/x",
    "a.node.kubernetes.io/x", "a.node.orch.io/x", "notkubernetes.io/x", "kubernetes.io.example/x",
    "kubernetes.io",
)  # fmt: skip
OTHERS_LABELS = (
    "node-role.kubernetes.io/control-plane", "node-role.orch.io/control-plane", "orch.io/role",
    "node-restriction.kubernetes.io/x", "a.node-restriction.kubernetes.io/x", "k8s.io/x",
    "node-restriction.orch.io/x", "a.node-restriction.orch.io/x", "kubernetes.io/other",
    "a.kubernetes.io/x", "a.k8s.io/x", "node.k8s.io/x", "topology.kubernetes.io/other",
    "beta.kubernetes.io/other", "scheduling.orch.io/x", "pod-security.kubernetes.io/enforce",
)  # fmt: skip


@pytest.mark.parametrize("key", [*OWN_LABELS, *OTHERS_LABELS])
@pytest.mark.parametrize("change", ["create", "add", "change", "remove"])
def test_a_node_sets_no_label_that_others_trust_under_any_name(key: str, change: str) -> None:
    with_it, without = node(labels={key: "x", "own": "y"}), node(labels={"own": "y"})
    new, old = {
        "create": (with_it, None),
        "add": (with_it, without),
        "change": (with_it, node(labels={key: "z", "own": "y"})),
        "remove": (without, with_it),
    }[change]
    refused = refusal(nodes.NODE_STRATEGY, new, old)
    assert (key in refused) is (key in OTHERS_LABELS)
    assert bool(refused) is (key in OTHERS_LABELS)


@pytest.mark.parametrize(
    ("namespace", "name", "allowed"),
    [("orch-node-lease", "n1", True), ("orch-node-lease", "n2", False), ("default", "n1", False)],
)
def test_a_node_keeps_to_its_own_lease(namespace, name, allowed) -> None:
    lease = {"metadata": {"namespace": namespace, "name": name}}
    refused = refusal(nodes.LEASE_STRATEGY, lease)
    assert (not refused) is allowed
    assert allowed or refused.startswith(f'leases.coordination.orch.io "{name}" is forbidden: ')


def pod(*, annotations: Any = MIRROR, node_name: str = "n1", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "annotations": annotations},
        "spec": {"nodeName": node_name, **spec},
    }


def projected(*sources: dict[str, Any]) -> dict[str, Any]:
    return {"name": "v", "projected": {"sources": list(sources)}}


@pytest.mark.parametrize(
    ("new", "text"),
    [
        (pod(), ""),
        (pod(volumes=[{"name": "v", "hostPath": {"path": "/x"}}]), ""),
        (pod(annotations={}), "mirror"),
        (pod(annotations=None), "mirror"),
        (pod(node_name="n2"), "spec.nodeName"),
        (pod(node_name=""), "spec.nodeName"),
        (pod(serviceAccountName="admin"), "service account"),
        (pod(volumes=[{"name": "v", "secret": {"secretName": "s"}}]), "volume v"),
        (pod(volumes=[projected({"downwardAPI": {"items": []}})]), ""),
        (pod(volumes=[projected({"clusterTrustBundle": {"path": "t"}})]), "volume v"),
        (pod(containers=[{"name": "c", "env": [{"name": "a", "value": "b"}]}]), ""),
        (pod(containers=[{"name": "c", "envFrom": [{"secretRef": {"name": "s"}}]}]), "container c"),
    ],
)
def test_a_node_creates_only_mirror_pods_of_itself(new, text) -> None:
    refused = refusal(pods.STRATEGY, new)
    assert text in refused
    assert bool(refused) is bool(text)


def test_a_node_reports_only_on_its_own_pods_and_leaves_their_labels() -> None:
    own = pod()
    assert not refusal(pods.STRATEGY, own, own)
    other = pod(node_name="n2")
    assert "not bound" in refusal(pods.STRATEGY, other, other)
    relabelled = {**own, "metadata": {**own["metadata"], "labels": {"a": "b"}}}
    assert "labels" in refusal(pods.STRATEGY, relabelled, own)


def test_a_node_adds_no_containers_to_a_pod() -> None:
    # K:plugin/pkg/admission/noderestriction: of subresources only 'status' and 'eviction'
    target = ObjectTarget(pods.STRATEGY, NODE, "default", "p", "ephemeralcontainers")
    with pytest.raises(ApiError, match="may not add containers") as caught:
        restriction().check(target, pod(), pod())
    assert caught.value.code == 403


def test_others_and_other_kinds_are_not_its_business() -> None:
    assert not refusal(nodes.NODE_STRATEGY, node("n2"), identity=Identity("admin"))
    assert not refusal(events.STRATEGY, {"metadata": {"name": "e"}})


@pytest.mark.parametrize(
    ("strategy", "old", "text"),
    [
        (pods.STRATEGY, {"metadata": {"name": "p"}, "spec": {"nodeName": "n1"}}, ""),
        (pods.STRATEGY, {"metadata": {"name": "p"}, "spec": {"nodeName": "n2"}}, "not bound"),
        (pods.STRATEGY, {"metadata": {"name": "p"}, "spec": {}}, "not bound"),
        (nodes.LEASE_STRATEGY, {"metadata": {"name": "n1", "namespace": "orch-node-lease"}}, ""),
        (
            nodes.LEASE_STRATEGY,
            {"metadata": {"name": "n2", "namespace": "orch-node-lease"}},
            "own name",
        ),
        (nodes.NODE_STRATEGY, node(), "may not delete nodes"),
        (events.STRATEGY, {"metadata": {"name": "e"}}, ""),
    ],
)
def test_a_node_deletes_only_its_own(strategy, old, text) -> None:
    target = ObjectTarget(strategy, NODE, name=old["metadata"]["name"])
    try:
        restriction().check_deletion(target, old)
    except ApiError as error:
        assert error.code == 403
        assert text
        assert text in error.message
    else:
        assert text == ""
    restriction().check_deletion(ObjectTarget(strategy, Identity("admin")), old)


async def test_a_deletion_is_judged_by_the_pod_that_is_there_when_it_happens(api: Api) -> None:
    """Allowed while there was no such pod, carried out when there is one of another node."""
    path, rest = f"{PODS}/late", asyncio.Event()

    async def slow_body() -> AsyncIterator[bytes]:
        yield b"{"
        await rest.wait()
        yield b"}"

    async def delete() -> int:
        session = api.session("n1")
        async with session.delete(api.url(path), data=slow_body(), headers=JSON) as response:
            return response.status

    deletion = asyncio.create_task(delete())
    async with asyncio.timeout(30):
        while not api.server.flows.levels.nodes.level.body_bytes:  # decided, its body awaited
            await asyncio.sleep(0.01)
    assert (await api.call("POST", PODS, bound_pod("late", node="n2"))).status == 201
    rest.set()
    assert await deletion == 403
    assert (await api.call("GET", path)).json["spec"]["nodeName"] == "n2"


OWN = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "1", "controller": True}


@pytest.mark.parametrize(
    ("owners", "allowed"),
    [
        ([], True),
        ([OWN], True),
        ([{**OWN, "name": "n2"}], False),
        ([{**OWN, "apiVersion": "example.com/v1"}], False),
        ([{**OWN, "blockOwnerDeletion": True}], False),
        ([{**OWN, "blockOwnerDeletion": False}], True),
        ([{**OWN, "kind": "Pod"}], False),
        ([{**OWN, "controller": False}], False),
        ([OWN, {**OWN, "kind": "Pod", "controller": False}], False),
    ],
)
def test_a_mirror_pod_is_owned_by_its_node_if_by_any(owners, allowed) -> None:
    new = pod()
    new["metadata"]["ownerReferences"] = owners
    assert (refusal(pods.STRATEGY, new) == "") is allowed


def test_a_mirror_pod_is_owned_by_the_very_node_that_is_there() -> None:
    # K:plugin/pkg/admission/noderestriction/admission.go admitPodCreate
    new = pod()
    new["metadata"]["ownerReferences"] = [{**OWN, "uid": "old"}]
    assert refusal(pods.STRATEGY, new).endswith('node "n1" UID mismatch: expected 1, got old')
    assert 'node "n1", does not exist' in refusal(pods.STRATEGY, new, uid="")


async def test_a_mirror_pod_of_a_node_that_was_made_anew_is_refused(api: Api) -> None:
    first = (await api.call("POST", NODES, {"metadata": {"name": "n1"}})).json["metadata"]["uid"]
    await api.call("DELETE", f"{NODES}/n1")
    second = (await api.call("POST", NODES, {"metadata": {"name": "n1"}})).json["metadata"]["uid"]
    mirror = bound_pod("m", node="n1", annotations=MIRROR)
    mirror["metadata"]["ownerReferences"] = [{**OWN, "uid": first}]
    refused = await api.call("POST", PODS, mirror, user="n1")
    assert refused.status == 403
    assert f"expected {second}, got {first}" in refused.json["message"]
    mirror["metadata"]["ownerReferences"] = [{**OWN, "uid": second}]
    assert (await api.call("POST", PODS, mirror, user="n1")).status == 201


async def test_a_put_that_makes_its_object_takes_the_right_to_create(api: Api) -> None:
    # K:staging/src/k8s.io/apiserver/pkg/endpoints/handlers/update.go withAuthorization
    leases_only = {"apiGroups": ["coordination.orch.io"], "resources": ["leases"]}
    await give(api, {**leases_only, "verbs": ["update"]})
    path = f"{LEASES}/l"
    refused = await api.call("PUT", path, lease("l"), user="stranger")
    assert refused.status == 403
    assert 'User "stranger" cannot create resource "leases"' in refused.json["message"]
    made = await api.call("PUT", path, lease("l"))
    assert made.status == 201
    assert (await api.call("PUT", path, made.json, user="stranger")).status == 200
