"""The reviews over the wire: asked like a client does, answered by the server's own authorizer."""

from __future__ import annotations

from typing import Any

import pytest

from tests.orch.server.harness import Api

GROUP = "/apis/authorization.orch.io/v1"
SUBJECT = f"{GROUP}/subjectaccessreviews"
LOCAL = f"{GROUP}/namespaces/default/localsubjectaccessreviews"
SELF = f"{GROUP}/selfsubjectaccessreviews"
RULES = f"{GROUP}/selfsubjectrulesreviews"
TOKEN = "/apis/authentication.orch.io/v1/tokenreviews"
WHO = "/apis/authentication.orch.io/v1/selfsubjectreviews"
GET_NODES = {"verb": "get", "resource": "nodes", "name": "n1"}


def asks(resource: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    if resource is not None:
        spec["resourceAuthorizationAttributes"] = resource
    return {"spec": spec}


async def test_a_subject_review_answers_for_somebody_else(api: Api) -> None:
    body = asks(GET_NODES, user="system:node:n1", groups=["system:nodes"])
    answer = await api.call("POST", SUBJECT, body)
    assert answer.status == 201
    assert answer.json["kind"] == "SubjectAccessReview"
    assert answer.json["apiVersion"] == "authorization.orch.io/v1"
    assert answer.json["spec"]["user"] == "system:node:n1"
    assert answer.json["status"] == {"allowed": True}
    body["spec"]["user"] = "system:node:n2"
    refused = (await api.call("POST", SUBJECT, body)).json["status"]
    assert refused["allowed"] is False
    assert "own Node" in refused["reason"]


async def test_a_user_without_groups_is_in_none(api: Api) -> None:
    answer = await api.call("POST", SUBJECT, asks(GET_NODES, user="system:node:n1"))
    assert answer.json["status"]["allowed"] is False


async def test_a_review_of_a_path(api: Api) -> None:
    spec = {"nonResourceAuthorizationAttributes": {"path": "/metrics", "verb": "get"}}
    for groups, allowed in ((["system:monitoring"], True), (["others"], False)):
        answer = await api.call("POST", SUBJECT, {"spec": {**spec, "groups": groups}})
        assert answer.json["status"]["allowed"] is allowed


@pytest.mark.parametrize("user", ["stranger", "n1", "controller", "monitor", "admin"])
async def test_everybody_may_ask_about_themselves(api: Api, user: str) -> None:
    answer = await api.call("POST", SELF, asks(GET_NODES), user=user)
    assert answer.status == 201
    assert answer.json["status"]["allowed"] is (user in ("admin", "n1", "controller", "monitor"))
    assert (await api.call("POST", WHO, {}, user=user)).status == 201


async def test_nobody_may_not(api: Api) -> None:
    for path in (SELF, SUBJECT, TOKEN, WHO):
        assert (await api.call("POST", path, asks(GET_NODES), user=None)).status == 401


async def test_asking_about_others_needs_the_right_to(api: Api) -> None:
    for path in (SUBJECT, TOKEN):
        answer = await api.call("POST", path, asks(GET_NODES, user="u"), user="stranger")
        assert answer.status == 403
    assert (await api.call("POST", SUBJECT, asks(GET_NODES, user="u"), user="n1")).status == 201


async def test_reviews_can_only_be_created(api: Api) -> None:
    assert (await api.call("GET", SUBJECT)).status == 405
    assert (await api.call("GET", f"{SUBJECT}/x")).status == 405
    assert (await api.call("DELETE", SUBJECT)).status == 405
    assert (await api.call("POST", f"{GROUP}/localsubjectaccessreviews", {})).status == 405


RESOURCE = "spec.resourceAuthorizationAttributes"
PATH = {"path": "/x", "verb": "get"}
NON_RESOURCE = "spec.nonResourceAuthorizationAttributes"


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (SUBJECT, asks(user="u"), RESOURCE),
        (SUBJECT, asks(GET_NODES, nonResourceAuthorizationAttributes=PATH, user="u"), NON_RESOURCE),
        (SUBJECT, asks(GET_NODES), "spec.user"),
        (SUBJECT, {"metadata": {"name": "x"}, **asks(GET_NODES, user="u")}, "metadata"),
        (SELF, asks(), RESOURCE),
        (SELF, asks(GET_NODES, nonResourceAuthorizationAttributes=PATH), NON_RESOURCE),
        (LOCAL, asks({**GET_NODES, "namespace": "other"}, user="u"), f"{RESOURCE}.namespace"),
        (LOCAL, asks(GET_NODES, user="u"), f"{RESOURCE}.namespace"),
        (LOCAL, asks(nonResourceAuthorizationAttributes=PATH, user="u"), NON_RESOURCE),
        (TOKEN, {"metadata": {"name": "x"}, "spec": {"token": "t"}}, "metadata"),
    ],
)
async def test_what_is_not_a_review_is_refused_by_field(api: Api, path, body, field) -> None:
    """K:pkg/apis/authorization/validation/validation_test.go."""
    answer = await api.call("POST", path, body)
    assert answer.status == 422
    assert field in [cause["field"] for cause in answer.json["details"]["causes"]]


