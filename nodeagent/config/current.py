"""The configuration in force: from the start, and with the reloadable fields changed since; pure.

For all other fields a new value takes effect at the next restart. Must not read files (`load`) or
apply changes (`reload`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from nodeagent.config.fields import ConfigModel
from nodeagent.config.types import NodeAgentConfiguration

Path = tuple[str, ...]

# Applied at once by `reload`, including all fields below these paths.
RELOADABLE: tuple[Path, ...] = (
    ("logging",),
    ("housekeepingInterval",),
    ("nodeStatusUpdateFrequency",),
    ("nodeStatusReportFrequency",),
    ("authentication", "webhook", "cacheTTL"),
    ("authorization", "webhook"),
)


class CurrentConfig:
    """`value` is in force; `digest` identifies it: twelve hex digits of its masked form."""

    def __init__(self, value: NodeAgentConfiguration) -> None:
        self.value = value

    @property
    def digest(self) -> str:
        return digest_of(self.value)

    def update(self, wanted: NodeAgentConfiguration) -> tuple[list[Path], list[Path]]:
        """Apply the changed reloadable fields; returns these, and those that need a restart."""
        changed = list(differences(self.value, wanted))
        applied = [path for path in changed if _is_reloadable(path)]
        for path in applied:
            self.value = _replaced(self.value, path, _at(wanted, path))
        return applied, [path for path in changed if path not in applied]


def digest_of(config: NodeAgentConfiguration) -> str:
    """Equal for equal configurations, whatever files they came from; secrets are masked."""
    shown = json.dumps(config.model_dump(mode="json"), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(shown.encode()).hexdigest()[:12]


def differences(old: ConfigModel, new: ConfigModel, at: Path = ()) -> Iterator[Path]:
    """The fields that differ; maps and lists are compared whole."""
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
