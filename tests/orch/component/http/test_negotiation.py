"""Which Accept headers get text, a record, or 406 (reference/nodeagent.md §6.2)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch.component.http.negotiation import choose, structured_type

TRIPLE = "application/json;v=v1alpha1;g=config.orch.io;as=Statusz"

CASES = [
    ("", "text"),
    ("  ", "text"),
    ("text/plain", "text"),
    ("text/*", "text"),
    ("*/*", "text"),
    (TRIPLE, "json"),
    ("application/json; as=Statusz; g=config.orch.io; v=v1alpha1", "json"),
    ('Application/JSON;V=v1alpha1;G="config.orch.io";AS=Statusz', "json"),
    (f"{TRIPLE};pretty=1", "json"),
    (f"{TRIPLE},*/*", "json"),
    (f"{TRIPLE};q=0.5,text/plain", "text"),
    (f"{TRIPLE};q=0,text/plain", "text"),
    (f"{TRIPLE};q=0.9,text/plain;q=0.8", "json"),
    ("application/json;v=foo;g=config.orch.io;as=Statusz,*/*", "text"),
    ("application/json", None),
    ("application/json;v=v1alpha1;g=config.orch.io", None),
    ("application/json;v=v1alpha1;as=Statusz", None),
    ("application/json;g=config.orch.io;as=Statusz", None),
    ("application/json;v=v1;g=config.orch.io;as=Statusz", None),
    ("application/json;v=v1alpha1;g=config.k8s.io;as=Statusz", None),
    ("application/json;v=v1alpha1;g=config.orch.io;as=Flagz", None),
    ("application/yaml;v=v1alpha1;g=config.orch.io;as=Statusz", None),
    ("application/xml", None),
    ("text/html", None),
    ("text/plain;v=v1alpha1;g=config.orch.io;as=Statusz", None),
    ("text/plain;q=0", None),
    ("text/plain;q=odd", None),
    (",;,", None),
]


@pytest.mark.parametrize(("accept", "form"), CASES)
def test_the_form_follows_the_accept_header(accept: str, form: str | None) -> None:
    assert choose(accept, "Statusz") == form


def test_the_type_of_the_structured_form_can_be_requested() -> None:
    assert choose(structured_type("Flagz"), "Flagz") == "json"


@given(st.text("applicton/jsv1q=;,.0g*as", max_size=40))
def test_any_header_is_answered_or_refused(accept: str) -> None:
    assert choose(accept, "Statusz") in ("text", "json", None)
