"""The configuration an agent runs with: what it started with, and what a reload changed of it.

A declared part of the fields can be changed while the agent runs; for the others a new value waits
for a restart, and the agent says so. Pure: reading files is `load`'s, acting on it `reload`'s.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from nodeagent.config.fields import ConfigModel
from nodeagent.config.types import NodeAgentConfiguration

Path = tuple[str, ...]

# Acted on at once by `reload`; whatever lies below a path is meant too.
RELOADABLE: tuple[Path, ...] = (
    ("logging",),
    ("housekeepingInterval",),
    ("nodeStatusUpdateFrequency",),
    ("nodeStatusReportFrequency",),
    ("authentication", "webhook", "cacheTTL"),
    ("authorization", "webhook"),
)


class CurrentConfig:
    """`value` is what is in force; `digest` names it: twelve hex digits of its shown form."""

    def __init__(self, value: NodeAgentConfiguration) -> None:
        self.value = value

    @property
    def digest(self) -> str:
        return digest_of(self.value)

    def take(self, wanted: NodeAgentConfiguration) -> tuple[list[Path], list[Path]]:
        """Put the changed fields that can be reloaded in force; also which need a restart."""
        changed = list(differences(self.value, wanted))
        taken = [path for path in changed if _is_reloadable(path)]
        for path in taken:
            self.value = _replaced(self.value, path, _at(wanted, path))
        return taken, [path for path in changed if path not in taken]


def digest_of(config: NodeAgentConfiguration) -> str:
    """The same for equal configurations, whatever files they came from. Secrets are not in it."""
    shown = json.dumps(config.model_dump(mode="json"), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(shown.encode()).hexdigest()[:12]


def differences(old: ConfigModel, new: ConfigModel, at: Path = ()) -> Iterator[Path]:
    """The fields that differ; a map or a list is one field."""
    for name in type(old).model_fields:
        before, after = getattr(old, name), getattr(new, name)
        if isinstance(before, ConfigModel) and isinstance(after, ConfigModel):
            yield from differences(before, after, (*at, name))
        elif before != after:
            yield (*at, name)


def _is_reloadable(path: Path) -> bool:
    return any(path[: len(known)] == known for known in RELOADABLE)


def _at(record: Any, path: Path) -> Any:
    for name in path:
        record = getattr(record, name)
    return record


def _replaced(record: Any, path: Path, value: Any) -> Any:
    name, *rest = path
    if rest:
        value = _replaced(getattr(record, name), tuple(rest), value)
    return record.model_copy(update={name: value})
