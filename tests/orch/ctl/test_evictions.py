"""The rules of `kubectl drain` (pkg/drain/filters.go)."""

from __future__ import annotations

from typing import Any

import pytest

from orch.ctl.evictions import Permits, Verdict, judge
from orch.wire.names import ANNOTATION_CONFIG_MIRROR

ALL = Permits(daemon_sets=True, empty_dirs=True, unmanaged=True)


def _pod(owner: str = "", *, scratch: bool = False, phase: str = "Running") -> dict[str, Any]:
    owners = [{"kind": owner, "controller": True}] if owner else [{"kind": "X"}]
    volumes = [{"name": "v", "emptyDir": {}}] if scratch else []
    return {
        "metadata": {"ownerReferences": owners},
        "spec": {"volumes": volumes},
        "status": {"phase": phase},
    }


@pytest.mark.parametrize(
    ("pod", "permits", "verdict", "why"),
    [
        (_pod("ReplicaSet"), Permits(), Verdict.EVICT, ""),
        (_pod(), Permits(), Verdict.REFUSE, "has no controller: --force"),
        (_pod(), Permits(unmanaged=True), Verdict.EVICT, "has no controller: it is gone"),
        (_pod("DaemonSet"), Permits(), Verdict.REFUSE, "--ignore-daemonsets"),
        (_pod("DaemonSet", scratch=True), ALL, Verdict.LEAVE, "stays: a daemon set"),
        (_pod("ReplicaSet", scratch=True), Permits(), Verdict.REFUSE, "--delete-emptydir-data"),
        (_pod("ReplicaSet", scratch=True), Permits(empty_dirs=True), Verdict.EVICT, ""),
        (_pod(scratch=True, phase="Succeeded"), Permits(), Verdict.EVICT, ""),
        (_pod(phase="Failed"), Permits(), Verdict.EVICT, ""),
    ],
)
def test_a_pod_is_judged_by_what_would_be_lost(
    pod: dict[str, Any], permits: Permits, verdict: Verdict, why: str
) -> None:
    judged = judge(pod, permits)
    assert judged.verdict is verdict
    assert why in judged.why
    assert bool(why) == bool(judged.why)


def test_a_mirror_pod_belongs_to_its_node() -> None:
    pod = {"metadata": {"annotations": {ANNOTATION_CONFIG_MIRROR: "x"}}}
    assert judge(pod, ALL) == (Verdict.LEAVE, "")
