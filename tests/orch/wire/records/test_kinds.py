"""The table of kinds is consistent, and paths are those that clients know."""

import pytest

from orch.wire.records import kinds
from orch.wire.records.core import NodeStatus
from orch.wire.records.kinds import Resource


@pytest.mark.parametrize("resource", kinds.RESOURCES, ids=lambda one: one.plural)
def test_a_kind_is_found_by_its_record(resource: Resource) -> None:
    assert kinds.resource_of(resource.model) is resource
    assert resource.model().apiVersion == resource.api_version
    assert resource.kind.lower() == resource.singular
    assert set(resource.verbs) <= set(kinds.ALL_VERBS)


def test_short_names_are_given_once() -> None:
    own = [one for one in kinds.RESOURCES if not one.stored_form]
    given = [name for one in own for name in (one.plural, one.singular,
                                                          *one.short_names)]  # fmt: skip
    assert len(set(given)) == len(given)


def test_what_is_not_served_is_not_found() -> None:
    with pytest.raises(KeyError):
        kinds.resource_of(NodeStatus)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("resource", "arguments", "expected"),
    [
        (kinds.NODES, (), "/api/v1/nodes"),
        (kinds.NODES, ("", "n1"), "/api/v1/nodes/n1"),
        (kinds.NODES, ("ignored", "n1", "status"), "/api/v1/nodes/n1/status"),
        (kinds.PODS, (), "/api/v1/pods"),
        (kinds.PODS, ("shop",), "/api/v1/namespaces/shop/pods"),
        (kinds.PODS, ("shop", "web", "binding"), "/api/v1/namespaces/shop/pods/web/binding"),
        (
            kinds.LEASES,
            ("orch-node-lease", "n1"),
            "/apis/coordination.orch.io/v1/namespaces/orch-node-lease/leases/n1",
        ),
    ],
)
def test_paths(resource: Resource, arguments: tuple[str, ...], expected: str) -> None:
    assert resource.path(*arguments) == expected
