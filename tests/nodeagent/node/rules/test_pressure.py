"""Cases after pkg/kubelet/eviction/helpers_test.go and eviction_manager_test.go (upstream)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.node.rules import pressure
from nodeagent.node.rules.facts import FilesystemFacts, UsageFacts
from nodeagent.node.rules.pressure import Amount, Observation, PressureState, Threshold
from tests.fakes import node

MEMORY = Threshold("memory.available", Amount(100))
TRANSITION_S = 300.0


def after(*moments: tuple[float, int], threshold: Threshold = MEMORY) -> PressureState:
    """The state after observations (time, available of 1000)."""
    state = PressureState()
    for now_s, available in moments:
        seen = {threshold.signal: Observation(available, 1000)}
        state = pressure.step(state, (threshold,), seen, now_s)
    return state


def under(state: PressureState, now_s: float) -> bool:
    return pressure.is_under(state, pressure.MEMORY_PRESSURE, now_s, TRANSITION_S)


@pytest.mark.parametrize(
    ("text", "amount"),
    [("100Mi", Amount(100 * 1024**2)), ("10%", Amount(percent=10.0)), ("5", Amount(5))],
)
def test_an_amount_is_a_quantity_or_a_percentage(text: str, amount: Amount) -> None:
    assert pressure.parse_amount(text) == amount


def test_zero_and_hundred_percent_switch_a_threshold_off() -> None:
    values = {"nodefs.available": "0%", "imagefs.available": "100%", "memory.available": "1Gi"}
    assert [t.signal for t in pressure.parse_thresholds(values)] == ["memory.available"]


def test_pressure_begins_at_once_below_the_threshold_and_not_at_it() -> None:
    assert not under(after((0, 100)), 0)
    assert under(after((0, 99)), 0)


def test_pressure_ends_only_after_the_transition_period_without_it() -> None:
    state = after((0, 99), (10, 500))
    assert under(state, 299.9)
    assert not under(state, 300)
    assert under(after((0, 99), (10, 500), (20, 99), (30, 500)), 310)


def test_a_threshold_stays_met_until_its_minimum_reclaim_is_available() -> None:
    threshold = Threshold("memory.available", Amount(100), min_reclaim=Amount(50))
    held = after((0, 99), (1000, 149), threshold=threshold)
    assert held.met_since_s == {threshold: 0} and under(held, 1000)
    assert after((0, 99), (1000, 150), threshold=threshold).met_since_s == {}
    assert after((0, 149), threshold=threshold).met_since_s == {}


def test_a_soft_threshold_sets_the_condition_before_its_grace_and_evicts_after_it() -> None:
    soft = Threshold("memory.available", Amount(100), grace_s=60)
    state = after((0, 99), (30, 99), threshold=soft)
    assert under(state, 30)
    assert pressure.due_for_eviction(state, 59) == ()
    assert pressure.due_for_eviction(state, 60) == (soft,)


def test_an_unmeasured_signal_is_not_met() -> None:
    state = pressure.step(after((0, 99)), (MEMORY,), {}, 10)
    assert state.met_since_s == {}
    assert under(state, 10)


def test_defaults_watch_memory_and_both_filesystems_but_not_pids() -> None:
    """Defaults of nodeagent.md §9.6: 100Mi, 10 %, 5 %, 15 %, 5 %."""
    thresholds = pressure.parse_thresholds(node.DEFAULT_HARD)
    low = FilesystemFacts(available_bytes=14, capacity_bytes=100, inodes_free=6, inodes=100)
    cases = {
        "MemoryPressure": node.usage(memory_available_bytes=100 * 1024**2 - 1),
        "DiskPressure": node.usage(image_fs=low),
    }
    for kind, usage in cases.items():
        state = pressure.step(PressureState(), thresholds, pressure.observe(usage), 0)
        assert list(state.last_seen_s) == [kind]
    healthy = pressure.observe(node.usage(node_fs=low, pids_in_use=32767))
    assert pressure.step(PressureState(), thresholds, healthy, 0) == PressureState()


def test_pids_count_against_the_limit_of_the_machine() -> None:
    thresholds = pressure.parse_thresholds({"pid.available": "10%"})
    seen = pressure.observe(node.usage(pids_in_use=91, pids_max=100))
    state = pressure.step(PressureState(), thresholds, seen, 0)
    assert pressure.is_under(state, "PIDPressure", 0, TRANSITION_S)


def test_a_filesystem_without_inodes_is_not_measured() -> None:
    fs = FilesystemFacts(available_bytes=1, capacity_bytes=2, inodes_free=0, inodes=0)
    assert "nodefs.inodesFree" not in pressure.observe(node.usage(node_fs=fs))


@given(st.lists(st.tuples(st.floats(0.1, 100), st.integers(0, 300)), min_size=1, max_size=30))
def test_pressure_is_true_exactly_when_met_within_the_transition_period(
    steps: list[tuple[float, int]],
) -> None:
    state, now_s, last_met_s = PressureState(), 0.0, None
    for pause_s, available in steps:
        now_s += pause_s
        seen = {"memory.available": Observation(available, 1000)}
        state = pressure.step(state, (MEMORY,), seen, now_s)
        last_met_s = now_s if available < 100 else last_met_s
        expected = last_met_s is not None and now_s - last_met_s < TRANSITION_S
        assert under(state, now_s) is expected


@pytest.mark.parametrize(("excess", "pressed"), [(None, False), (0, False), (1, True)])
def test_checkpoints_that_may_not_be_there_are_pressure_on_the_disk(
    excess: int | None, pressed: bool
) -> None:
    seen = pressure.observe(UsageFacts(checkpoint_excess_bytes=excess))
    state = pressure.step(PressureState(), (pressure.CHECKPOINT_STORE,), seen, 0)

    assert pressure.is_under(state, pressure.DISK_PRESSURE, 0, TRANSITION_S) is pressed
