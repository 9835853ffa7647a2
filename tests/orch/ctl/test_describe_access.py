from __future__ import annotations

from orch.ctl import describe_access

META = {"metadata": {"name": "x"}}


def test_a_role_shows_a_line_per_resource_and_path() -> None:
    rules = [
        {"verbs": ["get", "list"], "apiGroups": ["", "g.io"], "resources": ["pods", "pods/log"]},
        {"verbs": ["get"], "apiGroups": [""], "resources": ["nodes"], "resourceNames": ["n1"]},
        {"verbs": ["get"], "nonResourceURLs": ["/metrics"]},
    ]
    lines = describe_access.role({**META, "rules": rules})
    rows = [line.split() for line in lines[lines.index("PolicyRule:") + 3 :]]
    assert [row[0] for row in rows] == [
        "pods", "pods.g.io", "pods/log", "pods/log.g.io", "nodes", "[/metrics]",
    ]  # fmt: skip
    assert rows[0][1:] == ["[]", "[]", "[get", "list]"]
    assert rows[4][1:] == ["[]", "[n1]", "[get]"]


def test_a_role_without_rules_allows_nothing() -> None:
    assert describe_access.role(META)[-1] == "PolicyRule:  <none>"


def test_an_aggregated_role_names_what_it_gathers() -> None:
    selectors = [{"matchLabels": {"a": "b"}}, {"matchLabels": {"c": "d"}}]
    lines = describe_access.role({**META, "aggregationRule": {"clusterRoleSelectors": selectors}})
    at = next(n for n, line in enumerate(lines) if line.startswith("Aggregates:"))
    assert [line.split()[-1] for line in lines[at : at + 2]] == ["a=b", "c=d"]


def test_a_binding_shows_role_and_subjects() -> None:
    subjects = [
        {"kind": "User", "name": "jane"},
        {"kind": "ServiceAccount", "name": "web", "namespace": "shop"},
    ]
    lines = describe_access.binding(
        {**META, "roleRef": {"kind": "ClusterRole", "name": "view"}, "subjects": subjects}
    )
    assert [line.split() for line in lines[-2:]] == [
        ["User", "jane"], ["ServiceAccount", "web", "shop"],
    ]  # fmt: skip
    assert ["Name:", "view"] in [line.split() for line in lines]
