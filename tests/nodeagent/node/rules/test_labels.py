"""Which labels a node may give itself: cmd/kubelet/app/options and NodeRestriction (upstream)."""

import pytest

from nodeagent.node.rules import labels
from orch.wire import names


@pytest.mark.parametrize(
    "key",
    [
        "rack",
        "example.com/rack",
        "notorch.io/x",
        "orch.io/hostname",
        "topology.orch.io/zone",
        "node.orch.io/anything",
        "nodeagent.orch.io/x",
        "sub.nodeagent.orch.io/x",
    ],
)
def test_own_labels_and_the_allowed_ones_may_be_set(key: str) -> None:
    assert labels.node_label_problems({key: "v"}) == []


@pytest.mark.parametrize(
    "key", ["orch.io/x", "node-role.orch.io/control-plane", "a.orch.io/x", "topology.orch.io/rack"]
)
def test_others_of_the_reserved_domain_may_not(key: str) -> None:
    (problem,) = labels.node_label_problems({key: "v"})
    assert key in problem and "nodeagent.orch.io" in problem


@pytest.mark.parametrize(
    ("key", "value"), [("-x", "v"), ("x", "a b"), ("x", "v" * 64), ("a/b/c", "")]
)
def test_malformed_labels_are_named(key: str, value: str) -> None:
    problems = labels.node_label_problems({key: value})
    assert problems and f"{key}={value}" in problems[0]


@pytest.mark.parametrize(
    ("existing", "wanted", "change"),
    [
        ({"orch.io/os": "linux"}, {"orch.io/os": "linux"}, {}),
        ({}, {"orch.io/os": "linux"}, {"orch.io/os": "linux"}),
        ({"orch.io/os": "plan9"}, {"orch.io/os": "linux"}, {"orch.io/os": "linux"}),
        ({names.LABEL_ZONE: "a"}, {names.LABEL_ZONE: ""}, {names.LABEL_ZONE: None}),
        ({"topology.orch.io/zone": "a"}, {}, {}),
        ({"rack": "1"}, {"rack": "2"}, {}),
    ],
)  # fmt: skip
def test_only_default_labels_of_an_existing_node_are_repaired(
    existing: dict[str, str], wanted: dict[str, str], change: dict[str, str | None]
) -> None:
    assert labels.repairs(existing, wanted) == change
