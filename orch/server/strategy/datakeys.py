"""What ConfigMaps and Secrets have in common: named values, bounded together, frozen for good."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from orch.server import fieldcauses as causes
from orch.server.strategy.base import Document
from orch.wire.errors import Cause

MAX_BYTES = 1024 * 1024
_KEY_MAX = 253
_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_KEY_TEXT = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
    " (e.g. 'key.name', or 'KEY_NAME', or 'key-name', regex used for validation is"
    " '[-._a-zA-Z0-9]+')"
)


def key_causes(field: str, values: Mapping[str, str]) -> Iterator[Cause]:
    """What is wrong with the names of some values, which become names of files."""
    for key in values:
        path = f"{field}[{key}]"
        if len(key) > _KEY_MAX:
            yield causes.invalid_value(path, key, f"must be no more than {_KEY_MAX} characters")
        if not _KEY.fullmatch(key):
            yield causes.invalid_value(path, key, _KEY_TEXT)
        elif key in (".", "..") or key.startswith(".."):
            yield causes.invalid_value(path, key, "must not be '.' or begin with '..'")


def size_causes(path: str, *values: Mapping[str, str]) -> Iterator[Cause]:
    """Too much in all; base64 text counts as the bytes it stands for."""
    *texts, encoded = values
    size = sum(len(value.encode()) for one in texts for value in one.values())
    size += sum(len(value) * 3 // 4 for value in encoded.values())
    if size > MAX_BYTES:
        yield causes.too_long(path, f"may not be more than {MAX_BYTES} bytes")


def frozen_causes(new: Document, old: Document | None, *fields: str) -> Iterator[Cause]:
    """What was said to be immutable stays so, and as it is."""
    if old is None or not old.get("immutable"):
        return
    why = "field is immutable when `immutable` is set"
    if not new.get("immutable"):
        yield causes.forbidden("immutable", why)
    for field in fields:
        if (new.get(field) or {}) != (old.get(field) or {}):
            yield causes.forbidden(field, why)
