"""The right cause for each kind of culprit, and nobody accused falsely."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.pressure.causes.cause import Cause
from nodeagent.pressure.causes.rank import causes_of
from nodeagent.pressure.evidence import DiskLatency, Evidence, Stopped, Subject
from nodeagent.stats.samples import Limits, MemorySample
from tests.fakes.activities import DISK, MB, activity, machine, reads, writes

CAPPED = activity(
    "capped", cores=0.2, throttled=0.8, stalls={"cpu": 0.8},
    limits=Limits(cpu_quota_usec=20_000, cpu_period_usec=100_000),
)  # fmt: skip
THIEF = activity("thief", cores=1.6, stalls={"cpu": 0.3})
STEADY = activity("steady", cores=0.2, limits=Limits(cpu_shares=1024), stalls={"cpu": 0.4})
SERVICE = activity("system.slice/thief.service", service=True, cores=1.7)
BOMB = activity("bomb", cores=0.5, threads=60, limits=Limits(threads=60), refused_forks=900)
SMALL = Limits(memory_bytes=50 * MB)
FULL = MemorySample(usage_bytes=50 * MB, cache_bytes=40 * MB, rss_bytes=5 * MB)
READER = activity(
    "reader", limits=SMALL, memory=FULL, stalls={"memory": 0.5, "io": 0.4}, limit_hits=40.0,
    file_refaults=9000.0, io=reads(36 * MB, 300),
)  # fmt: skip
LEAKY = activity(
    "leaky", limits=SMALL, memory=FULL._replace(rss_bytes=45 * MB), anon_growth=4.0 * MB,
    stalls={"memory": 0.2}, limit_hits=3.0,
)  # fmt: skip
SWAPPER = activity(
    "swapper", limits=SMALL, memory=FULL._replace(swap_bytes=60 * MB), stalls={"memory": 0.6},
    limit_hits=99.0, anon_refaults=4000.0,
)  # fmt: skip
CRAMPED = activity("cramped", limits=SMALL, memory=FULL, stalls={"memory": 0.2}, limit_hits=5.0)
WRITER = activity("writer", io=writes(80 * MB, 90), stalls={"io": 0.8})
WALKER = activity("walker", io=reads(9 * MB, 1500), stalls={"io": 0.8}, file_refaults=0.0)
SYNCING = activity("syncing", io=writes(80_000, 20), stalls={"io": 0.3})
GROWER = activity("grower", anon_growth=50.0 * MB, memory=MemorySample(rss_bytes=900 * MB))
CPU, MEMORY, IO = {"cpu": 0.8}, {"memory": 0.5}, {"io": 0.8}

CASES: dict[str, tuple[Evidence, list[str]]] = {
    "own limit": (machine(CAPPED, stalls=CPU), ["cpu/limit capped"]),
    "own limit beside others": (
        machine(CAPPED, activity("idle"), stalls=CPU), ["cpu/limit capped"]),
    "thief": (machine(THIEF, STEADY, stalls=CPU), ["cpu/busy thief"]),
    "a limited thief too": (
        machine(CAPPED, THIEF, STEADY, stalls=CPU), ["cpu/limit capped", "cpu/busy thief"]),
    "fork bomb": (machine(BOMB, STEADY, stalls=CPU), ["cpu/forks bomb"]),
    "service": (machine(SERVICE, STEADY, stalls=CPU), ["cpu/busy system.slice/thief.service"]),
    "many alike": (
        machine(*[activity(f"a{n}", cores=0.4, stalls={"cpu": 0.5}) for n in range(5)], stalls=CPU),
        ["cpu/crowd "],
    ),
    "processors that nobody uses": (machine(activity("a"), stalls=CPU), ["cpu/crowd "]),
    "many alike, and a writer": (
        machine(*[activity(f"a{n}", cores=0.4, stalls={"cpu": 0.5}) for n in range(5)], WRITER,
                stalls={**CPU, **IO}),
        ["io/writes writer"],
    ),
    "reader": (machine(READER, stalls={**MEMORY, **IO}), ["memory/rereads reader"]),
    "leak": (machine(LEAKY, stalls=MEMORY), ["memory/grows leaky"]),
    "killed without a stall": (
        machine(LEAKY._replace(killed=1, stalls={})), ["memory/grows leaky"]),
    "leak of the machine": (
        machine(GROWER, STEADY, stalls=MEMORY, available_share=0.05), ["memory/grows grower"]),
    "swap": (machine(SWAPPER, stalls=MEMORY), ["memory/swaps swapper"]),
    "memory limit": (machine(CRAMPED, stalls=MEMORY), ["memory/limit cramped"]),
    "memory full": (
        machine(activity("web"), stalls=MEMORY, available_share=0.05), ["memory/crowd "]),
    "writer": (machine(WRITER, SYNCING, stalls=IO), ["io/writes writer"]),
    "small files": (machine(WALKER, SYNCING, stalls=IO), ["io/small-files walker"]),
    "disk alone": (machine(activity("web"), stalls=IO), ["io/crowd "]),
    "none": (machine(STEADY, activity("idle")), []),
    "busy, nobody waits": (machine(THIEF), []),
    "two": (
        machine(THIEF, WRITER, STEADY, stalls={**CPU, **IO}), ["cpu/busy thief", "io/writes writer"]
    ),
    "two alike": (
        machine(THIEF._replace(cores=0.9), SERVICE._replace(cores=0.9), stalls=CPU),
        ["cpu/busy system.slice/thief.service", "cpu/busy thief"],
    ),
    "stopped": (
        machine(stopped=(Stopped(Subject("shop", "halted", "app"), "sh", 7),)),
        ["process/stopped halted"],
    ),
}  # fmt: skip


def summed_up(found: tuple[Cause, ...]) -> list[str]:
    return sorted(
        f"{each.resource}/{each.kind} {each.culprit.pod or each.culprit.service}" for each in found
    )


@pytest.mark.parametrize("case", CASES)
def test_the_right_cause_is_found_and_no_other(case: str) -> None:
    evidence, wanted = CASES[case]
    assert summed_up(causes_of(evidence)) == sorted(wanted)


def test_a_throttled_container_is_not_the_machine_s_pressure() -> None:
    assert machine(CAPPED, stalls=CPU).contended() == pytest.approx(0.0)
    assert machine(CAPPED, STEADY, stalls=CPU).contended() == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("evidence", "hurt"),
    [
        (machine(THIEF, STEADY, CAPPED, stalls=CPU), ["steady"]),
        (machine(WRITER, SYNCING, stalls=IO), ["syncing"]),
        (machine(WRITER, stalls=IO), ["writer"]),
    ],
)
def test_who_suffers_is_who_else_waits(evidence: Evidence, hurt: list[str]) -> None:
    (found,) = [each for each in causes_of(evidence) if each.kind in ("busy", "writes")]
    assert [subject.pod for subject in found.suffers] == hurt


def test_the_disk_and_its_latency_are_named() -> None:
    evidence = machine(WRITER, SYNCING, stalls=IO, disks={DISK: DiskLatency("nvme0n1", 41.25)})
    (found,) = causes_of(evidence)
    assert "to nvme0n1" in found.does
    assert "41.2 ms" in found.does


def test_the_worst_comes_first() -> None:
    slight = machine(THIEF, WRITER, STEADY, stalls={"cpu": 0.3, "io": 0.9})
    assert [each.resource for each in causes_of(slight)] == ["io", "cpu"]


def test_a_pool_of_threads_at_its_limit_is_no_fork_bomb_where_nobody_waits() -> None:
    pool = activity("pool", threads=58, limits=Limits(threads=60))
    assert causes_of(machine(pool, stalls={"cpu": 0.04})) == ()
    (found,) = causes_of(machine(pool, STEADY, stalls=CPU))
    assert (found.kind, found.culprit.pod) == ("forks", "pool")


share = st.floats(0, 1)
ANY: dict[str, Any] = {
    "cores": st.floats(0, 2),
    "anon_growth": st.floats(-1e9, 1e9),
    "limit_hits": st.floats(0, 1e6),
    "major_faults": st.floats(0, 1e6),
    "threads": st.integers(0, 40),
    "io": st.builds(reads, st.floats(0, 1e9), st.floats(0, 1e5)),
    "file_refaults": st.none() | st.floats(0, 1e6),
    "memory": st.builds(
        MemorySample,
        usage_bytes=st.none() | st.integers(0, 10**10),
        swap_bytes=st.none() | st.integers(0, 10**10),
    ),
    "limits": st.builds(Limits, memory_bytes=st.none() | st.integers(0, 10**10)),
}
anybody = st.builds(lambda **more: activity("any", **more), **ANY)


@settings(max_examples=40)
@given(st.lists(anybody, max_size=4), st.floats(0, 0.04))
def test_without_stalls_nobody_is_accused_whatever_they_do(found: list[Any], stall: float) -> None:
    stalls = dict.fromkeys(("cpu", "memory", "io"), stall)
    assert causes_of(machine(*found, stalls=stalls)) == ()


@settings(max_examples=40)
@given(st.lists(anybody, max_size=4), share, share, share, share)
def test_whatever_happens_there_is_an_answer(
    found: list[Any], cpu: float, memory: float, io: float, available: float
) -> None:
    stalls = {"cpu": cpu, "memory": memory, "io": io}
    for each in causes_of(machine(*found, stalls=stalls, available_share=available)):
        assert 0 <= each.weight <= 1
        assert 0 <= each.confidence <= 1
        assert each.does
        assert each.next_step
