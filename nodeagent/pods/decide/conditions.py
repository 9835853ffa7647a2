"""The conditions of a pod, with the reasons and sentences that clients match on; pure.

Texts are the reference agent's (pkg/kubelet/status/generate.go).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orch.wire.records.pods import ContainerStatus, PodCondition

TRUE, FALSE = "True", "False"
_FINAL_REASONS = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}


@dataclass(frozen=True, slots=True)
class Moment:
    """What the conditions are judged by."""

    phase: str
    sandbox_ready: bool
    incomplete_inits: tuple[str, ...]  # names of those that keep the others waiting
    apps: tuple[ContainerStatus, ...]


def pod_conditions(
    moment: Moment, before: Sequence[PodCondition] | None, now: str
) -> list[PodCondition]:
    """All conditions; a time of transition is kept while the status is the same."""
    conditions = [
        PodCondition(
            type="PodReadyToStartContainers", status=TRUE if moment.sandbox_ready else FALSE
        ),
        _initialized(moment),
        _ready("Ready", moment),
        _ready("ContainersReady", moment),
        PodCondition(type="PodScheduled", status=TRUE),
    ]
    known = {condition.type: condition for condition in before or ()}
    # Conditions that others set (a scheduler, a controller) are theirs to remove.
    foreign = [c for c in before or () if c.type not in {own.type for own in conditions}]
    return [*(_stamped(c, known.get(c.type), now) for c in conditions), *foreign]


def find_condition(conditions: Sequence[PodCondition] | None, kind: str) -> PodCondition | None:
    return next((c for c in conditions or () if c.type == kind), None)


def _initialized(moment: Moment) -> PodCondition:
    if moment.phase == "Succeeded":
        return PodCondition(type="Initialized", status=TRUE, reason="PodCompleted")
    started = any(app.state and (app.state.running or app.state.terminated) for app in moment.apps)
    if moment.incomplete_inits and not started:
        return PodCondition(
            type="Initialized",
            status=FALSE,
            reason="ContainersNotInitialized",
            message=f"containers with incomplete status: [{' '.join(moment.incomplete_inits)}]",
        )
    return PodCondition(type="Initialized", status=TRUE)


def _ready(kind: str, moment: Moment) -> PodCondition:
    if final := _FINAL_REASONS.get(moment.phase):
        return PodCondition(type=kind, status=FALSE, reason=final)
    unready = [app.name for app in moment.apps if not app.ready]
    if unready:
        return PodCondition(
            type=kind,
            status=FALSE,
            reason="ContainersNotReady",
            message=f"containers with unready status: [{' '.join(unready)}]",
        )
    return PodCondition(type=kind, status=TRUE)


def _stamped(condition: PodCondition, before: PodCondition | None, now: str) -> PodCondition:
    same = before is not None and before.status == condition.status
    kept = before.lastTransitionTime if before and same else None
    return condition.model_copy(update={"lastTransitionTime": kept or now})
