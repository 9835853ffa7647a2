"""The table columns of pods, above all the word for a pod's state.

The algorithm is `printPod` of the reference system's `pkg/printers/internalversion/printers.go`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from orch.wire import raw
from orch.wire.podrules.podspec import FINAL_PHASES
from orch.wire.tables.layout import AGE, NAME, NONE, Cell, Column, Layout, Record, age, name, since

NODE_LOST_REASON = "NodeLost"


@dataclass(slots=True)
class _Summary:
    """The sum of the containers; `last_restart` is the latest end of an earlier run."""

    reason: str
    ready: int = 0
    restarts: int = 0
    last_restart: str = ""

    def count_restarts(self, status: Record) -> None:
        self.restarts += raw.number(status, "restartCount")
        ended = raw.text(status, "lastState", "terminated", "finishedAt")
        self.last_restart = max(self.last_restart, ended)


def _pod_cells(record: Record, now: datetime) -> list[Cell]:
    summary = _summarize(record)
    restarts = str(summary.restarts)
    if summary.restarts and summary.last_restart:
        restarts = f"{restarts} ({since(summary.last_restart, now)} ago)"
    addresses = raw.records(record, "status", "podIPs")
    address = raw.text(addresses[0], "ip") if addresses else raw.text(record, "status", "podIP")
    return [
        name(record),
        f"{summary.ready}/{_container_count(record)}",
        _with_deletion(record, summary.reason),
        restarts,
        age(record, now),
        address or NONE,
        raw.text(record, "spec", "nodeName") or NONE,
        raw.text(record, "status", "nominatedNodeName") or NONE,
        _readiness_gates(record),
    ]


def pod_status(record: Record) -> str:
    """The state of a pod in a word: Running, Completed, CrashLoopBackOff, Init:0/1, …"""
    return _with_deletion(record, _summarize(record).reason)


def _with_deletion(record: Record, reason: str) -> str:
    if not raw.text(record, "metadata", "deletionTimestamp"):
        return reason
    if raw.text(record, "status", "reason") == NODE_LOST_REASON:
        return "Unknown"
    return reason if raw.text(record, "status", "phase") in FINAL_PHASES else "Terminating"


def _summarize(record: Record) -> _Summary:
    summary = _Summary(raw.text(record, "status", "reason") or raw.text(record, "status", "phase"))
    if _condition(record, "PodScheduled", "reason") == "SchedulingGated":
        summary.reason = "SchedulingGated"
    initializing, sidecars = _add_init_containers(record, summary)
    if initializing and _condition(record, "Initialized", "status") != "True":
        return summary
    summary.restarts, summary.last_restart = sidecars.restarts, sidecars.last_restart
    _add_containers(record, summary)
    return summary


def _add_init_containers(record: Record, summary: _Summary) -> tuple[bool, _Summary]:
    """Whether initialization is in progress, and the summary of the restartable ones."""
    restartable = _restartable(record)
    sidecars = _Summary("")
    for number, status in enumerate(raw.records(record, "status", "initContainerStatuses")):
        summary.count_restarts(status)
        if raw.text(status, "name") in restartable:
            sidecars.count_restarts(status)
        exit_code = raw.value(status, "state", "terminated", "exitCode")
        if exit_code == 0:
            continue
        if raw.text(status, "name") in restartable and raw.value(status, "started") is True:
            summary.ready += raw.value(status, "ready") is True
            continue
        total = len(raw.records(record, "spec", "initContainers"))
        summary.reason = "Init:" + (_init_reason(status) or f"{number}/{total}")
        return True, sidecars
    return False, sidecars


def _init_reason(status: Record) -> str:
    waiting = raw.text(status, "state", "waiting", "reason")
    return _ended(status) or ("" if waiting == "PodInitializing" else waiting)


def _add_containers(record: Record, summary: _Summary) -> None:
    running = False
    for status in reversed(raw.records(record, "status", "containerStatuses")):
        summary.count_restarts(status)
        reason = raw.text(status, "state", "waiting", "reason") or _ended(status)
        if reason:
            summary.reason = reason
        elif raw.value(status, "ready") is True and _has(status, "running"):
            running = True
            summary.ready += 1
    if summary.reason == "Completed" and running:
        ready = _condition(record, "Ready", "status") == "True"
        summary.reason = "Running" if ready else "NotReady"


def _ended(status: Record) -> str:
    """Why a container terminated: its reason, signal or exit code; "" if it has not."""
    if not _has(status, "terminated"):
        return ""
    ended = raw.mapping(status, "state", "terminated")
    if reason := raw.text(ended, "reason"):
        return reason
    signal = raw.number(ended, "signal")
    return f"Signal:{signal}" if signal else f"ExitCode:{raw.number(ended, 'exitCode')}"


def _has(status: Record, state: str) -> bool:
    """Whether a container is in a state; an empty record of it counts."""
    return isinstance(raw.value(status, "state", state), dict)


def _restartable(record: Record) -> set[str]:
    return {
        raw.text(container, "name")
        for container in raw.records(record, "spec", "initContainers")
        if raw.text(container, "restartPolicy") == "Always"
    }


def _container_count(record: Record) -> int:
    return len(raw.records(record, "spec", "containers")) + len(_restartable(record))


def _condition(record: Record, kind: str, member: str) -> str:
    for condition in raw.records(record, "status", "conditions"):
        if raw.text(condition, "type") == kind:
            return raw.text(condition, member)
    return ""


def _readiness_gates(record: Record) -> str:
    gates = raw.records(record, "spec", "readinessGates")
    states: dict[str, str] = {}
    for condition in raw.records(record, "status", "conditions") if gates else ():
        states.setdefault(raw.text(condition, "type"), raw.text(condition, "status"))
    open_gates = sum(states.get(raw.text(gate, "conditionType")) == "True" for gate in gates)
    return f"{open_gates}/{len(gates)}" if gates else NONE


def _row_conditions(record: Record) -> list[dict[str, Any]]:
    message = {
        "Succeeded": "The pod has completed successfully.",
        "Failed": "The pod failed.",
    }.get(raw.text(record, "status", "phase"))
    if message is None:
        return []
    reason = raw.text(record, "status", "phase")
    return [{"type": "Completed", "status": "True", "reason": reason, "message": message}]


LAYOUT = Layout(
    (
        NAME,
        Column("Ready", "The aggregate readiness state of this pod for accepting traffic."),
        Column("Status", "The aggregate status of the containers in this pod."),
        Column(
            "Restarts",
            "The number of times the containers in this pod have been restarted and when the last "
            "container in this pod has restarted.",
        ),
        AGE,
        Column("IP", "The address of the pod.", 1),
        Column("Node", "The node the pod runs on.", 1),
        Column("Nominated Node", "The node where room is being made for the pod.", 1),
        Column("Readiness Gates", "How many of the pod's own readiness conditions hold.", 1),
    ),
    _pod_cells,
    _row_conditions,
)
