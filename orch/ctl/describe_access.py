"""The text of `orchctl describe` for roles and bindings; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from orch.ctl import sheet
from orch.wire import raw

Record = Mapping[str, Any]
_COLUMNS = ("Resources", "Non-Resource URLs", "Resource Names", "Verbs")


@dataclass(frozen=True, slots=True)
class _Subject:
    """What a rule is about, broken down to one resource or one path."""

    group: str = ""
    resource: str = ""
    name: str = ""
    url: str = ""

    @property
    def shown(self) -> str:
        """`pods`, `leases.coordination.orch.io`, `deployments.apps/scale`."""
        resource, slash, subresource = self.resource.partition("/")
        return (f"{resource}.{self.group}" if self.group else resource) + slash + subresource


@dataclass(slots=True)
class _Rule:
    subject: _Subject
    verbs: list[str] = field(default_factory=list)

    @property
    def row(self) -> tuple[str, ...]:
        subject = self.subject
        return subject.shown, f"[{subject.url}]", f"[{subject.name}]", f"[{' '.join(self.verbs)}]"

    @property
    def order(self) -> str:
        """Rules are sorted by their text, verbs first."""
        subject = self.subject
        return (
            f"Verbs:[{' '.join(self.verbs)}],APIGroups:[{subject.group}],"
            f"Resources:[{subject.resource}],ResourceNames:[{subject.name}],"
            f"NonResourceURLs:[{subject.url}],"
        )


def role(record: Record) -> list[str]:
    """What a role allows: one line per resource or path."""
    rows = [rule.row for rule in sorted(_rules(record), key=lambda rule: rule.order)]
    return [*sheet.head(record, namespaced=False), *sheet.table("PolicyRule", _COLUMNS, rows)]


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


def _rules(record: Record) -> list[_Rule]:
    """The rules broken down, those about the same resource in one; of paths, one per verb."""
    resources: dict[_Subject, _Rule] = {}
    paths: list[_Rule] = []
    for rule in raw.records(record, "rules"):
        verbs = _texts(rule, "verbs")
        for subject in _resources(rule):
            known = resources.setdefault(subject, _Rule(subject)).verbs
            known += [verb for verb in dict.fromkeys(verbs) if verb not in known]
        for url in _texts(rule, "nonResourceURLs"):
            paths += [_Rule(_Subject(url=url), [verb]) for verb in verbs]
    return [*paths, *(rule for rule in resources.values() if rule.verbs)]


def _resources(rule: Record) -> Iterator[_Subject]:
    for group in _texts(rule, "apiGroups"):
        for resource in _texts(rule, "resources"):
            for name in _texts(rule, "resourceNames") or [""]:
                yield _Subject(group, resource, name)


def _texts(rule: Record, member: str) -> list[str]:
    found = raw.value(rule, member)
    return [str(item) for item in found] if isinstance(found, list) else []
