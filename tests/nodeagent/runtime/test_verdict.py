"""Texts from pkg/kubelet/runtime.go and kubelet_test.go (upstream), neutral subject."""

import pytest

from nodeagent.runtime import verdict
from nodeagent.runtime.base import RuntimeCondition
from nodeagent.runtime.verdict import RuntimeHealth

READY = RuntimeCondition("RuntimeReady", True)
NETWORK = RuntimeCondition("NetworkReady", True)
BROKEN = RuntimeCondition("RuntimeReady", False, "Stuck", "shim lost")
NO_CNI = RuntimeCondition("NetworkReady", False, "NetworkPluginNotReady", "cni not initialized")
RUNTIME_TEXT = "container runtime not ready: RuntimeReady=false reason:Stuck message:shim lost"
NETWORK_TEXT = (
    "container runtime network not ready: NetworkReady=false "
    "reason:NetworkPluginNotReady message:cni not initialized"
)

CASES = {
    "ready": (RuntimeHealth(last_good_s=10.0, conditions=(READY, NETWORK)), 12.0, ()),
    "absent": (
        RuntimeHealth(absent="no runtime is configured"),
        0.0,
        ("no runtime is configured",),
    ),
    "never checked": (RuntimeHealth(), 1.0, (verdict.NEVER_CHECKED,)),
    "never answered": (RuntimeHealth(error="refused"), 31.0, (f"{verdict.DOWN}: refused",)),
    "at the limit": (RuntimeHealth(last_good_s=10.0, conditions=(READY, NETWORK)), 40.0, ()),
    "silent too long": (
        RuntimeHealth(last_good_s=10.0, conditions=(READY, NETWORK)),
        40.1,
        (verdict.DOWN,),
    ),
    "one failure is not down": (
        RuntimeHealth(last_good_s=10.0, conditions=(READY, NETWORK), error="timeout"),
        20.0,
        (),
    ),
    "runtime": (RuntimeHealth(last_good_s=1.0, conditions=(BROKEN, NETWORK)), 2.0, (RUNTIME_TEXT,)),
    "both": (
        RuntimeHealth(last_good_s=1.0, conditions=(BROKEN, NO_CNI)),
        2.0,
        (RUNTIME_TEXT, NETWORK_TEXT),
    ),
    "unreported": (
        RuntimeHealth(last_good_s=1.0, conditions=(READY,)),
        2.0,
        ("container runtime network not ready: the runtime does not report NetworkReady",),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_problems_name_what_is_not_ready(case: str) -> None:
    health, now_s, expected = CASES[case]
    assert verdict.runtime_problems(health, now_s) == expected


def test_the_network_is_unknown_before_the_first_answer_and_while_the_runtime_is_down() -> None:
    told = RuntimeHealth(last_good_s=10.0, conditions=(READY, NO_CNI))
    assert verdict.network_condition(told, 20.0) == NO_CNI
    assert verdict.network_condition(told, 41.0) is None
    assert verdict.network_condition(RuntimeHealth(), 1.0) is None
    assert verdict.network_condition(RuntimeHealth(absent="none"), 1.0) is None
