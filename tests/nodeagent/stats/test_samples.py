"""The processes of a pod, and the directories to walk for it."""

from __future__ import annotations

import dataclasses

from nodeagent.stats import samples
from nodeagent.stats.samples import (
    CgroupSample,
    ContainerSample,
    PodSample,
    ProcessSample,
    VolumeTarget,
)
from tests.fakes.hosts import CONTAINER, POD


def counted(processes: int | None) -> CgroupSample:
    return CgroupSample(1, processes=ProcessSample(threads=9, processes=processes))


def test_processes_of_existing_containers_and_the_sandbox_are_summed() -> None:
    containers = tuple(
        ContainerSample(CONTAINER, cgroup) for cgroup in (counted(3), counted(None), None)
    )
    assert PodSample(POD, sandbox=counted(1), containers=containers).count_processes() == 4


def test_nothing_counted_is_not_zero() -> None:
    assert PodSample(POD, cgroup=counted(0)).count_processes() is None


def test_the_runtime_s_count_takes_precedence() -> None:
    assert PodSample(POD, sandbox=counted(1), process_count=7).count_processes() == 7


def test_logs_are_walked_flat_and_own_volumes_recursively_but_never_the_host() -> None:
    container = dataclasses.replace(CONTAINER, log_dir="/logs/web")
    volumes = (VolumeTarget("a", "/v/a", "emptyDir"), VolumeTarget("b", "/", "hostPath"))
    pod = dataclasses.replace(POD, containers=(container,), log_dir="/logs", volumes=volumes)
    assert samples.directories_of([pod, POD]) == {
        "/logs/web": False,
        "/logs": False,
        "/v/a": True,
    }
