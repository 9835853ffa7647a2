"""Where the parts of a pod are."""

from __future__ import annotations

import dataclasses

from nodeagent.stats import targets
from nodeagent.stats.samples import VolumeTarget
from tests.fakes.hosts import CONTAINER, CONTAINER_CGROUP, POD, POD_CGROUP, SANDBOX_CGROUP


def test_containers_and_sandbox_lie_in_the_pods_cgroup() -> None:
    assert targets.cgroups_of([POD]) == [POD_CGROUP, CONTAINER_CGROUP, SANDBOX_CGROUP]


def test_names_of_another_driver_are_taken_as_given() -> None:
    parent = "/orchpods.slice/orchpods-pod1.slice"
    container = dataclasses.replace(CONTAINER, cgroup=f"{parent}/cri-containerd-4f1c2d.scope")
    sandbox = f"{parent}/cri-containerd-5a9b3e.scope"
    pod = dataclasses.replace(
        POD, cgroup_parent=parent, containers=(container,), sandbox_cgroup=sandbox
    )
    assert targets.cgroups_of([pod]) == [parent, container.cgroup, sandbox]


def test_a_pod_without_a_sandbox_has_no_sandbox_cgroup() -> None:
    assert targets.sandbox_cgroup_of(dataclasses.replace(POD, sandbox_id=None)) == ""


def test_logs_are_walked_flat_and_own_volumes_whole_but_never_the_host() -> None:
    container = dataclasses.replace(CONTAINER, log_dir="/logs/web")
    volumes = (VolumeTarget("a", "/v/a", "emptyDir"), VolumeTarget("b", "/", "hostPath"))
    pod = dataclasses.replace(POD, containers=(container,), log_dir="/logs", volumes=volumes)
    assert targets.directories_of([pod, POD]) == {
        "/logs/web": False,
        "/logs": False,
        "/v/a": True,
    }
