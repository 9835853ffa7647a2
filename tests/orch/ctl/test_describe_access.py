from __future__ import annotations

from typing import Any

from orch.ctl import describe_access, sheet

META = {"metadata": {"name": "x", "namespace": "d"}}


def _rows(*rules: dict[str, Any]) -> list[list[str]]:
    lines = describe_access.role({**META, "rules": list(rules)})
    at = lines.index("PolicyRule:")
    return [line.strip().split("\t") for line in lines[at + 3 :]]


def test_a_role_shows_a_line_per_resource() -> None:
    rules = [
        {"verbs": ["get", "list"], "apiGroups": ["", "g.io"], "resources": ["pods", "pods/log"]},
        {
            "verbs": ["get"],
            "apiGroups": [""],
            "resources": ["nodes"],
            "resourceNames": ["n1", "n2"],
        },
    ]
    assert _rows(*rules) == [
        ["pods/log", "[]", "[]", "[get list]"],
        ["pods", "[]", "[]", "[get list]"],
        ["pods.g.io/log", "[]", "[]", "[get list]"],
        ["pods.g.io", "[]", "[]", "[get list]"],
        ["nodes", "[]", "[n1]", "[get]"],
        ["nodes", "[]", "[n2]", "[get]"],
    ]


def test_verbs_of_several_rules_about_a_resource_stand_together() -> None:
    rule = {"apiGroups": [""], "resources": ["pods"]}
    found = _rows({**rule, "verbs": ["get"]}, {**rule, "verbs": ["watch", "get"]})
    assert found == [["pods", "[]", "[]", "[get watch]"]]


def test_paths_have_a_line_per_verb() -> None:
    rule = {"nonResourceURLs": ["/metrics"], "verbs": ["head", "get"]}
    lines = sheet.aligned(describe_access.role({**META, "rules": [rule]})).splitlines()
    assert lines == [
        "Name:         x",
        "Labels:       <none>",
        "Annotations:  <none>",
        "PolicyRule:",
        "  Resources  Non-Resource URLs  Resource Names  Verbs",
        "  ---------  -----------------  --------------  -----",
        "             [/metrics]         []              [get]",
        "             [/metrics]         []              [head]",
    ]


def test_a_role_without_rules_allows_nothing() -> None:
    assert _rows() == []
    assert _rows({"apiGroups": [""], "resources": ["pods"], "verbs": []}) == []


def test_a_binding_shows_role_and_subjects() -> None:
    subjects = [
        {"kind": "User", "name": "jane"},
        {"kind": "ServiceAccount", "name": "web", "namespace": "shop"},
    ]
    ref = {"kind": "ClusterRole", "name": "view"}
    lines = describe_access.binding({**META, "roleRef": ref, "subjects": subjects})
    assert sheet.aligned(lines).splitlines()[3:] == [
        "Role:",
        "  Kind:  ClusterRole",
        "  Name:  view",
        "Subjects:",
        "  Kind            Name  Namespace",
        "  ----            ----  ---------",
        "  User            jane",
        "  ServiceAccount  web   shop",
    ]
