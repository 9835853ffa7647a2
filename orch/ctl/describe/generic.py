"""The description of any kind: its name and labels, then every field; and of events. Pure.

The values of a secret are never shown, only their sizes.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from orch.ctl.describe.tab_writer import TabWriter
from orch.wire import raw
from orch.wire.jsonpath import go_text
from orch.wire.tables.layout import NONE, seen

# Not repeated: the first lines show them, or only programs read them.
_HEAD = ("name", "namespace", "labels", "annotations", "managedFields")
_ACRONYMS = ("API", "URL", "UID", "OSB", "GUID")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z][a-z]+|[a-z]+|-+")
_EVENTS = ("Type", "Reason", "Age", "From", "Message")
_UNDERLINE = ("----", "------", "----", "----", "-------")
_DEEPEST = 50

Record = Mapping[str, Any]


def write(writer: TabWriter, record: Record) -> None:
    """Everything but the events."""
    metadata = raw.mapping(record, "metadata")
    writer.field("Name", raw.text(metadata, "name"))
    writer.field("Namespace", raw.text(metadata, "namespace"))
    writer.labels(record)
    rest = {**record, "metadata": {k: v for k, v in metadata.items() if k not in _HEAD}}
    if raw.text(record, "kind") == "Secret":
        rest["data"] = {key: _size(value) for key, value in raw.mapping(record, "data").items()}
    write_members(writer, rest, 0)


def _size(value: Any) -> str:
    try:
        return f"{len(b64decode(str(value)))} bytes"
    except ValueError:
        return f"{len(str(value))} bytes"


def write_members(writer: TabWriter, record: Record, level: int) -> None:
    """The fields of an object, sorted, nested ones indented; none below _DEEPEST levels."""
    if level > _DEEPEST:
        writer.line("...", level=level)
        return
    for name, value in sorted(record.items()):
        if isinstance(value, Mapping):
            writer.line(f"{title(name)}:", level=level)
            write_members(writer, value, level + 1)
        elif isinstance(value, list):
            writer.line(f"{title(name)}:", level=level)
            for item in value:
                if isinstance(item, Mapping):
                    write_members(writer, item, level + 1)
                else:
                    writer.line(go_text(item), level=level + 1)
        else:
            writer.field(title(name), go_text(value), level)


def title(name: str) -> str:
    """The words of a field's name, capitalized: `startTime` is `Start Time`."""
    if not re.fullmatch(r"[A-Za-z-]+", name):
        return name
    words = _WORD.findall(name)
    return " ".join(
        word.upper() if word.upper() in _ACRONYMS else word[:1].upper() + word[1:] for word in words
    )


def write_events(writer: TabWriter, found: Iterable[Record], now: datetime) -> None:
    """A table, the latest last."""
    listed = sorted(found, key=lambda event: raw.text(event, "lastTimestamp"))
    if not listed:
        writer.field("Events", NONE)
        return
    writer.line("Events:")
    writer.line(*_EVENTS, level=1)
    writer.line(*_UNDERLINE, level=1)
    for event in listed:
        component = raw.text(event, "source", "component") or raw.text(event, "reportingComponent")
        kind, reason = raw.text(event, "type"), raw.text(event, "reason")
        message = raw.text(event, "message").strip()
        writer.line(kind, reason, seen(event, now), component, message, level=1)
