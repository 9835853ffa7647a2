"""The steps that can be taken next for a pod, one value per kind; pure.

`plan` decides which, `worker` does it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class CreateSandbox:
    """Run a new sandbox; `replaces` is the dead one whose network must be released first."""

    attempt: int
    replaces: str = ""


@dataclass(frozen=True, slots=True)
class StartContainer:
    """Pull if needed, create and start; with `created_id` only start what was created before."""

    name: str
    attempt: int
    backoff_step: int
    created_id: str = ""


@dataclass(frozen=True, slots=True)
class StopContainers:
    """Stop side by side, each gracefully; `grace_s` None means the pod's own grace period."""

    ids: tuple[str, ...]
    why: str
    grace_s: int | None = None


@dataclass(frozen=True, slots=True)
class StopSandbox:
    sandbox_id: str


@dataclass(frozen=True, slots=True)
class RemoveContainer:
    container_id: str


@dataclass(frozen=True, slots=True)
class RemoveSandbox:
    sandbox_id: str


Action = (
    CreateSandbox | StartContainer | StopContainers | StopSandbox | RemoveContainer | RemoveSandbox
)


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a container does not run yet, as `containerStatuses[].state.waiting` shows it."""

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class StepBackoff:
    """A step that failed and is not to be repeated before `remaining_s`; 0: it may be now."""

    reason: str
    message: str
    remaining_s: float


@dataclass(frozen=True, slots=True)
class Unhealthy:
    """Why a running container is to be killed; `grace_s` None means the pod's grace period."""

    why: str
    grace_s: int | None = None


@dataclass(frozen=True, slots=True)
class ProbeResults:
    """What probes say of running containers, by id: to be killed, not ready, not started yet."""

    unhealthy: Mapping[str, Unhealthy] = field(default_factory=dict)
    unready: frozenset[str] = frozenset()
    unstarted: frozenset[str] = frozenset()


NOT_PROBED = ProbeResults()


@dataclass(frozen=True, slots=True)
class Plan:
    """The next step, None when there is nothing to do before `wake_in_s` (None: for ever).

    `waiting` holds the reason for every container that neither runs nor has ended.
    `finished` means that all containers of the pod have ended for good.
    """

    action: Action | None = None
    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    wake_in_s: float | None = None
    finished: bool = False
