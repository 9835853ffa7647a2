"""Whether and when a container is started, started again or stopped; pure.

Back-off is 10 s doubling to 5 min and starts over after 10 min of running (reference agent,
`maxContainerBackOff`). A container's back-off step is stored in its annotations, so a restarted
agent continues counting.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from nodeagent.pods.actions import (
    NOT_PROBED,
    Action,
    ProbeResults,
    RemoveContainer,
    StartContainer,
    StepBackoff,
    StopContainers,
    Waiting,
)
from nodeagent.pods.decide import rounds
from nodeagent.pods.observed import ObservedPod, recorded_hash, recorded_size, recorded_step
from nodeagent.pods.resize.sizes import (
    NOTHING_IN_FORCE,
    InForce,
    Size,
    container_size,
    granted_resources,
)
from nodeagent.pods.spec import spec
from nodeagent.runtime.base import ContainerDetail, ContainerState
from orch.wire import times
from orch.wire.podrules.podspec import is_sidecar, starts_again
from orch.wire.records.pods import Container, Pod

BACKOFF_INITIAL_S = 10.0
BACKOFF_MAX_S = 300.0
BACKOFF_RESET_S = 600.0  # having run for so long, a container counts as healthy

_NS = 1_000_000_000
_LAST_STEP = 6  # 10 s x 2^5 is above the maximum


@dataclass(frozen=True, slots=True)
class Decision:
    """What a container needs: nothing, an action, or to wait (for `wake_in_s` at most)."""

    action: Action | None = None
    waiting: Waiting | None = None
    wake_in_s: float | None = None


def first_waiting(pod: Pod) -> Waiting:
    """Of a container that has not been created; the same for all of them."""
    return Waiting("PodInitializing" if pod.spec.initContainers else "ContainerCreating")


def is_changed(
    container: Container, detail: ContainerDetail, in_force: InForce = NOTHING_IN_FORCE
) -> bool:
    """Whether an instance was created from an older definition; its size is no part of that."""
    if recorded_size(detail):
        return recorded_hash(detail) != spec.container_hash(container)
    first = in_force.first.get(container.name)
    then = first and granted_resources(container.resources, first)
    return recorded_hash(detail) != spec.former_hash(container, then)


def has_ended_for_good(
    pod: Pod,
    container: Container,
    latest: ContainerDetail | None,
    killed: Collection[str] = (),
    in_force: InForce = NOTHING_IN_FORCE,
) -> bool:
    """Exited, with no reason for a restart; a changed definition is one, and a resize.

    What a failed probe has `killed` has failed, whatever its exit code.
    """
    if latest is None or latest.container.state is not ContainerState.EXITED:
        return False
    if is_changed(container, latest, in_force) or latest.container.id in in_force.restarting:
        return False
    code = latest.exit_code
    if code == 0 and latest.container.id in killed and starts_again(pod, container, 1):
        return False
    return not starts_again(pod, container, code)


def has_failed_for_good(
    pod: Pod,
    container: Container,
    latest: ContainerDetail | None,
    in_force: InForce = NOTHING_IN_FORCE,
) -> bool:
    ended = has_ended_for_good(pod, container, latest, in_force=in_force)
    return ended and latest is not None and latest.exit_code != 0


def delay_s(step: int) -> float:
    """How long to wait before the restart that follows `step`: 0, 10, 20, … 300 s."""
    if step <= 0:
        return 0.0
    return min(BACKOFF_INITIAL_S * 2.0 ** (min(step, _LAST_STEP) - 1), BACKOFF_MAX_S)


def ran_long(detail: ContainerDetail) -> bool:
    ran_ns = detail.finished_at_ns - detail.started_at_ns
    return detail.started_at_ns > 0 and ran_ns >= BACKOFF_RESET_S * _NS


class RestartRules:
    """The decisions on the containers of one pod whose sandbox is ready."""

    def __init__(
        self,
        pod: Pod,
        seen: ObservedPod,
        backoffs: Mapping[str, StepBackoff],
        now_ns: int,
        probed: ProbeResults = NOT_PROBED,
        in_force: InForce = NOTHING_IN_FORCE,
    ) -> None:
        """Ids that are `restarting` in `in_force` start again, whatever the policy."""
        self._in_force = in_force
        self._round = rounds.current(pod, seen)
        self._former = {d.container.id for d in rounds.former(pod, seen, self._round)}
        self._pod = pod
        self._seen = seen
        self._sandbox_id = seen.sandbox.sandbox.id if seen.sandbox else ""
        self._backoffs = backoffs
        self._probed = probed
        self._now_ns = now_ns
        self._init_names = {c.name for c in pod.spec.initContainers or ()}

    def decide(self, container: Container) -> Decision:
        latest = self._seen.latest(container.name)
        if latest is None:
            return self._start(container, attempt=0, step=0)
        here = latest.container.sandbox_id == self._sandbox_id
        match latest.container.state:
            case ContainerState.EXITED:
                return self._ended(container, latest, here=here)
            case ContainerState.CREATED:
                return self._created(container, latest, here=here)
            case ContainerState.UNKNOWN:
                why = "the runtime lost track of it"
                return _stop(latest, why, grace_s=0)
        if self._is_changed(container, latest):
            return _stop(latest, "its definition changed")
        if unhealthy := self._probed.unhealthy.get(latest.container.id):
            return _stop(latest, unhealthy.why, unhealthy.grace_s)
        return Decision()

    def decide_ephemeral(self, container: Container) -> Decision:
        """Started once, regardless of the others, and never again."""
        latest = self._seen.latest(container.name)
        if latest is None:
            return self._start(container, attempt=0, step=0)
        here = latest.container.sandbox_id == self._sandbox_id
        if latest.container.state is ContainerState.CREATED and here:
            return self._created(container, latest, here=here)
        return Decision()

    def blocks_later(self, container: Container) -> bool:
        """Whether containers after this one must wait: for an init container not yet done."""
        if container.name not in self._init_names:
            return False
        latest = self._seen.latest(container.name)
        if latest is None or latest.container.sandbox_id != self._sandbox_id:
            return True
        if latest.container.id in self._former:
            return True
        if is_sidecar(container):
            running = latest.container.state is ContainerState.RUNNING
            return not running or latest.container.id in self._probed.unstarted
        return latest.container.state is not ContainerState.EXITED or latest.exit_code != 0

    def _created(self, container: Container, latest: ContainerDetail, *, here: bool) -> Decision:
        if (
            not here
            or self._is_changed(container, latest)
            or _is_outgrown(latest, container_size(self._pod, container))
        ):
            return Decision(RemoveContainer(latest.container.id), first_waiting(self._pod))
        attempt, step = latest.container.attempt, recorded_step(latest)
        start = StartContainer(container.name, attempt, step, created_id=latest.container.id)
        return self._unless_backing_off(container.name, start)

    def _ended(self, container: Container, latest: ContainerDetail, *, here: bool) -> Decision:
        if not self._starts_again(container, latest, here=here):
            return Decision()
        attempt = latest.container.attempt + 1
        resized = latest.container.id in self._in_force.restarting
        if resized or self._is_changed(container, latest):
            return self._replaced(container, latest)
        step = 0 if ran_long(latest) else recorded_step(latest)
        remaining_s = self._remaining_s(latest, delay_s(step))
        if remaining_s > 0:
            return Decision(waiting=self._crash_loop(container, step), wake_in_s=remaining_s)
        return self._start_again(container, attempt, min(step + 1, _LAST_STEP))

    def _replaced(self, container: Container, latest: ContainerDetail) -> Decision:
        """At once, but every 10 s at most: a runtime may go on restoring an old definition."""
        attempt, age_ns = latest.container.attempt, self._now_ns - latest.started_at_ns
        remaining_s = BACKOFF_INITIAL_S - age_ns / _NS
        if attempt > 0 and 0 < remaining_s <= BACKOFF_INITIAL_S:
            return Decision(waiting=self._crash_loop(container, step=1), wake_in_s=remaining_s)
        return self._start_again(container, attempt + 1, step=0)

    def _starts_again(self, container: Container, latest: ContainerDetail, *, here: bool) -> bool:
        if is_sidecar(container) or latest.container.id in self._former:
            return True
        if container.name in self._init_names:
            # An init container runs again in every new sandbox, and until it succeeds.
            return not here or latest.exit_code != 0
        return not has_ended_for_good(
            self._pod, container, latest, self._probed.killed, self._in_force
        )

    def _is_changed(self, container: Container, latest: ContainerDetail) -> bool:
        return is_changed(container, latest, self._in_force)

    def _start(self, container: Container, attempt: int, step: int) -> Decision:
        return self._unless_backing_off(
            container.name, StartContainer(container.name, attempt, step, round=self._round)
        )

    def _start_again(self, container: Container, attempt: int, step: int) -> Decision:
        """Without a waiting reason unless the start failed: the status shows the last exit."""
        decision = self._start(container, attempt, step)
        if container.name in self._backoffs:
            return decision
        return Decision(decision.action)

    def _unless_backing_off(self, name: str, start: StartContainer) -> Decision:
        backoff = self._backoffs.get(name)
        if backoff is None:
            return Decision(start, first_waiting(self._pod))
        shown = Waiting(backoff.reason, backoff.message)  # also during the next attempt
        if backoff.remaining_s <= 0:
            return Decision(start, shown)
        return Decision(None, shown, backoff.remaining_s)

    def _remaining_s(self, latest: ContainerDetail, wait_s: float) -> float:
        """0 also when the clock was set back to before the container's exit."""
        passed_ns = self._now_ns - latest.finished_at_ns
        return max(0.0, wait_s - passed_ns / _NS) if passed_ns >= 0 else 0.0

    def _crash_loop(self, container: Container, step: int) -> Waiting:
        meta = self._pod.metadata
        shown = times.format_duration(delay_s(step))
        return Waiting(
            "CrashLoopBackOff",
            f"back-off {shown} restarting failed container={container.name} "
            f"pod={meta.name}_{meta.namespace}({meta.uid})",
        )


def _is_outgrown(latest: ContainerDetail, size: Size) -> bool:
    """Whether a container that was created and never started has another size by now."""
    recorded = recorded_size(latest)
    return bool(recorded) and recorded != size.text()


def _stop(latest: ContainerDetail, why: str, grace_s: int | None = None) -> Decision:
    return Decision(StopContainers((latest.container.id,), why, grace_s))
