"""The text of `orchctl describe` for kinds with few fields, and for those it does not know; pure.

A secret's values are never shown, only their sizes.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from orch.ctl import sheet
from orch.wire import raw
from orch.wire.names import ANNOTATION_LAST_APPLIED

Record = Mapping[str, Any]
_HEAD = ("apiVersion", "kind", "metadata")
# Not told: what the head shows already, and what only programs read.
_METADATA = ("name", "namespace", "labels", "annotations", "managedFields")
_HIDDEN_ANNOTATIONS = (
    ANNOTATION_LAST_APPLIED, "kubectl.kubernetes.io/last-applied-configuration",
)  # fmt: skip


def head(record: Record) -> list[tuple[str, sheet.Value]]:
    """Name, namespace, labels and annotations."""
    metadata = raw.mapping(record, "metadata")
    annotations = raw.mapping(metadata, "annotations")
    told = {key: value for key, value in annotations.items() if key not in _HIDDEN_ANNOTATIONS}
    namespace = raw.text(metadata, "namespace")
    return [
        ("Name", raw.text(metadata, "name")),
        *([("Namespace", namespace)] if namespace else []),
        ("Labels", sheet.pairs_of(raw.mapping(metadata, "labels"))),
        ("Annotations", sheet.pairs_of(told)),
    ]


def lease(record: Record) -> list[str]:
    spec = raw.mapping(record, "spec")
    names = (
        ("Holder Identity", "holderIdentity"), ("Lease Duration Seconds", "leaseDurationSeconds"),
        ("Lease Transitions", "leaseTransitions"), ("Acquire Time", "acquireTime"),
        ("Renew Time", "renewTime"),
    )  # fmt: skip
    pairs = [(title, str(spec[name])) for title, name in names if name in spec]
    return sheet.fields([*head(record), *pairs])


def config_map(record: Record) -> list[str]:
    lines = [*sheet.fields(head(record)), "Data:"]
    for key, value in sorted(raw.mapping(record, "data").items()):
        lines += [f"  {key}:", *(f"    {line}" for line in sheet.shown_lines(str(value)))]
    sizes = _sizes(raw.mapping(record, "binaryData"))
    return [*lines, *sheet.titled("Binary Data", sizes)]


def secret(record: Record) -> list[str]:
    fields = [*head(record), ("Type", raw.text(record, "type"))]
    return [*sheet.fields(fields), *sheet.titled("Data", _sizes(raw.mapping(record, "data")))]


def _sizes(data: Record) -> list[tuple[str, sheet.Value]]:
    return [(key, f"{_size(value)} bytes") for key, value in sorted(data.items())]


def _size(value: Any) -> int:
    try:
        return len(base64.b64decode(str(value)))
    except binascii.Error:
        return len(str(value))


def service_account(record: Record) -> list[str]:
    return sheet.fields(
        [
            *head(record),
            ("Image pull secrets", _names(record, "imagePullSecrets")),
            ("Mountable secrets", _names(record, "secrets")),
        ]
    )


def _names(record: Record, field: str) -> list[str]:
    return [raw.text(item, "name") for item in raw.records(record, field)]


def namespace(record: Record) -> list[str]:
    conditions = [
        (raw.text(c, "type"), raw.text(c, "status"), raw.text(c, "message"))
        for c in raw.records(record, "status", "conditions")
    ]
    lines = sheet.fields([*head(record), ("Status", raw.text(record, "status", "phase"))])
    if conditions:
        lines += sheet.table("Conditions", ("Type", "Status", "Message"), conditions)
    return lines


def anything(record: Record) -> list[str]:
    """Every field of an object, indented, with its words apart: `startTime` is `Start Time`."""
    metadata = {k: v for k, v in raw.mapping(record, "metadata").items() if k not in _METADATA}
    fields = [
        *head(record),
        ("API Version", raw.text(record, "apiVersion")),
        ("Kind", raw.text(record, "kind")),
    ]
    rest = {key: value for key, value in record.items() if key not in _HEAD}
    return [*sheet.fields(fields), *_nested({"metadata": metadata, **rest}, 0)]


def _nested(value: Any, depth: int) -> list[str]:
    """The members of an object, or the elements of a list, one per line."""
    indent = "  " * depth
    lines: list[str] = []
    members = value.items() if isinstance(value, Mapping) else [("", item) for item in value]
    for key, member in members:
        title = f"{sheet.title(str(key))}:" if key else "-"
        if isinstance(member, Mapping | list):
            lines += [f"{indent}{title}", *_nested(member, depth + 1)] if member else []
        else:
            first, *more = sheet.shown_lines(_scalar(member)) or [""]
            lines += [f"{indent}{title}  {first}", *(f"{indent}    {line}" for line in more)]
    return lines


def _scalar(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
