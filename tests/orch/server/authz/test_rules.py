"""Matches of rules and subjects: K:pkg/apis/rbac/v1/evaluation_helpers_test.go."""

from __future__ import annotations

import pytest

from orch.server.authz import rules
from orch.server.authz.rules import Rule, Subject
from orch.server.request.attributes import RequestInfo
from orch.wire.records.authentication import Identity


def info(resource: str, subresource: str = "", **others: str) -> RequestInfo:
    fields = {"verb": "get", "path": "/x", **others}
    return RequestInfo(is_resource=True, resource=resource, subresource=subresource, **fields)


@pytest.mark.parametrize(
    ("entry", "resource", "subresource", "matches"),
    [
        ("pods", "pods", "", True),
        ("pods", "pods", "status", False),
        ("pods/status", "pods", "status", True),
        ("pods/status", "pods", "", False),
        ("*", "pods", "", True),
        ("*", "pods", "status", True),
        ("*/status", "pods", "status", True),
        ("*/status", "pods", "scale", False),
        ("*/status", "pods", "", False),
        ("pods/*", "pods", "status", False),
        ("pods/*", "pods", "*", True),
        ("pod", "pods", "", False),
        ("pods", "*", "", False),
        ("*", "*", "", True),
    ],
)
def test_which_resource_an_entry_means(entry, resource, subresource, matches) -> None:
    rule = Rule(("get",), ("",), (entry,))
    assert rule.allows(info(resource, subresource)) is matches


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("*", "/anything", True),
        ("/a", "/a", True),
        ("/a", "/a/", False),
        ("/a/*", "/a/b/c", True),
        ("/a/*", "/a/", True),
        ("/a/*", "/a", False),
        ("/a*", "/ab", True),
        ("/a/**", "/a/b", True),
        ("/*/b", "/a/b", False),
        ("", "/a", False),
    ],
)
def test_only_a_star_at_the_end_of_a_path_is_special(pattern, path, matches) -> None:
    assert rules.url_matches(pattern, path) is matches


@pytest.mark.parametrize(
    ("names", "name", "verb", "allowed"),
    [((), "a", "get", True), (("a",), "a", "get", True), (("a",), "b", "get", False),
     (("a",), "", "create", False), ((), "", "create", True)],
)  # fmt: skip
def test_names_narrow_a_rule_down(names, name, verb, allowed) -> None:
    rule = Rule(("get", "create"), ("",), ("pods",), names)
    assert rule.allows(info("pods", name=name, verb=verb)) is allowed


def test_verbs_and_groups_are_exact_or_all() -> None:
    rule = Rule(("get",), ("apps.io",), ("pods",))
    assert rule.allows(info("pods", group="apps.io"))
    assert not rule.allows(info("pods"))
    assert not rule.allows(info("pods", group="apps.io", verb="list"))
    assert not rule.allows(info("pods", group="*"))
    assert Rule(("*",), ("*",), ("pods",)).allows(info("pods", group="x", verb="y"))


def test_a_rule_for_paths_says_nothing_of_resources_and_the_other_way_round() -> None:
    path = RequestInfo("get", "/metrics")
    assert Rule(("get",), urls=("/metrics",)).allows(path)
    assert not Rule(("get",), ("*",), ("*",)).allows(path)
    assert not Rule(("*",), urls=("*",)).allows(info("pods"))


@pytest.mark.parametrize(
    ("subject", "matches"),
    [
        (Subject("User", "system:serviceaccount:red:bot"), True),
        (Subject("ServiceAccount", "bot", "red"), True),
        (Subject("ServiceAccount", "bot", "blue"), False),
        (Subject("Group", "devs"), True),
        (Subject("Group", "system:serviceaccount:red:bot"), False),
        (Subject("User", "devs"), False),
        (Subject("User", "*"), False),
    ],
)
def test_whom_a_subject_means(subject, matches) -> None:
    assert subject.matches(Identity("system:serviceaccount:red:bot", ("devs",))) is matches


def test_stored_objects_are_read_with_their_defaults() -> None:
    document = {
        "metadata": {"name": "b", "namespace": "red"},
        "subjects": [
            {"kind": "ServiceAccount", "name": "bot"},
            {"kind": "User", "name": "ann"},
            {"kind": "Robot", "name": "devs"},
            {"kind": "Group"},
        ],
        "roleRef": {"kind": "Role", "name": "r"},
    }
    binding = rules.binding_of(document)
    assert binding.subjects == (Subject("ServiceAccount", "bot", "red"), Subject("User", "ann"))
    assert binding.role == rules.RoleKey("red", "r")
    document["roleRef"]["kind"] = "ClusterRole"
    assert rules.binding_of(document).role == rules.RoleKey("", "r")
    record = {"verbs": ["get"], "apiGroups": None, "nonResourceURLs": ["/x"]}
    assert rules.rules_of({"rules": [record]}) == (Rule(("get",), urls=("/x",)),)
    assert rules.rules_of({"rules": None}) == ()
