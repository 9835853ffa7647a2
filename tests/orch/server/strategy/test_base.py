from __future__ import annotations

import pytest

from orch.server.strategy.base import keep, text_at
from orch.server.strategy.table import STRATEGIES, ServedKinds
from orch.wire.records.kinds import RESOURCES

DOCUMENT = {"a": {"b": "text", "t": True, "f": False, "n": 7, "l": [1]}, "none": None}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.b", "text"), ("a.t", "true"), ("a.f", "false"), ("a.n", "7"), ("a.x", ""),
        ("a.b.c", ""), ("x.y", ""), ("none", ""), ("a.l.0", ""),
    ],
)  # fmt: skip
def test_a_field_is_read_as_text(path: str, text: str) -> None:
    assert text_at(DOCUMENT, path) == text


def test_a_kept_field_is_that_of_the_stored_object() -> None:
    new = {"status": "sent"}
    keep(new, {"status": "stored"}, "status")
    assert new == {"status": "stored"}
    keep(new, {}, "status")
    assert new == {}


def test_every_kind_that_is_served_has_its_rules() -> None:
    assert [s.resource for s in STRATEGIES] == list(RESOURCES)
    assert ServedKinds().find("", "v1", "pods") is not None
    assert ServedKinds().find("", "v2", "pods") is None
