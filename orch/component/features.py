"""Feature gates: what is still in development, who may switch it, and since when.

A gate is alpha (off), beta (on unless said otherwise) or stable (always on). `AllAlpha` and
`AllBeta` switch a whole stage; a gate named by itself wins over them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum


class Stage(Enum):
    """The value is what metrics and pages show; a stable feature shows nothing."""

    ALPHA = "ALPHA"
    BETA = "BETA"
    STABLE = ""


@dataclass(frozen=True, slots=True)
class Gate:
    name: str
    stage: Stage
    default: bool
    since: str  # release of the present stage


# spec.md, "Versioning" and "Resources"; the last ones are this project's own.
GATES: tuple[Gate, ...] = (
    Gate("ComponentFlagz", Stage.ALPHA, default=False, since="1.32"),
    Gate("ComponentSLIs", Stage.STABLE, default=True, since="1.32"),
    Gate("ComponentStatusz", Stage.ALPHA, default=False, since="1.32"),
    Gate("ContainerCheckpoint", Stage.BETA, default=True, since="1.30"),
    Gate("NodeDeclaredFeatures", Stage.ALPHA, default=False, since="1.35"),
    Gate("NodeAgentFineGrainedAuthz", Stage.BETA, default=True, since="1.33"),
    Gate("NodeAgentPSI", Stage.BETA, default=True, since="1.34"),
    Gate("NodeAgentPSITriggers", Stage.ALPHA, default=False, since="1.35"),
    Gate("PodAndContainerStatsFromCRI", Stage.ALPHA, default=False, since="1.23"),
)
_STAGES = {"AllAlpha": Stage.ALPHA, "AllBeta": Stage.BETA}


class FeatureError(ValueError):
    """A gate that does not exist or cannot be switched; the text names it."""


class Features:
    """The gates of one program after configuration; `enabled` answers for each."""

    def __init__(self, settings: Mapping[str, bool]) -> None:
        """Apply settings by name; FeatureError for the first that does not fit."""
        for name in settings:
            _check(name, settings[name])
        self._enabled = {gate.name: _decide(gate, settings) for gate in GATES}

    def enabled(self, name: str) -> bool:
        """KeyError for a name that is no gate: a mistake of the program, not of the user."""
        return self._enabled[name]

    def all(self) -> Iterator[tuple[Gate, bool]]:
        """Every gate and whether it is on."""
        for gate in GATES:
            yield gate, self._enabled[gate.name]


def _check(name: str, value: bool) -> None:
    if name in _STAGES:
        return
    gate = next((gate for gate in GATES if gate.name == name), None)
    if gate is None:
        known = [gate.name for gate in GATES] + list(_STAGES)
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
        raise FeatureError(f"there is no feature gate {name}; did you mean {near}?")
    if gate.stage is Stage.STABLE and value != gate.default:
        raise FeatureError(f"the feature {name} is stable and can no longer be switched")


def _decide(gate: Gate, settings: Mapping[str, bool]) -> bool:
    if gate.name in settings:
        return settings[gate.name]
    for name, stage in _STAGES.items():
        if gate.stage is stage and name in settings:
            return settings[name]
    return gate.default
