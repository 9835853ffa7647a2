"""The manifest beside every archive (origin, size, digest) and the names of all files; pure.

A manifest is one JSON object; a missing field means "not known". An archive is named
`checkpoint-<pod>_<namespace>-<container>-<local time, RFC 3339 to the second>.tar`, plus `.age`
when encrypted; its manifest and, when it is pinned, an empty file add a suffix to its whole name.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from orch.wire import times

_FORMAT = 1
_LONGEST_TEXT = 1024
_LARGEST_FILE = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Manifest:
    """`created` and `pod_gone_since` are RFC 3339, "" when not known; `encryption` is "" or "age".

    `sha256` is the digest of the file as stored, encrypted or not.
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
        """When the pod was first seen to be gone; None while it exists or is not checked."""
        return _time(self.pod_gone_since)

    def with_gone_since(self, moment: datetime | None) -> Manifest:
        """A copy with another `gone_since`."""
        return replace(self, pod_gone_since=times.format_time(moment) if moment else "")

    def to_json(self) -> bytes:
        record = {"format": _FORMAT, **{_wire(k): v for k, v in asdict(self).items() if v}}
        return json.dumps(record, indent=1).encode() + b"\n"


class ManifestError(Exception):
    """The text is not a manifest; the message says why."""


def parse_manifest(text: bytes) -> Manifest:
    """ManifestError when it is not a JSON object or a field has another type, or is no line of
    text or size of a file: the manifest may have come from elsewhere, with its archive.
    """
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"it is not JSON: {error}") from None
    if not isinstance(record, dict):
        raise ManifestError("it is not a JSON object")
    return Manifest(
        **{name: _field(record, name, int if name == "size_bytes" else str) for name in _FIELDS}
    )


def _field(record: dict[str, Any], name: str, kind: type) -> Any:
    value = record.get(_wire(name), kind())
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ManifestError(f"{_wire(name)} is {value!r}")
    if isinstance(value, str) and (len(value) > _LONGEST_TEXT or not value.isprintable()):
        raise ManifestError(f"{_wire(name)} is no line of at most {_LONGEST_TEXT} characters")
    if isinstance(value, int) and not 0 <= value <= _LARGEST_FILE:
        raise ManifestError(f"{_wire(name)} is no size of a file")
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

DIRECTORY = "checkpoints"
MANIFEST_SUFFIX = ".json"
PIN_SUFFIX = ".keep"
ENCRYPTED_SUFFIX = ".age"
MAX_BYTES = 255  # of a file name on every Linux file system
_LONGEST_SUFFIX = max(len(MANIFEST_SUFFIX), len(PIN_SUFFIX))

# `web_a-b-c` does not show where the namespace ends: only the manifest knows.
_ARCHIVE = re.compile(
    r"checkpoint-(?P<pod>[a-z0-9.-]+)_(?P<rest>[a-z0-9-]+)-"
    r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:Z|[+-]\d\d:\d\d))\.tar(?:\.age)?"
)


def archive_name(namespace: str, pod: str, container: str, moment: datetime) -> str:
    """The name of an archive created at `moment`, shown in the machine's time zone."""
    stamp = moment.astimezone().isoformat(timespec="seconds").replace("+00:00", "Z")
    return f"checkpoint-{pod}_{namespace}-{container}-{stamp}.tar"


def is_archive(name: str) -> bool:
    return _ARCHIVE.fullmatch(name) is not None


def pod_of(name: str) -> str:
    """The pod in an archive's name; "" for other files."""
    found = _ARCHIVE.fullmatch(name)
    return found["pod"] if found else ""


def owner_of(name: str) -> str:
    """Pod, namespace and container as the name joins them, equal for archives of one container."""
    found = _ARCHIVE.fullmatch(name)
    return f"{found['pod']}_{found['rest']}" if found else ""


def time_of(name: str) -> datetime | None:
    """The time in an archive's name, in UTC; None for other files."""
    found = _ARCHIVE.fullmatch(name)
    try:
        return datetime.fromisoformat(found["time"]).astimezone(UTC) if found else None
    except (ValueError, OverflowError):  # the latter for years before 1 or after 9999, in UTC
        return None


def excess_name_bytes(name: str) -> int:
    """How much an archive's name, with the longest suffix, exceeds a file name; 0 if it fits."""
    return max(0, len(name.encode()) + _LONGEST_SUFFIX - MAX_BYTES)
