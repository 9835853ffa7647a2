from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from orch.wire.tables import pods

NOW = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
RUNNING = {"ready": True, "state": {"running": {}}}
COMPLETED = {"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
STARTED_SIDECAR = {"name": "s", "started": True, "ready": True, "state": {"running": {}}}
READY = {"type": "Ready", "status": "True"}
INITIALIZED = {"type": "Initialized", "status": "True"}


def _waiting(reason: str, **members: Any) -> dict[str, Any]:
    return {"state": {"waiting": {"reason": reason}}, **members}


def _ended(**terminated: Any) -> dict[str, Any]:
    return {"state": {"terminated": terminated}}


def _restarted(restarts: int, finished: str = "", **members: Any) -> dict[str, Any]:
    last = {"terminated": {"finishedAt": finished}} if finished else {}
    return {"restartCount": restarts, "lastState": last, **members}


def _pod(
    phase: str,
    *containers: dict[str, Any],
    init: tuple[dict[str, Any], ...] = (),
    sidecars: tuple[str, ...] = (),
    conditions: tuple[dict[str, Any], ...] = (),
    total: int = 2,
    **metadata: Any,
) -> dict[str, Any]:
    declared = [{"name": name, "restartPolicy": "Always"} for name in sidecars]
    plain = [{"name": f"i{n}"} for n in range(len(init) - len(declared))]
    return {
        "metadata": {"name": "p", "creationTimestamp": "2026-01-31T11:00:00Z", **metadata},
        "spec": {
            "containers": [{"name": f"c{n}"} for n in range(total)],
            "initContainers": plain + declared,
        },
        "status": {
            "phase": phase,
            "conditions": list(conditions),
            "containerStatuses": list(containers),
            "initContainerStatuses": list(init),
        },
    }


DELETED = {"deletionTimestamp": "2026-01-31T12:00:00Z"}


# The reference system's pkg/printers/internalversion/printers_test.go, TestPrintPod,
# TestPrintPodWithRestartableInitContainer and their neighbours.
@pytest.mark.parametrize(
    ("pod", "cells"),
    [
        (_pod("", RUNNING, {"restartCount": 3}), ["1/2", "", "3"]),
        (_pod("Pending"), ["0/2", "Pending", "0"]),
        (_pod("Running", RUNNING, RUNNING), ["2/2", "Running", "0"]),
        (_pod("Running", RUNNING, _waiting("CrashLoopBackOff")), ["1/2", "CrashLoopBackOff", "0"]),
        (_pod("Running", RUNNING, _waiting("", ready=True)), ["1/2", "Running", "0"]),
        (
            _pod("Running", RUNNING, _ended(reason="OOMKilled", exitCode=137)),
            ["1/2", "OOMKilled", "0"],
        ),
        (_pod("Running", RUNNING, _ended(exitCode=3)), ["1/2", "ExitCode:3", "0"]),
        (_pod("Running", RUNNING, _ended(signal=9)), ["1/2", "Signal:9", "0"]),
        (
            _pod("Running", RUNNING, {"ready": False, "state": {"running": {}}}),
            ["1/2", "Running", "0"],
        ),
        (_pod("Running", COMPLETED, RUNNING, conditions=(READY,)), ["1/2", "Running", "0"]),
        (_pod("Running", COMPLETED, RUNNING), ["1/2", "NotReady", "0"]),
        (_pod("Succeeded", COMPLETED, COMPLETED), ["0/2", "Completed", "0"]),
        (_pod("Failed", _ended(reason="Error", exitCode=1), total=1), ["0/1", "Error", "0"]),
        # the first container with a reason is the one that counts
        (_pod("Running", _waiting("A"), _waiting("B")), ["0/2", "A", "0"]),
        # init containers; the first that is not done decides
        (_pod("Pending", init=({}, {})), ["0/2", "Init:0/2", "0"]),
        (_pod("Pending", init=(COMPLETED, {})), ["0/2", "Init:1/2", "0"]),
        (_pod("Pending", init=(_waiting("PodInitializing"),)), ["0/2", "Init:0/1", "0"]),
        (_pod("Pending", init=(_waiting("ErrImagePull"),)), ["0/2", "Init:ErrImagePull", "0"]),
        (_pod("Pending", init=(_ended(exitCode=1),)), ["0/2", "Init:ExitCode:1", "0"]),
        (_pod("Pending", init=(_ended(exitCode=1, signal=9),)), ["0/2", "Init:Signal:9", "0"]),
        (_pod("Pending", init=(_ended(exitCode=1, reason="Error"),)), ["0/2", "Init:Error", "0"]),
        (
            _pod("Pending", _waiting("PodInitializing"), init=(_restarted(3), _restarted(3))),
            ["0/2", "Init:0/2", "3"],
        ),
        (_pod("Running", RUNNING, init=(COMPLETED,), total=1), ["1/1", "Running", "0"]),
        (
            _pod(
                "Running", RUNNING, init=(_ended(exitCode=1),), conditions=(INITIALIZED,), total=1
            ),
            ["1/1", "Init:ExitCode:1", "0"],
        ),
        # restartable init containers count as containers, their restarts count on
        (
            _pod("Running", RUNNING, init=(STARTED_SIDECAR,), sidecars=("s",), total=1),
            ["2/2", "Running", "0"],
        ),
        (
            _pod(
                "Pending", init=({"name": "s", "state": {"running": {}}},), sidecars=("s",), total=1
            ),
            ["0/2", "Init:0/1", "0"],
        ),
        (
            _pod(
                "Running",
                {**RUNNING, "restartCount": 3},
                init=(
                    {**COMPLETED, "restartCount": 5},
                    {**STARTED_SIDECAR, "restartCount": 2},
                ),
                sidecars=("s",),
                total=1,
            ),
            ["2/2", "Running", "5"],
        ),
        # restarts say when the last one was
        (
            _pod("Running", _restarted(20, "2026-01-31T11:59:50Z"), RUNNING),
            ["1/2", "Running", "20 (10s ago)"],
        ),
        (
            _pod(
                "Running",
                _restarted(1, "2026-01-31T11:59:50Z"),
                _restarted(2, "2026-01-31T11:58:00Z"),
            ),
            ["0/2", "Running", "3 (10s ago)"],
        ),
        (_pod("Running", _restarted(0, "2026-01-31T11:59:50Z")), ["0/2", "Running", "0"]),
        # deletion
        (_pod("Running", RUNNING, RUNNING, **DELETED), ["2/2", "Terminating", "0"]),
        (_pod("Succeeded", COMPLETED, **DELETED), ["0/2", "Completed", "0"]),
        # gates before scheduling
        (
            _pod("Pending", conditions=({"type": "PodScheduled", "reason": "SchedulingGated"},)),
            ["0/2", "SchedulingGated", "0"],
        ),
    ],
)
def test_a_pod_is_shown_by_the_reference_s_algorithm(pod: dict[str, Any], cells: list[str]) -> None:
    shown = pods.LAYOUT.cells(pod, NOW)
    assert shown[:5] == ["p", *cells, "60m"]
    assert pods.pod_status(pod) == cells[1]


def test_the_reason_of_the_pod_itself_stands_before_its_phase() -> None:
    pod = {"status": {"phase": "Failed", "reason": "Evicted"}}
    assert pods.pod_status(pod) == "Evicted"


def test_a_deleted_pod_on_a_lost_node_is_unknown() -> None:
    pod = {"metadata": DELETED, "status": {"phase": "Running", "reason": "NodeLost"}}
    assert pods.pod_status(pod) == "Unknown"


@pytest.mark.parametrize(
    ("spec", "status", "wide"),
    [
        ({}, {}, ["<none>", "<none>", "<none>", "<none>"]),
        (
            {"nodeName": "n1"},
            {"podIPs": [{"ip": "10.1.0.2"}, {"ip": "fd00::2"}], "nominatedNodeName": "n2"},
            ["10.1.0.2", "n1", "n2", "<none>"],
        ),
        ({}, {"podIP": "10.1.0.3"}, ["10.1.0.3", "<none>", "<none>", "<none>"]),
        (
            {"readinessGates": [{"conditionType": "x"}, {"conditionType": "y"}]},
            {"conditions": [{"type": "x", "status": "True"}, {"type": "y", "status": "False"}]},
            ["<none>", "<none>", "<none>", "1/2"],
        ),
    ],
)
def test_the_wide_form_adds_where_the_pod_is(
    spec: dict[str, Any], status: dict[str, Any], wide: list[str]
) -> None:
    assert pods.LAYOUT.cells({"spec": spec, "status": status}, NOW)[5:] == wide


@pytest.mark.parametrize(
    ("phase", "reasons"), [("Succeeded", ["Succeeded"]), ("Failed", ["Failed"]), ("Running", [])]
)
def test_rows_of_ended_pods_say_so(phase: str, reasons: list[str]) -> None:
    conditions = pods.LAYOUT.conditions({"status": {"phase": phase}})
    assert [condition["reason"] for condition in conditions] == reasons
