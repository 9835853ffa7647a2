"""The manifest beside every archive: what it is a checkpoint of, its size and its digest; pure.

One JSON object. The reader takes what an older agent or a hand left out for "not known"; a manifest
that cannot be read costs an archive its origin, never itself.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from orch.wire import times

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Manifest:
    """`created` and `pod_gone_since` are RFC 3339, "" when not known; `encryption` is "" or "age".

    `sha256` is of the file as it lies there: of the encrypted one where it is encrypted.
    """

    name: str
    namespace: str = ""
    pod: str = ""
    uid: str = ""
    container: str = ""
    container_id: str = ""
    image: str = ""
    runtime: str = ""
    created: str = ""
    size_bytes: int = 0
    sha256: str = ""
    encryption: str = ""
    pod_gone_since: str = ""

    @property
    def created_at(self) -> datetime | None:
        return _time(self.created)

    @property
    def gone_since(self) -> datetime | None:
        """When the pod was first seen to be gone; None while it is there or nobody looked."""
        return _time(self.pod_gone_since)

    def with_gone_since(self, moment: datetime | None) -> Manifest:
        """The same with another `gone_since`."""
        return replace(self, pod_gone_since=times.format_time(moment) if moment else "")

    def to_json(self) -> bytes:
        record = {"format": _FORMAT, **{_wire(k): v for k, v in asdict(self).items() if v}}
        return json.dumps(record, indent=1).encode() + b"\n"


class ManifestError(Exception):
    """Not a manifest; the text says why."""


def parse_manifest(text: bytes) -> Manifest:
    """ManifestError when it is no JSON object or a field is of another type."""
    try:
        record = json.loads(text)
    except ValueError as error:
        raise ManifestError(f"it is no JSON: {error}") from None
    if not isinstance(record, dict):
        raise ManifestError("it is no JSON object")
    return Manifest(
        **{name: _field(record, name, int if name == "size_bytes" else str) for name in _FIELDS}
    )


def _field(record: dict[str, Any], name: str, kind: type) -> Any:
    value = record.get(_wire(name), kind())
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ManifestError(f"{_wire(name)} is {value!r}")
    return value


def _wire(name: str) -> str:
    """`container_id` → `containerID`, `size_bytes` → `size`."""
    if name in _SPECIAL:
        return _SPECIAL[name]
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _time(text: str) -> datetime | None:
    try:
        return times.parse_time(text) if text else None
    except ValueError:
        return None


_SPECIAL = {"container_id": "containerID", "size_bytes": "size"}
_FIELDS = tuple(Manifest.__dataclass_fields__)
