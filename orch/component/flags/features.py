"""Feature gates: their stages by release, and which are enabled.

A gate is alpha (off), beta (on by default) or stable (always on), as of the emulated release.
`AllAlpha` and `AllBeta` switch a whole stage; a setting for a single gate wins over them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from orch.component.flags import reference_gates
from orch.component.flags.reference_gates import RENAMED
from orch.component.flags.stability import CURRENT, Release, parse_release


class Stage(Enum):
    """The value is what metrics and pages show; a stable feature shows nothing."""

    ALPHA = "ALPHA"
    BETA = "BETA"
    STABLE = ""


@dataclass(frozen=True, slots=True)
class FeatureGate:
    """A feature in some release."""

    name: str
    stage: Stage
    default: bool
    since: str  # release of this stage


_History = tuple[tuple[str, Stage, bool], ...]  # release, stage, default; oldest first


def _alpha_beta(alpha: str, beta: str = "", stable: str = "") -> _History:
    """Off while alpha, on from beta on."""
    steps = ((alpha, Stage.ALPHA, False), (beta, Stage.BETA, True), (stable, Stage.STABLE, True))
    return tuple(step for step in steps if step[0])


# spec.md, "Versioning" and "Resources"; older stages as in the reference system. This project's own
# are NodeAgentPSITriggers and PodBinding; PSINodeCondition is the reference's of a release later.
_HISTORIES: Mapping[str, _History] = {
    "ComponentFlagz": _alpha_beta("1.32"),
    "ComponentSLIs": _alpha_beta("1.26", "1.27", "1.32"),
    "ComponentStatusz": _alpha_beta("1.32"),
    "ContainerCheckpoint": _alpha_beta("1.25", "1.30"),
    "InPlacePodVerticalScaling": _alpha_beta("1.27", "1.33", "1.35"),
    "MemoryQoS": _alpha_beta("1.22"),
    "NodeAgentFineGrainedAuthz": _alpha_beta("1.32", "1.33"),
    "NodeAgentPSI": _alpha_beta("1.33", "1.34"),
    "NodeAgentPSITriggers": _alpha_beta("1.35"),
    "NodeDeclaredFeatures": _alpha_beta("1.35"),
    "PSINodeCondition": _alpha_beta("1.35"),
    "PodAndContainerStatsFromCRI": _alpha_beta("1.23"),
    "PodBinding": _alpha_beta("", "1.35"),
    "ResourceHealthStatus": _alpha_beta("1.31", "1.36"),
}
_STAGES = {"AllAlpha": Stage.ALPHA, "AllBeta": Stage.BETA}


def gates_at(release: Release) -> tuple[FeatureGate, ...]:
    """Every gate of a release, at its stage then."""
    gates = []
    for name, history in _HISTORIES.items():
        steps = [step for step in history if parse_release(step[0]) <= release]
        if steps:
            since, stage, default = steps[-1]
            gates.append(FeatureGate(name, stage, default, since))
    return tuple(gates)


class FeatureError(ValueError):
    """A gate that does not exist or cannot be switched; the text names it."""


class Features:
    """The gates of a program after configuration, with the stages and defaults of `release`."""

    def __init__(self, settings: Mapping[str, bool], release: Release = CURRENT) -> None:
        """Apply settings by name; FeatureError for the first invalid one.

        A gate that only the reference has may be given as it is there by default.
        """
        settings = {RENAMED.get(name, name): value for name, value in settings.items()}
        self._gates = gates_at(release)
        for name in settings:
            self._check(name, settings[name], release)
        self._enabled = dict.fromkeys(_HISTORIES, False)
        self._enabled |= {gate.name: _decide(gate, settings) for gate in self._gates}

    def enabled(self, name: str) -> bool:
        """KeyError for an unknown name, which is a bug of the program."""
        return self._enabled[name]

    def all(self) -> Iterator[tuple[FeatureGate, bool]]:
        """Every gate and whether it is on."""
        for gate in self._gates:
            yield gate, self._enabled[gate.name]

    def _check(self, name: str, value: bool, release: Release) -> None:
        if name in _STAGES:
            return
        gate = next((gate for gate in self._gates if gate.name == name), None)
        if gate is None and name in _HISTORIES:
            emulated = f"{release.major}.{release.minor}"
            raise FeatureError(
                f"the feature {name} does not exist in {emulated}, which is emulated"
            )
        if gate is None and name in reference_gates.DEFAULTS:
            if refused := reference_gates.refusal(name, value):
                raise FeatureError(refused)
            return
        if gate is None:
            near = difflib.get_close_matches(name, [*_HISTORIES, *_STAGES], n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else "leave it out"
            raise FeatureError(f"there is no feature gate {name}; {hint}")
        if gate.stage is Stage.STABLE and value != gate.default:
            raise FeatureError(f"the feature {name} is stable and can no longer be switched")


def _decide(gate: FeatureGate, settings: Mapping[str, bool]) -> bool:
    if gate.name in settings:
        return settings[gate.name]
    for name, stage in _STAGES.items():
        if gate.stage is stage and name in settings:
            return settings[name]
    return gate.default
