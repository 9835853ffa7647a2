"""A pod as the checks of pod security see it, and the words they share; pure.

Works on documents: fields that no record here declares are judged as well. What has the wrong type
counts as set to something that is not allowed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from orch.wire import raw
from orch.wire.podrules.podspec import document_places

Document = Mapping[str, Any]

INIT_FIRST = ("initContainers", "containers", "ephemeralContainers")  # the order in texts


class JudgedContainer(NamedTuple):
    name: str
    fields: Document
    context: Document  # its security context


@dataclass(frozen=True, slots=True)
class JudgedPod:
    """The parts of a pod that checks look at; `secured` are the containers with a context."""

    annotations: Document
    spec: dict[str, Any]
    context: Document
    containers: tuple[JudgedContainer, ...]
    secured: tuple[JudgedContainer, ...]

    @classmethod
    def of(cls, pod: Document) -> JudgedPod:
        spec = pod.get("spec") or {}
        containers = tuple(
            JudgedContainer(fields.get("name") or "", fields, fields.get("securityContext") or {})
            for _, fields in document_places(spec, INIT_FIRST)
        )
        return cls(
            raw.mapping(pod, "metadata", "annotations"),
            spec,
            spec.get("securityContext") or {},
            containers,
            tuple(container for container in containers if container.context),
        )

    @property
    def volumes(self) -> list[dict[str, Any]]:
        return self.spec.get("volumes") or []

    @property
    def is_for_windows(self) -> bool:
        return raw.text(self.spec, "os", "name") == "windows"

    @property
    def has_own_users(self) -> bool:
        return self.spec.get("hostUsers") is False


class Violation(NamedTuple):
    """Why a pod is refused: in short, and with the values that are not allowed."""

    reason: str
    detail: str


Check = Callable[[JudgedPod], Violation | None]


def text_of(value: Any) -> str:
    """A value that should be a text."""
    return value if isinstance(value, str) else "" if value is None else str(value)


def part_of(record: Document, name: str, key: str) -> Document:
    """The record at `name`, by `key` if there is something else in its place; {} for none."""
    found = record.get(name)
    if found is None:
        return {}
    return found if isinstance(found, Mapping) else {key: found}


def offenders(pod: JudgedPod, wrong: Callable[[Document], str | None]) -> tuple[str, list[str]]:
    """Who has something wrong in its security context (the pod, containers or both; "" for
    nobody), and what.
    """

    def values_in(context: Document) -> set[str]:
        text = wrong(context)
        return set() if text is None else {text}

    of_pod = values_in(pod.context)
    containers, values = those_with_any([(c.name, values_in(c.context)) for c in pod.secured])
    who = ["pod"] if of_pod else []
    who += [names_of(containers)] if containers else []
    return " and ".join(who), sorted({*values, *of_pod})


def those_with_any(found: Iterable[tuple[str, set[str]]]) -> tuple[list[str], list[str]]:
    """The names with at least one value, and all values."""
    pairs = [(name, values) for name, values in found if values]
    return [name for name, _ in pairs], sorted(set().union(*(values for _, values in pairs)))


def quoted(items: Iterable[str]) -> str:
    return ", ".join(f'"{item}"' for item in items)


def plural(word: str, items: Collection[Any]) -> str:
    return word if len(items) == 1 else f"{word}s"


def names_of(containers: Collection[str]) -> str:
    return f"{plural('container', containers)} {quoted(containers)}"


def use(items: Collection[Any]) -> str:
    return "uses" if len(items) == 1 else "use"


def annotation(key: str, value: Any) -> str:
    return f"{key}={json.dumps(text_of(value), ensure_ascii=False)}"
