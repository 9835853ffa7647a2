"""The text of `orchctl describe` for roles and bindings; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orch.ctl import permissions, sheet
from orch.wire import raw

Record = Mapping[str, Any]


def role(record: Record) -> list[str]:
    """What a role allows: one line per resource or path."""
    rows = permissions.rows(raw.records(record, "rules"))
    table = sheet.table("PolicyRule", permissions.HEADER, rows)
    return [*sheet.head(record, namespaced=False), *table]


def binding(record: Record) -> list[str]:
    """Which role is granted, and to whom."""
    columns = ("kind", "name", "namespace")
    subjects = [[raw.text(s, c) for c in columns] for s in raw.records(record, "subjects")]
    return [
        *sheet.head(record, namespaced=False),
        "Role:",
        sheet.field("Kind", raw.text(record, "roleRef", "kind"), 1),
        sheet.field("Name", raw.text(record, "roleRef", "name"), 1),
        *sheet.table("Subjects", [name.capitalize() for name in columns], subjects),
    ]
