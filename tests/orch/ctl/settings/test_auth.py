from __future__ import annotations

from typing import Any

import pytest

from orch.ctl.settings import auth
from tests.fakes.http_api import Answer, HttpApi
from tests.orch.ctl.conftest import Orchctl

GROUP = "/apis/authorization.orch.io/v1"
ASK, LIST = f"{GROUP}/selfsubjectaccessreviews", f"{GROUP}/selfsubjectrulesreviews"
YES = Answer({"status": {"allowed": True, "reason": "RBAC: allowed by x"}}, 201)
NO = Answer({"status": {"allowed": False, "reason": "nobody said so"}}, 201)


@pytest.mark.parametrize(
    ("words", "attributes"),
    [
        ("create pods", {"verb": "create", "resource": "pods", "namespace": "default"}),
        ("get po -n x", {"verb": "get", "resource": "pods", "namespace": "x"}),
        ("get pods -A", {"verb": "get", "resource": "pods"}),
        ("get nodes", {"verb": "get", "resource": "nodes"}),
        ("get node/n1", {"verb": "get", "resource": "nodes", "name": "n1"}),
        ("get node n1", {"verb": "get", "resource": "nodes", "name": "n1"}),
        ("create nodes --subresource checkpoint",
         {"verb": "create", "resource": "nodes", "subresource": "checkpoint"}),
        ("get leases", {"verb": "get", "resource": "leases", "group": "coordination.orch.io",
                        "namespace": "default"}),
        ("'*' '*'", {"verb": "*", "resource": "*", "group": "*", "namespace": "default"}),
    ],
)  # fmt: skip
async def test_a_question_about_a_resource(
    orchctl: Orchctl, api: HttpApi, words: str, attributes: dict[str, str]
) -> None:
    api.answers["POST", ASK] = YES
    result = await orchctl("auth", "can-i", *words.replace("'", "").split())
    assert (result.code, result.out, result.err) == (0, "yes\n", "")
    (sent,) = api.sent("POST")
    assert sent.body["kind"] == "SelfSubjectAccessReview"
    assert sent.body["spec"] == {"resourceAuthorizationAttributes": attributes}


async def test_a_question_about_a_path(orchctl: Orchctl, api: HttpApi) -> None:
    api.answers["POST", ASK] = NO
    result = await orchctl("auth", "can-i", "get", "/metrics")
    assert (result.code, result.out) == (1, "no - nobody said so\n")
    assert api.sent("POST")[0].body["spec"] == {
        "nonResourceAuthorizationAttributes": {"path": "/metrics", "verb": "get"}
    }


async def test_quiet_is_only_the_exit_code(orchctl: Orchctl, api: HttpApi) -> None:
    for answer, code in ((YES, 0), (NO, 1)):
        api.answers["POST", ASK] = answer
        result = await orchctl("auth", "can-i", "get", "pods", "-q")
        assert (result.code, result.out) == (code, "")


async def test_an_unknown_type_is_asked_about_as_it_is(orchctl: Orchctl, api: HttpApi) -> None:
    api.answers["POST", ASK] = NO
    result = await orchctl("auth", "can-i", "get", "widgets.example.com")
    assert result.err.startswith("Warning: the server has no resource type 'widgets.example.com'")
    attributes = api.sent("POST")[0].body["spec"]["resourceAuthorizationAttributes"]
    assert (attributes["resource"], attributes["group"]) == ("widgets", "example.com")


async def test_a_subresource_given_as_a_name_is_pointed_out(orchctl: Orchctl, api: HttpApi) -> None:
    api.answers["POST", ASK] = YES
    result = await orchctl("auth", "can-i", "create", "nodes/checkpoint")
    assert result.err == (
        "Note: 'checkpoint' names an object; for the subresource: --subresource checkpoint\n"
    )


async def test_all_that_is_allowed_is_listed(orchctl: Orchctl, api: HttpApi) -> None:
    status: dict[str, Any] = {
        "resourceRules": [
            {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "pods/log"]},
            {"verbs": ["get"], "apiGroups": ["g.io"], "resources": ["x"], "resourceNames": ["n"]},
        ],
        "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/version"]}],
        "incomplete": True,
        "evaluationError": "role gone",
    }
    api.answers["POST", LIST] = Answer({"status": status}, 201)
    result = await orchctl("auth", "can-i", "--list", "-n", "shop")
    shown = [line.split("  ")[0] for line in result.lines]
    assert shown == ["Resources", "pods/log", "pods", "", "", "x.g.io"]
    assert result.lines[1].split()[-2:] == ["[get", "list]"]
    assert result.err == "Warning: the list may be incomplete: role gone\n"
    assert api.sent("POST")[0].body["spec"] == {"namespace": "shop"}


@pytest.mark.parametrize("words", [(), ("get",), ("a", "b", "c", "d"), ("--list", "get")])
async def test_words_that_are_no_question_are_usage_errors(orchctl: Orchctl, words: Any) -> None:
    assert (await orchctl("auth", "can-i", *words)).code == 2


def test_rules_are_taken_apart_put_together_and_sorted() -> None:
    resources = [
        {"verbs": ["list"], "apiGroups": [""], "resources": ["pods", "pods/log"]},
        {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]},
        {
            "verbs": ["get"],
            "apiGroups": ["g.io"],
            "resources": ["x/y"],
            "resourceNames": ["n", "m"],
        },
        {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    ]
    paths = [{"verbs": ["get", "head"], "nonResourceURLs": ["/a", "/b"]}]
    assert auth.rule_rows([*resources, *paths]) == [
        ("*.*", "[]", "[]", "[*]"),
        ("", "[/a]", "[]", "[get]"),
        ("", "[/b]", "[]", "[get]"),
        ("x.g.io/y", "[]", "[m]", "[get]"),
        ("x.g.io/y", "[]", "[n]", "[get]"),
        ("", "[/a]", "[]", "[head]"),
        ("", "[/b]", "[]", "[head]"),
        ("pods", "[]", "[]", "[list get]"),
        ("pods/log", "[]", "[]", "[list]"),
    ]


def test_nothing_allowed_is_no_row() -> None:
    assert auth.rule_rows([]) == []
