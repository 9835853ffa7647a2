"""How many processes a pod has: those counted one by one, or what the runtime counted."""

from __future__ import annotations

from nodeagent.stats.samples import CgroupSample, ContainerSample, PodSample, ProcessSample
from tests.fakes.hosts import CONTAINER, POD


def counted(processes: int | None) -> CgroupSample:
    return CgroupSample(1, processes=ProcessSample(threads=9, processes=processes))


def test_containers_and_sandbox_are_counted_and_those_that_are_gone_are_not() -> None:
    containers = tuple(
        ContainerSample(CONTAINER, cgroup) for cgroup in (counted(3), counted(None), None)
    )
    assert PodSample(POD, sandbox=counted(1), containers=containers).count_processes() == 4


def test_nothing_counted_is_not_zero() -> None:
    assert PodSample(POD, cgroup=counted(0)).count_processes() is None


def test_what_the_runtime_counted_goes_before() -> None:
    assert PodSample(POD, sandbox=counted(1), process_count=7).count_processes() == 7
