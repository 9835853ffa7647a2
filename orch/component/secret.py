"""Values that must never be shown: passwords, tokens, credentials in headers and addresses.

A secret field or flag is declared with this type, so that every page, log and dump shows a fixed
word instead of the value; only `reveal` returns it.
"""

from __future__ import annotations

from typing import Any

from pydantic_core import CoreSchema, core_schema

SHOWN = "CLASSIFIED"  # the word the reference system prints for such flags


class Secret:
    """A text that prints as CLASSIFIED; an empty one prints as nothing, which shows it is unset."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __str__(self) -> str:
        return SHOWN if self._value else ""

    def __repr__(self) -> str:
        return f"Secret({str(self)!r})"

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: Any) -> CoreSchema:
        return core_schema.no_info_after_validator_function(
            cls,
            core_schema.str_schema(strict=True),
            serialization=core_schema.plain_serializer_function_ser_schema(str),
        )
