from __future__ import annotations

from typing import Any

from orch.server.authz.reconcile import aggregated_rules, is_aggregated

GET, LIST = {"verbs": ["get"]}, {"verbs": ["list"]}


def role(name: str, *rules: dict, to: str = "", of: tuple[str, ...] = ()) -> dict[str, Any]:
    document: dict[str, Any] = {
        "metadata": {"name": name, "labels": {to: "true"} if to else {}},
        "rules": list(rules),
    }
    if of:
        selectors = [{"matchLabels": {label: "true"}} for label in of]
        document["aggregationRule"] = {"clusterRoleSelectors": selectors}
    return document


def test_rules_come_in_the_order_of_selectors_then_of_names_and_once() -> None:
    others = [role("z", GET, to="x"), role("b", LIST, GET, to="x"), role("a", {}, to="y")]
    whole = role("whole", LIST, to="x", of=("y", "x"))
    assert aggregated_rules(whole, [*others, whole]) == [{}, LIST, GET]


def test_a_role_is_not_made_of_itself() -> None:
    whole = role("whole", GET, to="x", of=("x",))
    assert aggregated_rules(whole, [whole]) == []


def test_only_a_role_with_selectors_is_aggregated() -> None:
    assert is_aggregated(role("a", of=("x",)))
    assert not is_aggregated(role("a"))
    assert not is_aggregated({"aggregationRule": {"clusterRoleSelectors": None}})
