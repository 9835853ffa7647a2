"""The actions a worker can take for a pod, one value per kind; pure.

`plan` chooses the action, `worker` performs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class CreateSandbox:
    """Run a new sandbox; the network of the dead sandbox `replaces` must be released first."""

    attempt: int
    replaces: str = ""


@dataclass(frozen=True, slots=True)
class StartContainer:
    """Pull if needed, create and start; with `created_id` only start that container.

    `round`: how often all containers of the pod had restarted.
    """

    name: str
    attempt: int
    backoff_step: int
    created_id: str = ""
    round: int = 0


@dataclass(frozen=True, slots=True)
class StopContainers:
    """Stop concurrently and gracefully; `grace_s` None means the pod's own grace period.

    `for_resize`: they start again, whatever their restart policy.
    """

    ids: tuple[str, ...]
    why: str
    grace_s: int | None = None
    for_resize: bool = False


@dataclass(frozen=True, slots=True)
class ResizePod:
    """Put the allocated size in force: of the pod's cgroup, and of these running containers."""

    ids: tuple[str, ...]


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
    CreateSandbox
    | StartContainer
    | StopContainers
    | ResizePod
    | StopSandbox
    | RemoveContainer
    | RemoveSandbox
)


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a container is not running yet, as shown in `containerStatuses[].state.waiting`."""

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class StepBackoff:
    """A failed step that must not be retried for `remaining_s`."""

    reason: str
    message: str
    remaining_s: float


@dataclass(frozen=True, slots=True)
class Unhealthy:
    """Why to kill a running container; `grace_s` None means the pod's grace period."""

    why: str
    grace_s: int | None = None


@dataclass(frozen=True, slots=True)
class ProbeResults:
    """Results by id: running containers to be killed, not ready, not started yet; killed ones."""

    unhealthy: Mapping[str, Unhealthy] = field(default_factory=dict)
    unready: frozenset[str] = frozenset()
    unstarted: frozenset[str] = frozenset()
    killed: frozenset[str] = frozenset()


NOT_PROBED = ProbeResults()


@dataclass(frozen=True, slots=True)
class Plan:
    """The next action; None when there is nothing to do before `wake_in_s` (None: indefinitely).

    `waiting` holds the reason for every container that is neither running nor terminated.
    `finished` means that all containers of the pod have terminated for good.
    """

    action: Action | None = None
    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    wake_in_s: float | None = None
    finished: bool = False
