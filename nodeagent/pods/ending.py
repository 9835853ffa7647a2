"""The end of a pod before its time: evicted, or on a node that shuts down; pure.

Such a pod fails for good. Its containers have the ending's grace period, and until the last of them
has stopped the pod is not shown as failed: who replaces it must not start the next one too early.
"""

from __future__ import annotations

from dataclasses import dataclass

from nodeagent.pods.observed import ObservedPod
from nodeagent.pods.phase import FAILED, RUNNING
from orch.wire.pods import Pod, PodCondition

EVICTED = "Evicted"
DISRUPTED = "DisruptionTarget"  # the condition controllers look for
HARD_GRACE_S = 1  # of an eviction that cannot wait, as in the reference agent
_BY_AGENT = "TerminationByNodeAgent"


@dataclass(frozen=True, slots=True)
class Ending:
    """Why the pod is over, as its status shows it, and how long its containers have to stop."""

    reason: str
    message: str
    grace_s: int = HARD_GRACE_S


def ended(pod: Pod, ending: Ending, now: str) -> Pod:
    """The pod as the API will hold it: failed, and with the time that is left to it."""
    condition = PodCondition(
        type=DISRUPTED,
        status="True",
        reason=_BY_AGENT,
        message=ending.message,
        lastTransitionTime=now,
    )
    kept = [one for one in pod.status.conditions or () if one.type != DISRUPTED]
    status = pod.status.model_copy(
        update={
            "phase": FAILED,
            "reason": ending.reason,
            "message": ending.message,
            "conditions": [*kept, condition],
        }
    )
    spec = pod.spec.model_copy(update={"terminationGracePeriodSeconds": ending.grace_s})
    return pod.model_copy(update={"status": status, "spec": spec})


def shown(pod: Pod, seen: ObservedPod) -> Pod:
    """An ended pod for its display: it runs as long as one of its containers does."""
    if not seen.active:
        return pod
    status = pod.status.model_copy(update={"phase": RUNNING})
    return pod.model_copy(update={"status": status})
