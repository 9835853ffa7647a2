"""A container's own restart policy and its rules, over those of its pod (reference: podutil tests
of ContainerShouldRestart), and what they make of the pod's phase."""

from __future__ import annotations

from typing import Any

import pytest

from nodeagent.pods.actions import StartContainer
from nodeagent.pods.decide import plan, status
from nodeagent.pods.decide.status import Facts
from orch.wire.records.pods import Pod
from tests.fakes.pods import container_data, exited, instance, pod, sandbox, seen

NOW_NS = 2_000_000_000 * 10**9


def fits(*values: int, operator: str = "In", action: str = "Restart") -> dict[str, Any]:
    return {"action": action, "exitCodes": {"operator": operator, "values": [*values]}}


CASES: list[tuple[str, dict[str, Any], int, str]] = [
    # the pod's policy, the container's fields, its exit code -> what comes of it
    ("Always", {"restartPolicy": "Never"}, 0, "Succeeded"),
    ("Always", {"restartPolicy": "Never"}, 1, "Failed"),
    ("Always", {"restartPolicy": "OnFailure"}, 0, "Succeeded"),
    ("Always", {"restartPolicy": "OnFailure"}, 1, "starts"),
    ("Never", {"restartPolicy": "Always"}, 0, "starts"),
    ("Never", {"restartPolicy": "OnFailure"}, 3, "starts"),
    ("Never", {"restartPolicy": "Never", "restartPolicyRules": [fits(42)]}, 42, "starts"),
    ("Never", {"restartPolicy": "Never", "restartPolicyRules": [fits(42)]}, 41, "Failed"),
    ("Never", {"restartPolicy": "Never", "restartPolicyRules": [fits(0)]}, 0, "starts"),
    (
        "Never",
        {"restartPolicy": "Never", "restartPolicyRules": [fits(42, operator="NotIn")]},
        1,
        "starts",
    ),
    (
        "Never",
        {"restartPolicy": "Never", "restartPolicyRules": [fits(42, operator="NotIn")]},
        42,
        "Failed",
    ),
    ("OnFailure", {"restartPolicyRules": [fits(0)]}, 0, "Succeeded"),
    ("Always", {"restartPolicy": "Never", "restartPolicyRules": [fits(1), fits(2)]}, 2, "starts"),
    (
        "Always",
        {"restartPolicy": "Never", "restartPolicyRules": [fits(1, action="Explode")]},
        1,
        "Failed",
    ),
]


def ended(policy: str, fields: dict[str, Any], code: int) -> tuple[Pod, Any]:
    wanted = pod(container_data("app", **fields), restartPolicy=policy)
    return wanted, seen(sandbox(), exited(code=code, record=wanted.spec.containers[0]))


@pytest.mark.parametrize(("policy", "fields", "code", "outcome"), CASES)
def test_a_container_s_own_policy_and_rules_decide(
    policy: str, fields: dict[str, Any], code: int, outcome: str
) -> None:
    wanted, held = ended(policy, fields, code)
    decided = plan.next_step(wanted, held, {}, NOW_NS)
    if outcome == "starts":
        assert isinstance(decided.action, StartContainer) and not decided.finished
        return
    assert decided.finished
    facts = Facts(now="2026-01-01T00:00:00Z", plan=decided)
    assert status.pod_status(wanted, held, facts, None).phase == outcome


def test_a_pod_goes_on_while_one_of_its_containers_does() -> None:
    wanted = pod(container_data("once", restartPolicy="Never"), container_data("app"))
    once, app = wanted.spec.containers
    held = seen(sandbox(), exited("once", code=1, record=once), instance("app", record=app))
    decided = plan.next_step(wanted, held, {}, NOW_NS)
    assert decided.action is None and not decided.finished
    facts = Facts(now="2026-01-01T00:00:00Z", plan=decided)
    assert status.pod_status(wanted, held, facts, None).phase == "Running"


def test_an_init_container_that_must_not_start_again_fails_a_pod_that_would() -> None:
    init = container_data("init", restartPolicy="Never")
    wanted = pod(initContainers=[init], restartPolicy="Always")
    assert wanted.spec.initContainers
    held = seen(sandbox(), exited("init", code=2, record=wanted.spec.initContainers[0]))
    decided = plan.next_step(wanted, held, {}, NOW_NS)
    assert decided.finished
    facts = Facts(now="2026-01-01T00:00:00Z", plan=decided)
    assert status.pod_status(wanted, held, facts, None).phase == "Failed"
