"""Answers of webhooks, good, wrong and hostile."""

from __future__ import annotations

import base64
from typing import Any

import orjson
import pytest

from orch.server.admission.webhooks import review
from orch.server.admission.webhooks.hooks import Hook, Name, hooks_of
from orch.server.admission.webhooks.review import AnswerRefused, WebhookAnswer
from orch.server.objects.document import Attempt, ObjectTarget
from orch.server.strategy import pods
from orch.wire.records.authentication import Identity
from orch.wire.records.kinds import PODS

UID = "0f1e"
POD = Name("", "v1", PODS)
REVIEW = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}


def hook(*, mutating: bool = True) -> Hook:
    record = {"name": "a.b.c", "clientConfig": {"url": "https://h"}}
    return hooks_of({"metadata": {"name": "x"}, "webhooks": [record]}, is_mutating=mutating)[0]


def encoded(patch: Any) -> dict[str, Any]:
    body = patch if isinstance(patch, bytes) else orjson.dumps(patch)
    return {"patchType": "JSONPatch", "patch": base64.b64encode(body).decode()}


def read(response: Any, *, mutating: bool = True, **more: Any) -> WebhookAnswer:
    given = {"uid": UID, "allowed": True, **response} if isinstance(response, dict) else response
    body = orjson.dumps({**REVIEW, "response": given, **more})
    return review.read(hook(mutating=mutating), body, UID)


@pytest.mark.parametrize(
    ("response", "more", "why"),
    [
        ({"uid": "other"}, {}, "response.uid is 'other', expected '0f1e'"),
        ({"uid": None}, {}, "response.uid is None"),
        ({}, {"kind": "Status"}, "kind is 'Status', expected 'AdmissionReview'"),
        ({}, {"apiVersion": "admission.k8s.io/v1beta1"}, "apiVersion is"),
        (None, {}, "no response"),
        ([], {}, "no response"),
        ({"allowed": "yes"}, {}, "neither true nor false"),
        ({"allowed": 1}, {}, "neither true nor false"),
        ({"patch": "e30="}, {}, "patchType is None"),
        ({"patchType": "Merge", "patch": "e30="}, {}, "patchType is 'Merge'"),
        ({"patchType": "JSONPatch", "patch": "-"}, {}, "not base64"),
        ({"patchType": "JSONPatch", "patch": 7}, {}, "not a text"),
        (encoded({}), {}, "no list"),
        (encoded(b"[" * 5000), {}, "not JSON"),
        (encoded([{}] * 10_001), {}, "no list of at most"),
        (encoded([0] * 100_000), {}, "the patch is too large"),
        ({"warnings": [0] * 30_000}, {}, "the answer is too large"),
    ],
)
def test_an_answer_that_cannot_be_believed_is_refused(response: Any, more: Any, why: str) -> None:
    with pytest.raises(AnswerRefused, match=why.replace("[", r"\[")):
        read(response, **more)


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"\xff", b'{"a":', b"<html>", b"[" * 9999])
def test_what_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(AnswerRefused):
        review.read(hook(), body, UID)


def test_a_validating_webhook_changes_nothing() -> None:
    with pytest.raises(AnswerRefused, match="a validating webhook may not set"):
        read(encoded([]), mutating=False)


def test_no_answer_allows_by_omission() -> None:
    assert not review.read(hook(), orjson.dumps({**REVIEW, "response": {"uid": UID}}), UID).allowed


def test_the_words_of_an_answer_are_bounded() -> None:
    long = "x" * 5000
    verdict = read({
        "warnings": [long, 7, "", *["w"] * 99],
        "auditAnnotations": {**{f"k{n}": long for n in range(99)}, "": "a", "b": 7},
        "status": {"message": long, "reason": long, "code": 403},
        "allowed": False,
    })  # fmt: skip
    texts = (*verdict.warnings, *verdict.annotations.values(), verdict.message, verdict.reason)
    assert max(map(len, texts)) < 1100
    assert (len(verdict.warnings), len(verdict.annotations)) == (14, 16)


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        ({"code": 403, "message": "m"}, 403, "denied the request: m"),
        ({"reason": "Because"}, 400, "denied the request: Because"),
        ({"code": 200}, 400, "denied the request without explanation"),
        ({"code": 601}, 500, "denied the request without explanation"),
        ({"code": -1, "message": "m"}, 400, "denied the request: m"),
        ({"code": 2**60}, 500, "denied the request without explanation"),
        ({"code": "x", "message": 7}, 400, "denied the request without explanation"),
        (7, 400, "denied the request without explanation"),
    ],
)
def test_a_refusal_is_one_to_clients_whatever_its_code(
    status: Any, code: int, message: str
) -> None:
    error = review.refusal(hook(), read({"allowed": False, "status": status}))
    assert (error.code, error.message) == (code, f'admission webhook "a.b.c" {message}')


def patched(document: Any, operations: list[Any]) -> Any:
    verdict = WebhookAnswer(True, patch=tuple(operations))
    return review.patched(PODS, POD, document, verdict)


BOMB = [
    {"op": "add", "path": "/a", "value": {"b": "x" * 1000}},
    *({"op": "copy", "from": "/a", "path": f"/a/{n}"} for n in range(40)),
]


@pytest.mark.parametrize(
    "operations",
    [
        BOMB,
        [{"op": "add", "path": "/deep", "value": orjson.loads(b"[" * 150 + b"]" * 150)}],
        [{"op": "add", "path": "/many", "value": [0] * 90_000}],
        [{"op": "replace", "path": "", "value": 7}],
        [{"op": "replace", "path": "/metadata", "value": []}],
        [{"op": "test", "path": "/kind", "value": "Node"}],
        [7],
        [{"op": "eval", "path": "/kind"}],
    ],
)
def test_a_patch_that_cannot_be_followed_is_refused(operations: list[Any]) -> None:
    with pytest.raises(AnswerRefused):
        patched({"kind": "Pod", "metadata": {}}, operations)


def test_a_deletion_has_no_object_to_change() -> None:
    with pytest.raises(AnswerRefused, match="deletion"):
        patched(None, [{"op": "add", "path": "/a", "value": 1}])


def test_the_object_that_was_sent_stays_as_it_was() -> None:
    document = {"kind": "Pod", "metadata": {"labels": {"a": "b"}}}
    made = patched(document, [{"op": "replace", "path": "/metadata/labels/a", "value": "c"}])
    assert (document["metadata"], made["metadata"]) == (
        {"labels": {"a": "b"}}, {"labels": {"a": "c"}},
    )  # fmt: skip


def test_what_is_asked_names_the_request() -> None:
    target = ObjectTarget(pods.STRATEGY, Identity("jane", ("g",), "7", {"k": ("v",)}), "ns")
    new = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}}
    body = orjson.loads(review.question(target, Attempt("CREATE", new, dry_run=True), POD, UID))
    assert {key: body[key] for key in REVIEW} == REVIEW
    asked = body["request"]
    assert asked.pop("object") == new
    assert asked == {
        "uid": UID,
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "requestResource": {"group": "", "version": "v1", "resource": "pods"},
        "name": "p", "namespace": "ns", "operation": "CREATE", "oldObject": None, "dryRun": True,
        "userInfo": {"username": "jane", "uid": "7", "groups": ["g"], "extra": {"k": ["v"]}},
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "dryRun": ["All"]},
    }  # fmt: skip
