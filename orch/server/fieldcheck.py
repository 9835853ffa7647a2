"""Fields an object should not have: duplicates, and names its kind does not know; pure.

Conservative: only levels whose complete list of fields is known (that of the reference release,
with everything it has) are looked at, so that a valid field of a newer or larger record is never
called unknown. Below those levels nothing is checked.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any

from orch.server.knownfields import KINDS, Known

_MAX_REPORTED = 100


def unknown_fields(kind: str, document: Mapping[str, Any]) -> list[str]:
    """One text per unknown field, as clients know them; [] when all is well."""
    known = KINDS.get(kind)
    if known is None:
        return []
    found = itertools.islice(_unknown(document, known, ""), _MAX_REPORTED)
    return [f'unknown field "{path}"' for path in found]


def duplicate_fields(body: bytes) -> list[str]:
    """One text per name that an object in a JSON body has twice; the reader takes the last."""
    found: dict[str, None] = {}

    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        fields = dict(pairs)
        if len(fields) < len(pairs):
            names = [name for name, _ in pairs]
            found.update(dict.fromkeys(name for name in fields if names.count(name) > 1))
        return fields

    json.loads(body, object_pairs_hook=collect)
    return [f'duplicate field "{name}"' for name in found][:_MAX_REPORTED]


def _unknown(value: Any, known: Known, path: str) -> Iterator[str]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unknown(item, known, f"{path}[{index}]")
    elif isinstance(value, dict):
        for name, item in value.items():
            at = f"{path}.{name}" if path else name
            if name not in known:
                yield at
            else:
                below = known[name]
                if below is not None:
                    yield from _unknown(item, below, at)
