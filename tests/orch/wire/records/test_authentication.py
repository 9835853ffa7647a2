from __future__ import annotations

import pytest

from orch.wire.records.authentication import Identity, node_name_of


@pytest.mark.parametrize(
    ("name", "groups", "node"),
    [
        ("system:node:n1", ("system:nodes",), "n1"),
        ("system:node:n1", ("system:authenticated", "system:nodes"), "n1"),
        ("system:node:n1", (), None),
        ("system:node:", ("system:nodes",), None),
        ("n1", ("system:nodes",), None),
        ("admin", ("system:masters",), None),
    ],
)
def test_a_node_identity_needs_both_the_user_prefix_and_the_group(
    name: str, groups: tuple[str, ...], node: str | None
) -> None:
    assert node_name_of(Identity(name, groups)) == node


def test_identities_are_hashable_so_that_decisions_can_be_cached_by_them() -> None:
    same = {Identity("a", ("g",), extra={"k": ("v",)}), Identity("a", ("g",), extra={"k": ("v",)})}
    assert len(same) == 1
