"""PriorityClasses: names for the priorities of pods, which never change; pure.

From the reference's pkg/apis/scheduling. Two classes are the system's own: they exist from the
start, and their pods are never evicted.
"""

from __future__ import annotations

from collections.abc import Iterator

from orch.server.strategy.base import Document, Strategy
from orch.wire import causes
from orch.wire.errors import Cause
from orch.wire.names import CRITICAL_PRIORITY
from orch.wire.records.kinds import PRIORITY_CLASSES

HIGHEST = 1_000_000_000  # of classes that users make
LOWEST = -(2**31)
PREEMPTS = "PreemptLowerPriority"
_POLICIES = (PREEMPTS, "Never")
_SYSTEM_PREFIX = "system-"
SYSTEM = {
    "system-cluster-critical": (
        CRITICAL_PRIORITY,
        "Used for system critical pods that must run in the cluster, but can be moved to another"
        " node if necessary.",
    ),
    "system-node-critical": (
        CRITICAL_PRIORITY + 1000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
}


def _prepare(document: Document) -> None:
    document["preemptionPolicy"] = document.get("preemptionPolicy") or PREEMPTS


def _validate(new: Document, old: Document | None) -> Iterator[Cause]:
    name, value = new["metadata"].get("name") or "", new.get("value", 0)
    if name.startswith(_SYSTEM_PREFIX):
        problem = _system_problem(new)
        if problem:
            text = "priority class names with 'system-' prefix are reserved for system use only"
            yield causes.forbidden("metadata.name", f"{text}. error: {problem}")
    elif value > HIGHEST:
        text = f"maximum allowed value of a user defined priority is {HIGHEST}"
        yield causes.forbidden("value", text)
    if value < LOWEST:
        yield causes.invalid_value("value", value, "must fit into 32 bits")
    policy = new.get("preemptionPolicy")
    if policy not in _POLICIES:
        yield causes.not_supported("preemptionPolicy", policy, _POLICIES)
    if old is None:
        return
    if value != old.get("value", 0):
        yield causes.forbidden("value", "may not be changed in an update.")
    if policy != old.get("preemptionPolicy"):
        yield causes.invalid_value("preemptionPolicy", policy, "field is immutable")


def _system_problem(document: Document) -> str:
    name = document["metadata"]["name"]
    if name not in SYSTEM:
        return f"{name} is not a known system priority class"
    if document.get("value", 0) != SYSTEM[name][0]:
        return f"value of {name} PriorityClass must be {SYSTEM[name][0]}"
    if document.get("globalDefault"):
        return f"globalDefault of {name} PriorityClass must be false"
    return ""


STRATEGY = Strategy(
    PRIORITY_CLASSES,
    prepare_create=_prepare,
    prepare_update=lambda new, _old: _prepare(new),
    validate=_validate,
)
