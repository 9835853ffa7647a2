"""Eviction thresholds and the pressure they put on the node: a state machine over time; pure.

A threshold is met when what is available falls below it, and stays met until its minimum reclaim
is available again. A condition is reported from the first moment a threshold of its kind is met,
soft ones included, until the transition period has passed without one (pkg/kubelet/eviction).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nodeagent.node.rules.facts import UsageFacts
from orch.wire import quantity

MEMORY_PRESSURE = "MemoryPressure"
DISK_PRESSURE = "DiskPressure"
PID_PRESSURE = "PIDPressure"
_CHECKPOINTS = "checkpoints.room"  # internal: no threshold can be configured for it
CONDITION_OF = {
    "memory.available": MEMORY_PRESSURE,
    "nodefs.available": DISK_PRESSURE,
    "nodefs.inodesFree": DISK_PRESSURE,
    "imagefs.available": DISK_PRESSURE,
    "imagefs.inodesFree": DISK_PRESSURE,
    "pid.available": PID_PRESSURE,
    _CHECKPOINTS: DISK_PRESSURE,
}


@dataclass(frozen=True, slots=True)
class Amount:
    """A fixed number of units, or a percentage of capacity."""

    units: int = 0
    percent: float | None = None

    def of(self, capacity: int) -> int:
        return self.units if self.percent is None else int(capacity * self.percent / 100)


@dataclass(frozen=True, slots=True)
class Threshold:
    """`grace_s` is 0 for a hard threshold; it delays eviction, never the condition."""

    signal: str
    value: Amount
    grace_s: float = 0.0
    min_reclaim: Amount = Amount()


@dataclass(frozen=True, slots=True)
class Observation:
    available: int
    capacity: int


@dataclass(frozen=True, slots=True)
class PressureState:
    """`met_since_s`: thresholds met now, and since when; `last_seen_s`: per condition type.

    `contended`: the conditions of `contention` that are True.
    """

    met_since_s: Mapping[Threshold, float] = field(default_factory=dict)
    last_seen_s: Mapping[str, float] = field(default_factory=dict)
    contended: frozenset[str] = frozenset()


# Met when the store of checkpoints holds more than it may and nothing of it can go.
CHECKPOINT_STORE = Threshold(_CHECKPOINTS, Amount())


def parse_amount(text: str) -> Amount:
    """`100Mi` or `10%`, as the configuration has validated it."""
    if text.endswith("%"):
        return Amount(percent=float(text[:-1]))
    return Amount(quantity.to_bytes(text))


def parse_thresholds(
    values: Mapping[Any, str],
    *,
    grace_s: Mapping[Any, float] | None = None,
    min_reclaim: Mapping[Any, str] | None = None,
) -> tuple[Threshold, ...]:
    """Signal → value, as in the configuration; 0, 0% and 100% switch a threshold off."""
    thresholds = []
    for signal, text in values.items():
        value = parse_amount(text)
        if value.percent not in (0, 100) and value != Amount():
            reclaim = parse_amount((min_reclaim or {}).get(signal, "0"))
            thresholds.append(Threshold(signal, value, (grace_s or {}).get(signal, 0.0), reclaim))
    return tuple(thresholds)


def observe(usage: UsageFacts) -> dict[str, Observation]:
    """Signal → what is available of what; a signal that was not measured is absent."""
    seen = {
        "memory.available": _memory(usage),
        "pid.available": _pids(usage),
        _CHECKPOINTS: _checkpoints(usage),
    }
    for name, fs in (("nodefs", usage.node_fs), ("imagefs", usage.image_fs)):
        seen[f"{name}.available"] = _pair(fs.available_bytes, fs.capacity_bytes)
        seen[f"{name}.inodesFree"] = _pair(fs.inodes_free, fs.inodes)
    return {signal: observation for signal, observation in seen.items() if observation}


def step(
    state: PressureState,
    thresholds: tuple[Threshold, ...],
    seen: Mapping[str, Observation],
    now_s: float,
) -> PressureState:
    """The state after an observation. A threshold whose signal is not measured is not met."""
    met = [
        threshold
        for threshold in thresholds
        if (observation := seen.get(threshold.signal)) is not None
        and _is_met(threshold, observation, held=threshold in state.met_since_s)
    ]
    last_seen = dict(state.last_seen_s)
    for threshold in met:
        last_seen[CONDITION_OF[threshold.signal]] = now_s
    met_since = {t: state.met_since_s.get(t, now_s) for t in met}
    return PressureState(met_since, last_seen, state.contended)


def is_under(state: PressureState, condition: str, now_s: float, transition_s: float) -> bool:
    """Whether the condition is reported True now."""
    last_s = state.last_seen_s.get(condition)
    if last_s is None:
        return False
    met = any(CONDITION_OF[t.signal] == condition for t in state.met_since_s)
    return met or now_s - last_s < transition_s


def due_for_eviction(state: PressureState, now_s: float) -> tuple[Threshold, ...]:
    """Thresholds met for longer than their grace: something has to be evicted."""
    return tuple(t for t, since_s in state.met_since_s.items() if now_s - since_s >= t.grace_s)


def _is_met(threshold: Threshold, seen: Observation, *, held: bool) -> bool:
    limit = threshold.value.of(seen.capacity)
    if held:
        limit += threshold.min_reclaim.of(seen.capacity)
    return seen.available < limit


def _memory(usage: UsageFacts) -> Observation | None:
    available, working_set = usage.memory_available_bytes, usage.memory_working_set_bytes
    if available is None or working_set is None:
        return None
    return Observation(available, available + working_set)


def _pids(usage: UsageFacts) -> Observation | None:
    if usage.pids_max is None or usage.pids_in_use is None:
        return None
    return Observation(usage.pids_max - usage.pids_in_use, usage.pids_max)


def _checkpoints(usage: UsageFacts) -> Observation | None:
    excess = usage.checkpoint_excess_bytes
    return None if excess is None else Observation(-excess, 0)


def _pair(available: int | None, capacity: int | None) -> Observation | None:
    """None also for a filesystem that counts none (btrfs reports 0 inodes)."""
    if available is None or not capacity:
        return None
    return Observation(available, capacity)
