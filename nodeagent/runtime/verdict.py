"""The health of the runtime as far as the agent knows it, and the problems that follow; pure.

`RuntimeHealth` holds the last good answer and its time, in seconds of the loop's clock. `health`
updates it, `node.rules.conditions` reports it. Texts are the reference agent's
(pkg/kubelet/runtime.go), followed by the runtime's own words.
"""

from __future__ import annotations

from dataclasses import dataclass

from nodeagent.runtime.base import RuntimeCondition, RuntimeVersion

DOWN_AFTER_S = 30.0  # without a good answer
RUNTIME_READY = "RuntimeReady"
NETWORK_READY = "NetworkReady"

NEVER_CHECKED = "container runtime status check may not have completed yet"
DOWN = "container runtime is down"


@dataclass(frozen=True, slots=True)
class RuntimeHealth:
    """`absent` is the reason why there is no runtime at all, "" if there should be one."""

    absent: str = ""
    since_s: float = 0.0  # when watching began
    last_good_s: float | None = None  # None: never answered
    conditions: tuple[RuntimeCondition, ...] = ()  # of the last good answer
    version: RuntimeVersion | None = None
    error: str = ""  # why the latest check failed; "" when it was good


def is_down(health: RuntimeHealth, now_s: float) -> bool:
    """Whether the last good answer, or the start of the watch, is too long ago."""
    last_s = health.since_s if health.last_good_s is None else health.last_good_s
    return now_s - last_s > DOWN_AFTER_S


def runtime_problems(health: RuntimeHealth, now_s: float) -> tuple[str, ...]:
    """Why pods cannot run here, one sentence each; () when runtime and network are ready."""
    if health.absent:
        return (health.absent,)
    if is_down(health, now_s):
        return (f"{DOWN}: {health.error}" if health.error else DOWN,)
    if health.last_good_s is None:
        return (NEVER_CHECKED,)
    kinds = ((RUNTIME_READY, "container runtime"), (NETWORK_READY, "container runtime network"))
    return tuple(
        f"{subject} not ready: {_shown(condition, kind)}"
        for kind, subject in kinds
        if (condition := find_condition(health, kind)) is None or not condition.status
    )


def network_condition(health: RuntimeHealth, now_s: float) -> RuntimeCondition | None:
    """The runtime's NetworkReady; None while it is unknown or outdated."""
    if health.absent or health.last_good_s is None or is_down(health, now_s):
        return None
    return find_condition(health, NETWORK_READY)


def find_condition(health: RuntimeHealth, kind: str) -> RuntimeCondition | None:
    return next((c for c in health.conditions if c.type == kind), None)


def describe(condition: RuntimeCondition) -> str:
    """`NetworkReady=false reason:NetworkPluginNotReady message:cni plugin not initialized`."""
    status = "true" if condition.status else "false"
    return f"{condition.type}={status} reason:{condition.reason} message:{condition.message}"


def _shown(condition: RuntimeCondition | None, kind: str) -> str:
    return describe(condition) if condition else f"the runtime does not report {kind}"
