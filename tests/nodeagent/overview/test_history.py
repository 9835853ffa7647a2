"""The last ten minutes: points, gaps, and what they cost."""

from __future__ import annotations

import tracemalloc
from math import isnan

import pytest

from nodeagent.overview.history import MAX_PODS, POINTS, History
from nodeagent.psi import NO_STALL, Pressure
from nodeagent.stats.samples import (
    CgroupSample,
    CpuSample,
    MemorySample,
    NodeSample,
    PodSample,
    PodTarget,
    Sample,
)

START_NS = 1_800_000_000_000_000_000


class Samples:
    """Stands for the sampler; each reading used `cores` and waited `stalled` of the time."""

    def __init__(self) -> None:
        self.latest: Sample | None = None
        self.history = History(self)  # type: ignore[arg-type]
        self._now_ns, self._used_nsec, self._stalled_usec = START_NS, 0, 0

    def read(
        self, seconds: float = 10.0, *, cores: float = 0.5, stalled: float = 0.1,
        pods: tuple[str, ...] = ("a",), memory_bytes: int | None = 1000,
    ) -> None:  # fmt: skip
        self._now_ns += int(seconds * 1e9)
        self._used_nsec += int(cores * seconds * 1e9)
        self._stalled_usec += int(stalled * seconds * 1e6)
        some = NO_STALL.some._replace(total_usec=self._stalled_usec)
        cgroup = CgroupSample(
            self._now_ns,
            cpu=CpuSample(self._used_nsec),
            memory=MemorySample(working_set_bytes=memory_bytes),
            io_pressure=Pressure(some, None),
        )
        targets = [PodTarget("shop", uid, uid, f"/{uid}") for uid in pods]
        self.latest = Sample(
            self._now_ns, NodeSample(cgroup), tuple(PodSample(t, cgroup) for t in targets)
        )
        self.history.look()


def test_without_a_reading_nothing_is_known() -> None:
    samples = Samples()
    samples.history.look()
    assert all(isnan(value) for value in samples.history.node.cores)
    assert samples.history.of_pod("a") is None


def test_a_reading_adds_a_point_of_the_machine_and_of_each_pod() -> None:
    samples = Samples()
    samples.read()
    samples.read(cores=0.25, stalled=0.4, memory_bytes=2000)
    of_pod = samples.history.of_pod("a")
    assert of_pod
    for series in (samples.history.node, of_pod):
        assert series.cores[-1] == pytest.approx(0.25)
        assert isnan(series.cores[-2]), "the first reading has none to compare it with"
        assert list(series.memory_bytes[-2:]) == [1000, 2000]
        assert series.stalls["io"][-1] == pytest.approx(0.4)
        assert series.stalls.keys() == {"io"}


def test_readings_in_quick_succession_are_one_point() -> None:
    samples = Samples()
    for _ in range(11):
        samples.read(1.0, cores=1.0)
    cores = samples.history.node.cores
    assert cores[-1] == pytest.approx(1.0)
    assert isnan(cores[-2])


def test_a_reading_a_little_early_counts() -> None:
    samples = Samples()
    for _ in range(4):
        samples.read(9.8)
    assert not any(isnan(value) for value in samples.history.node.cores[-3:])


def test_a_rare_reading_stands_for_the_time_since_the_last() -> None:
    samples = Samples()
    samples.read()
    samples.read(30.0, cores=2.0)
    assert list(samples.history.node.cores[-3:]) == pytest.approx([2.0] * 3)


@pytest.mark.parametrize("seconds", [100.0, 10_000.0])
def test_a_long_silence_leaves_a_gap(seconds: float) -> None:
    samples = Samples()
    samples.read()
    samples.read(memory_bytes=7)
    samples.read(seconds, memory_bytes=9)
    values = samples.history.node.memory_bytes
    assert len(values) == POINTS
    assert values[-1] == 9
    assert all(isnan(value) for value in values[-9:-1])
    assert (7 in values) is (seconds < POINTS * 10)


def test_a_clock_that_is_set_back_only_loses_a_rate() -> None:
    samples = Samples()
    samples.read()
    samples.read(-1000.0)
    assert isnan(samples.history.node.cores[-1])
    samples.read(cores=0.5)
    cores = samples.history.node.cores
    assert cores[-1] == pytest.approx(0.5)
    assert len(cores) == POINTS


def test_a_pod_that_is_gone_is_forgotten_and_one_that_comes_begins_anew() -> None:
    samples = Samples()
    samples.read(pods=("a", "b"))
    samples.read(pods=("b",))
    assert samples.history.of_pod("a") is None
    samples.read(pods=("a", "b"), memory_bytes=5)
    again = samples.history.of_pod("a")
    assert again
    assert again.memory_bytes[-1] == 5
    assert isnan(again.memory_bytes[-2])


def test_memory_that_is_not_reported_is_unknown() -> None:
    samples = Samples()
    samples.read(memory_bytes=None)
    assert isnan(samples.history.node.memory_bytes[-1])


def test_it_keeps_a_kilobyte_and_a_half_of_each_pod_and_so_many_pods() -> None:
    samples = Samples()
    uids = tuple(f"pod-{number}" for number in range(MAX_PODS + 50))
    samples.read(pods=uids)
    samples.read(pods=uids)
    assert sum(samples.history.of_pod(uid) is not None for uid in uids) == MAX_PODS
    tracemalloc.start()
    other = Samples()
    try:
        other.read(pods=uids)
        other.read(pods=uids)
        other.latest = other.history._last = None
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    print(f"{used / MAX_PODS:.0f} bytes a pod")
    assert used / MAX_PODS < 2000
