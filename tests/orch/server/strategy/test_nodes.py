from __future__ import annotations

import pytest

from orch.server.strategy.nodes import NODE_STRATEGY

LARGE = {"images": [{"names": ["x" * 253] * 4, "sizeBytes": 1}] * 260}


def node(status=None, **spec):
    return {"metadata": {"name": "n"}, "spec": spec} | ({"status": status} if status else {})


def taint(key="a", effect="NoSchedule", value="v"):
    return {"key": key, "effect": effect, "value": value}


@pytest.mark.parametrize(
    ("new", "old", "fields"),
    [
        (node(), None, []),
        (node(taints=[taint(), taint(effect="NoExecute")]), None, []),
        (node(taints=[taint(), taint(value="other")]), None, ["spec.taints[1]"]),
        (node(taints=[taint(effect="Never")]), None, ["spec.taints[0].effect"]),
        (node(taints=[taint(key="a b")]), None, ["spec.taints[0].key"]),
        (node(taints=[taint(value="a b")]), None, ["spec.taints[0].value"]),
        (node(taints=[{}]), None, ["spec.taints[0].key", "spec.taints[0].effect"]),
        (node(taints=[taint(effect="odd")]), node(taints=[taint(effect="odd")]), []),
        (node(providerID="x"), node(), []),
        (node(providerID="y"), node(providerID="x"), ["spec.providerID"]),
        (node(), node(podCIDR="10.0.0.0/24"), ["spec.podCIDR"]),
        (node(podCIDR="10.0.0.0/24", podCIDRs=["10.0.0.0/24", "fd00::/64"]), None, []),
        (node(podCIDR="10.0.0.7/24"), None, []),
        (node(podCIDR="10.0.0.0"), None, ["spec.podCIDR"]),
        (node(podCIDR="10.0.0.0/255.255.255.0"), None, ["spec.podCIDR"]),
        (node(podCIDR="10.0.0.0/24", podCIDRs=["10.0.1.0/24"]), None, ["spec.podCIDR"]),
        (node(podCIDRs=["10.0.0.0/33"]), None, ["spec.podCIDRs[0]"]),
        (node(podCIDRs=["fd00::/64", "wrong"]), node(), ["spec.podCIDRs[1]"]),
        (node(podCIDRs=["10.0.0.0/24", "10.0.1.0/24"]), None, ["spec.podCIDRs"]),
        (node(podCIDRs=["10.0.0.0/24", "fd00::/64", "fd01::/64"]), None, ["spec.podCIDRs"]),
        (node(podCIDR="wrong", unschedulable=True), node(podCIDR="wrong"), []),
        (
            node({"addresses": [{"type": "A", "address": "1"}, {"type": "A", "address": "1"}]}),
            None,
            ["status.addresses[1]"],
        ),
        (node(LARGE), None, ["status"]),
        (node(more="x" * 2**19), node(), ["spec"]),
        ({"metadata": {"more": "x" * 2**19}}, node(), ["spec"]),
        (node({"a": 1}, more="x" * 2**19), node(more="x" * 2**19), []),  # likewise
        (node(LARGE), node({"images": []}), ["status"]),
        (node(LARGE, unschedulable=True), node(LARGE), []),  # stored before it had a bound
        (
            node({"addresses": [{"type": "A", "address": "1"}, {"type": "A", "address": "2"}]}),
            None,
            [],
        ),
    ],
)
def test_what_a_node_may_not_have(new, old, fields) -> None:
    found = [cause.field for cause in NODE_STRATEGY.validate(new, old)]
    assert list(dict.fromkeys(found)) == fields


def test_a_node_registers_with_its_status_and_keeps_it_apart_later() -> None:
    registered = node({"declaredFeatures": ["a"]})
    NODE_STRATEGY.prepare_create(registered)
    assert registered["status"] == {"declaredFeatures": ["a"]}
    new = node({"declaredFeatures": ["b"]}, unschedulable=True)
    NODE_STRATEGY.prepare_update(new, registered)
    assert new["status"] == {"declaredFeatures": ["a"]}
    new = node({"declaredFeatures": ["b"]}, unschedulable=True)
    NODE_STRATEGY.prepare_status(new, registered)
    assert (new["spec"], new["status"]) == ({}, {"declaredFeatures": ["b"]})
    without = node()
    NODE_STRATEGY.prepare_update(new, without)
    assert "status" not in new
