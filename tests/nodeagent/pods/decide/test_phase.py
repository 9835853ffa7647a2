"""A pod that is over before its time: what the API will hold, and what is shown meanwhile."""

from __future__ import annotations

from nodeagent.pods.decide import phase
from nodeagent.pods.decide.phase import Ending
from tests.fakes.pods import instance, pod, sandbox, seen

NOW = "2026-01-01T00:00:00Z"
EVICTION = Ending("Evicted", "too much", grace_s=7)


def test_an_ended_pod_has_failed_for_the_given_reason() -> None:
    over = phase.fail_pod(pod(terminationGracePeriodSeconds=600), EVICTION, NOW)
    assert (over.status.phase, over.status.reason) == ("Failed", "Evicted")
    assert over.status.message == "too much"
    assert over.spec.terminationGracePeriodSeconds == 7
    [condition] = over.status.conditions or []
    assert (condition.type, condition.status) == ("DisruptionTarget", "True")
    assert condition.lastTransitionTime == NOW


def test_ending_it_twice_leaves_one_condition() -> None:
    twice = phase.fail_pod(phase.fail_pod(pod(), EVICTION, NOW), EVICTION, NOW)
    assert [one.type for one in twice.status.conditions or []] == ["DisruptionTarget"]


def test_it_is_shown_as_running_until_its_last_container_has_stopped() -> None:
    over = phase.fail_pod(pod(), EVICTION, NOW)
    assert phase.show_running(over, seen(sandbox(), instance())).status.phase == "Running"
    assert phase.show_running(over, seen(sandbox())).status.phase == "Failed"
