"""Webhooks as their configurations describe them, and which of them a request concerns; pure.

Rules as the reference's: a request fits a rule that has its operation, group, version, resource and
scope, and both selectors must match. Where a group has two names here, a kind several versions, or
objects are served as two kinds, a webhook whose match policy is `Equivalent` is asked, and sees
objects, under those its rules use.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from orch.server.objects.document import Document, ObjectTarget
from orch.server.strategy.webhooks import DEFAULT_TIMEOUT_S, EVERY
from orch.wire import raw
from orch.wire.records import aliases, kinds
from orch.wire.records.kinds import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, Resource
from orch.wire.selectors import LabelSelector, label_selector_of

MAX_CONFIGURATIONS = 100  # of a kind


class Name(NamedTuple):
    """One of those that a resource has: a name of its group, and a version; objects look under it
    as those of the kind `form` do.
    """

    group: str
    version: str
    form: Resource


class Matched(NamedTuple):
    """A request as rules see it; `group` is the name of the resource's group that it came under."""

    operation: str
    resource: Resource
    subresource: str
    group: str


@dataclass(frozen=True, slots=True)
class WebhookRule:
    operations: frozenset[str]
    groups: frozenset[str]
    versions: frozenset[str]
    resources: tuple[tuple[str, str], ...]  # with their subresources
    scope: str

    def fits(self, asked: Matched, name: Name) -> bool:
        """Whether it is about the request, taken as one under this name of the resource."""
        resource = asked.resource
        if self.scope != EVERY and (self.scope == "Namespaced") != resource.namespaced:
            return False
        return (
            _has(self.operations, asked.operation)
            and _has(self.groups, name.group)
            and _has(self.versions, name.version)
            and any(
                plural in (EVERY, resource.plural) and part in (EVERY, asked.subresource)
                for plural, part in self.resources
            )
        )


def _has(values: frozenset[str], value: str) -> bool:
    return value in values or EVERY in values


@dataclass(frozen=True, slots=True)
class Hook:
    """One webhook; `fails_open`: requests go on when it fails; `is_reinvoked`: once more after
    others changed the object that it has seen.
    """

    configuration: str
    name: str
    server: str  # https://host[:port]
    path: str
    authority: bytes = field(repr=False)  # PEM; b"": the system's
    rules: tuple[WebhookRule, ...]
    namespaces: LabelSelector
    objects: LabelSelector
    timeout_s: float
    fails_open: bool
    is_exact: bool
    is_mutating: bool
    is_reinvoked: bool

    @property
    def step(self) -> str:
        """Its type in metrics."""
        return "admit" if self.is_mutating else "validating"

    def name_for(self, asked: Matched) -> Name | None:
        """The name under which it is asked; None when its rules do not fit."""
        names = _names(asked)
        for name in islice(names, 1) if self.is_exact else names:
            if any(rule.fits(asked, name) for rule in self.rules):
                return name
        return None

    def selects(
        self, labels: Mapping[str, str] | None, new: Document | None, old: Document | None
    ) -> bool:
        """`labels` are those of the namespace, None without one."""
        if labels is not None and not self.namespaces.matches(labels):
            return False
        if not self.objects.requirements:
            return True
        return any(self._selects_object(each) for each in (new, old) if each is not None)

    def _selects_object(self, document: Document) -> bool:
        metadata = document.get("metadata")
        return isinstance(metadata, dict) and self.objects.matches(metadata.get("labels") or {})


def _names(asked: Matched) -> Iterator[Name]:
    """Every name of the resource, that of the request first."""
    resource = asked.resource
    for version in (resource.version, *resource.other_versions):
        for group in (asked.group, *_names_of(resource.group)):
            yield Name(group, version, resource)
    for other in kinds.same_objects(resource):
        for group in _names_of(other.group):
            yield Name(group, other.version, other)


def _names_of(group: str) -> tuple[str, ...]:
    return group, aliases.UPSTREAM_BY_OWN.get(group, group)


# How many configurations of a kind there are.
Count = Callable[[Resource], int]


class WebhookBound:
    """The `Admission` of configurations: not more than requests can be matched with."""

    def __init__(self, count: Count) -> None:
        self._count = count

    def judges(self, resource: Resource) -> bool:
        return resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)

    def check(self, target: ObjectTarget, new: Document, old: Document | None) -> None:
        """ApiError 403 for one configuration too many."""
        if old is None and self._count(target.strategy.resource) >= MAX_CONFIGURATIONS:
            why = f"there are {MAX_CONFIGURATIONS} already: put its webhooks into one of those"
            raise target.forbidden(new["metadata"].get("name", ""), why)


def hooks_of(document: Document, *, is_mutating: bool) -> tuple[Hook, ...]:
    """The webhooks of a stored configuration."""
    name = raw.text(document, "metadata", "name")
    return tuple(
        _hook(name, record, is_mutating=is_mutating) for record in raw.records(document, "webhooks")
    )


def _hook(configuration: str, record: Mapping[str, Any], *, is_mutating: bool) -> Hook:
    server, path = _parts_of(raw.text(record, "clientConfig", "url"))
    return Hook(
        configuration=configuration,
        name=raw.text(record, "name"),
        server=server,
        path=path,
        authority=_decoded(raw.text(record, "clientConfig", "caBundle")),
        rules=tuple(map(_rule, raw.records(record, "rules"))),
        namespaces=label_selector_of(raw.mapping(record, "namespaceSelector")),
        objects=label_selector_of(raw.mapping(record, "objectSelector")),
        timeout_s=float(record.get("timeoutSeconds") or DEFAULT_TIMEOUT_S),
        fails_open=record.get("failurePolicy") == "Ignore",
        is_exact=record.get("matchPolicy") == "Exact",
        is_mutating=is_mutating,
        is_reinvoked=record.get("reinvocationPolicy") == "IfNeeded",
    )


def _parts_of(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}", parts.path or "/"


def _decoded(text: str) -> bytes:
    return base64.b64decode(text)


def _rule(record: Mapping[str, Any]) -> WebhookRule:
    def names(field_name: str) -> frozenset[str]:
        return frozenset(map(str, record.get(field_name) or ()))

    return WebhookRule(
        operations=names("operations"),
        groups=names("apiGroups"),
        versions=names("apiVersions"),
        resources=tuple(_split(str(text)) for text in record.get("resources") or ()),
        scope=record.get("scope") or EVERY,
    )


def _split(text: str) -> tuple[str, str]:
    resource, _, subresource = text.partition("/")
    return resource, subresource


def concerned(hooks: Iterable[Hook], asked: Matched) -> tuple[tuple[Hook, Name], ...]:
    """The webhooks whose rules a request fits, with the name of its resource for each."""
    found = ((hook, hook.name_for(asked)) for hook in hooks)
    return tuple((hook, name) for hook, name in found if name is not None)
