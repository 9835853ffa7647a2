"""What a node may write, beyond what its authorization says."""

from __future__ import annotations

from typing import Any

import pytest

from orch.server.admission import NodeRestriction
from orch.server.resources.backend import Target
from orch.server.strategy import events, leases, nodes, pods
from orch.wire.errors import ApiError
from orch.wire.identity import Identity

NODE = Identity("system:node:n1", ("system:nodes",))
MIRROR = {"orch.io/config.mirror": "hash"}


def refusal(strategy, new, old=None, identity=NODE) -> str:
    try:
        NodeRestriction().check(Target(strategy, identity), new, old)
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
    refused = refusal(nodes.STRATEGY, new, old)
    assert text in refused
    assert bool(refused) is bool(text)


@pytest.mark.parametrize(
    ("namespace", "name", "allowed"),
    [("orch-node-lease", "n1", True), ("orch-node-lease", "n2", False), ("default", "n1", False)],
)
def test_a_node_keeps_to_its_own_lease(namespace, name, allowed) -> None:
    lease = {"metadata": {"namespace": namespace, "name": name}}
    assert (not refusal(leases.STRATEGY, lease)) is allowed


def pod(*, annotations: Any = MIRROR, node_name: str = "n1", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "annotations": annotations},
        "spec": {"nodeName": node_name, **spec},
    }


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
        (pod(volumes=[{"name": "v", "configMap": {"name": "s"}}]), "volume v"),
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


def test_others_and_other_kinds_are_not_its_business() -> None:
    assert not refusal(nodes.STRATEGY, node("n2"), identity=Identity("admin"))
    assert not refusal(events.STRATEGY, {"metadata": {"name": "e"}})
