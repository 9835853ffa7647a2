"""Fields an object should not have: duplicates, and names its kind does not know; pure.

Conservative: only levels whose complete list of fields is known (that of the reference release,
with everything it has) are looked at, so that a valid field of a newer or larger record is never
called unknown. Below those levels nothing is checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from orch.server import bodies
from orch.server.knownfields import KINDS, Known

_MAX_REPORTED = 100


def problems(kind: str, document: Mapping[str, Any], body: bytes) -> list[str]:
    """One text per unknown or duplicate field, as clients know them; [] when all is well."""
    found = [f'duplicate field "{name}"' for name in bodies.duplicate_fields(body)]
    known = KINDS.get(kind)
    if known is not None:
        found.extend(f'unknown field "{path}"' for path in _unknown(document, known, ""))
    return found[:_MAX_REPORTED]


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
