"""Which of the two text formats a client is sent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch.component.http import negotiation


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        ("application/openmetrics-text", True),
        # what Prometheus 2.42 sends
        (
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;"
            "version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            True,
        ),
        ("application/openmetrics-text;q=0.3,text/plain;q=0.5", False),
        ("application/openmetrics-text;q=x", False),
        ("application/openmetrics-text;q=0", False),
        (";;,,q=", False),
    ],
)
def test_openmetrics_is_for_those_who_prefer_it(accept: str, wanted: bool) -> None:
    assert negotiation.wants_openmetrics(accept) == wanted


@given(st.text(max_size=60), st.sampled_from(["", "application/openmetrics-text", "text/plain"]))
def test_only_an_accept_header_that_names_openmetrics_wants_it(accept: str, named: str) -> None:
    for header in (accept, f"{named};{accept}", f"{accept},{named}"):
        wanted = negotiation.wants_openmetrics(header)
        assert wanted is False or "application/openmetrics-text" in header.lower()
        assert isinstance(wanted, bool)
