"""The text of `orchctl describe` for roles and bindings; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orch.ctl import describe_object, sheet
from orch.wire import raw

Record = Mapping[str, Any]


def role(record: Record) -> list[str]:
    """What a role allows: one line per resource or path."""
    rows = [row for rule in raw.records(record, "rules") for row in _rule_rows(rule)]
    header = ("Resources", "Non-Resource URLs", "Resource Names", "Verbs")
    aggregated = raw.records(record, "aggregationRule", "clusterRoleSelectors")
    return [
        *sheet.fields(describe_object.head(record)),
        *(_aggregation(aggregated) if aggregated else []),
        *sheet.table("PolicyRule", header, rows),
    ]


def binding(record: Record) -> list[str]:
    """Which role is granted, and to whom."""
    ref = raw.mapping(record, "roleRef")
    rows = [
        (raw.text(s, "kind"), raw.text(s, "name"), raw.text(s, "namespace"))
        for s in raw.records(record, "subjects")
    ]
    return [
        *sheet.fields(describe_object.head(record)),
        *sheet.titled("Role", [("Kind", raw.text(ref, "kind")), ("Name", raw.text(ref, "name"))]),
        *sheet.table("Subjects", ("Kind", "Name", "Namespace"), rows),
    ]


def _aggregation(selectors: list[Mapping[str, Any]]) -> list[str]:
    labels = [", ".join(sheet.pairs_of(raw.mapping(s, "matchLabels"))) for s in selectors]
    return sheet.fields([("Aggregates", labels)])


def _rule_rows(rule: Record) -> list[tuple[str, str, str, str]]:
    verbs = _list(rule, "verbs")
    names = _list(rule, "resourceNames")
    rows = [("", f"[{url}]", names, verbs) for url in _texts(rule, "nonResourceURLs")]
    for resource in _texts(rule, "resources"):
        for group in _texts(rule, "apiGroups") or [""]:
            shown = f"{resource}.{group}" if group else resource
            rows.append((shown, "[]", names, verbs))
    return rows


def _texts(rule: Record, field: str) -> list[str]:
    found = raw.value(rule, field)
    return [str(item) for item in found] if isinstance(found, list) else []


def _list(rule: Record, field: str) -> str:
    return f"[{' '.join(_texts(rule, field))}]"
