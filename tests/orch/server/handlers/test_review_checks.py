"""Specs of reviews: which causes, and which request they ask about (apiserver §2)."""

from __future__ import annotations

import pytest

from orch.server.handlers import review_checks
from orch.wire.records.authorization import SelfSubjectAccessReviewSpec

AT = "spec.resourceAuthorizationAttributes"


def requirement(operator: str, *values: str, key: str = "k") -> dict:
    return {"key": key, "operator": operator, "values": list(values)}


def spec_of(field: dict | None = None, label: dict | None = None) -> SelfSubjectAccessReviewSpec:
    attributes = {"verb": "list", "resource": "pods", "fieldSelector": field}
    attributes["labelSelector"] = label
    return SelfSubjectAccessReviewSpec.from_wire({"resourceAuthorizationAttributes": attributes})


@pytest.mark.parametrize(
    ("selector", "field", "reason"),
    [
        (
            {"rawSelector": "a=b", "requirements": [requirement("In", "x")]},
            ".rawSelector",
            "Invalid",
        ),
        ({}, ".requirements", "Required"),
        ({"requirements": [requirement("Exists")] * 101}, ".requirements", "TooMany"),
        ({"requirements": [requirement("In", "x", key="")]}, ".requirements[0].key", "Required"),
        ({"requirements": [requirement("In")]}, ".requirements[0].values", "Required"),
        ({"requirements": [requirement("NotIn")]}, ".requirements[0].values", "Required"),
        ({"requirements": [requirement("Exists", "x")]}, ".requirements[0].values", "Forbidden"),
        (
            {"requirements": [requirement("DoesNotExist", "x")]},
            ".requirements[0].values",
            "Forbidden",
        ),
    ],
)
@pytest.mark.parametrize("which", ["fieldSelector", "labelSelector"])
def test_what_a_selector_may_not_be(which, selector, field, reason) -> None:
    spec = spec_of(selector) if which == "fieldSelector" else spec_of(label=selector)
    found = list(review_checks.attribute_causes(spec))
    assert (f"{AT}.{which}{field}", f"FieldValue{reason}") in [(c.field, c.reason) for c in found]


def test_a_label_key_must_be_one_and_a_field_key_need_not() -> None:
    selector = {"requirements": [requirement("In", "x", key="a b")]}
    assert not list(review_checks.attribute_causes(spec_of(selector)))
    assert list(review_checks.attribute_causes(spec_of(label=selector)))


@pytest.mark.parametrize(
    ("selector", "text", "noted"),
    [
        ({"rawSelector": "a=b,c!=d"}, "a=b,c!=d", ""),
        ({"rawSelector": "nonsense"}, "", "ignored due to parse error"),
        ({"requirements": [requirement("In", "x,y")]}, "k=x\\,y", ""),
        ({"requirements": [requirement("NotIn", "x")]}, "k!=x", ""),
        ({"requirements": [requirement("In", "x", "y")]}, "", "fully ignored"),
        ({"requirements": [requirement("In", "x"), requirement("Exists")]}, "k=x", "partially"),
        ({"requirements": [requirement("Nearly", "x")]}, "", "fully ignored"),
    ],
)
def test_field_selectors_as_the_request_would_have_them(selector, text, noted) -> None:
    info, note = review_checks.request_of(spec_of(selector))
    assert info.field_selector == text
    assert noted in note if noted else note == ""


@pytest.mark.parametrize(
    ("selector", "text", "noted"),
    [
        ({"rawSelector": "a in (b,c)"}, "a in (b,c)", ""),
        ({"rawSelector": "a=="}, "a==", ""),
        ({"rawSelector": "a||b"}, "", "ignored due to parse error"),
        (
            {"requirements": [requirement("In", "x", "y"), requirement("DoesNotExist", key="z")]},
            "k in (x,y),!z",
            "",
        ),
        ({"requirements": [requirement("Nearly", "x")]}, "", "fully ignored"),
    ],
)
def test_label_selectors_as_the_request_would_have_them(selector, text, noted) -> None:
    info, note = review_checks.request_of(spec_of(label=selector))
    assert info.label_selector == text
    assert noted in note if noted else note == ""


def test_an_empty_version_is_any() -> None:
    info, _ = review_checks.request_of(spec_of())
    assert (info.version, info.verb, info.resource, info.is_resource) == ("*", "list", "pods", True)