async def test_a_local_review_is_about_its_namespace(api: Api) -> None:
    pods = {"verb": "list", "resource": "pods", "namespace": "default"}
    answer = await api.call("POST", LOCAL, asks(pods, user="system:controller-manager"))
    assert answer.status == 201
    assert answer.json["metadata"] == {"namespace": "default"}
    other = {"metadata": {"namespace": "other"}, **asks(pods, user="u")}
    assert (await api.call("POST", LOCAL, other)).status == 400


async def test_a_selector_counts_and_a_bad_one_is_noted(api: Api) -> None:
    mine = {"requirements": [{"key": "spec.nodeName", "operator": "In", "values": ["n1"]}]}
    pods = {"verb": "list", "resource": "pods", "fieldSelector": mine}
    answer = await api.call("POST", SELF, asks(pods), user="n1")
    assert answer.json["status"] == {"allowed": True}
    pods["fieldSelector"] = {"rawSelector": "spec.nodeName"}
    status = (await api.call("POST", SELF, asks(pods), user="n1")).json["status"]
    assert status["allowed"] is False
    assert "ignored due to parse error" in status["evaluationError"]


async def test_the_rules_of_the_caller_are_listed(api: Api) -> None:
    answer = await api.call("POST", RULES, {"spec": {"namespace": "default"}}, user="admin")
    status = answer.json["status"]
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    assert everything in status["resourceRules"]
    assert {"verbs": ["*"], "nonResourceURLs": ["*"]} in status["nonResourceRules"]
    assert status["incomplete"] is False
    assert answer.json["spec"] == {}
    assert (await api.call("POST", RULES, {"spec": {}})).status == 400


async def test_the_list_of_a_node_says_that_it_is_incomplete(api: Api) -> None:
    answer = await api.call("POST", RULES, {"spec": {"namespace": "default"}}, user="n1")
    assert answer.json["status"]["incomplete"] is True
    assert answer.json["status"]["evaluationError"]


async def test_a_token_nobody_knows_is_not_authenticated(api: Api) -> None:
    answer = await api.call("POST", TOKEN, {"spec": {"token": "x"}})
    assert answer.status == 201
    assert answer.json["status"] == {"authenticated": False, "error": "invalid bearer token"}
    assert (await api.call("POST", TOKEN, {"spec": {}})).status == 400


async def test_who_am_i(api: Api) -> None:
    answer = await api.call("POST", WHO, {}, user="stranger")
    user = answer.json["status"]["userInfo"]
    assert user["username"] == "stranger"
    assert user["groups"] == ["some:group", "system:authenticated"]
    assert answer.json["metadata"]["creationTimestamp"]


async def test_a_misspelt_field_is_refused_when_asked_strictly(api: Api) -> None:
    body = {"spec": {"user": "u", "resourceAttributes": GET_NODES}}
    answer = await api.call("POST", f"{SUBJECT}?fieldValidation=Strict", body)
    assert answer.status == 400
    assert 'unknown field "spec.resourceAttributes"' in answer.json["message"]
