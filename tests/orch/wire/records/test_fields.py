from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from orch.wire.records.fields import shapes_of
from orch.wire.records.meta import WireModel


class Inner(WireModel):
    x: int = 0


class Outer(WireModel):
    text: str
    flag: bool | None = None
    share: float | None = None
    port: int | str
    quantity: str | int | None = None
    choice: Literal["a", "b"] | None = None
    checked: Annotated[str, Field(min_length=1)] | None = None
    labels: dict[str, str] | None = None
    inner: Inner = Inner()
    inners: list[Inner] | None = None
    nested: dict[str, list[str]] | None = None
    anything: Any = None
    odd: list[str] | str | None = None


@pytest.mark.parametrize(
    ("name", "kind", "item"),
    [
        ("text", "string", None),
        ("flag", "boolean", None),
        ("share", "number", None),
        ("port", "int-or-string", None),
        ("quantity", "int-or-string", None),
        ("choice", "string", None),
        ("checked", "string", None),
        ("labels", "map", "string"),
        ("inner", "record", None),
        ("inners", "array", "record"),
        ("nested", "map", "array"),
        ("anything", "any", None),
        ("odd", "any", None),
    ],
)
def test_a_field_has_the_kind_of_its_annotation(name: str, kind: str, item: str | None) -> None:
    shape = shapes_of(Outer)[name]
    assert shape.kind == kind
    assert (shape.item.kind if shape.item else None) == item


def test_choices_and_records_are_known() -> None:
    shapes = shapes_of(Outer)
    assert shapes["choice"].choices == ("a", "b")
    assert shapes["inner"].record is Inner
    assert shapes["inners"].record is Inner
    assert shapes["labels"].record is None
