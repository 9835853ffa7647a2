"""Where cgroups lie under both drivers."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from nodeagent.stats.cgroup.layout import detect_layout
from nodeagent.stats.cgroup.readers import CgroupPaths, expand_slice
from nodeagent.stats.sampler import Sampler
from tests.fakes import hosts
from tests.fakes.hosts import CONTAINER, CONTAINER_CGROUP, LAYOUTS, POD, POD_CGROUP, SANDBOX_CGROUP


def placement_in(root: Path) -> CgroupPaths:
    return CgroupPaths(detect_layout(str(root / "cgroup")))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_containers_and_sandbox_lie_in_the_pods_cgroup(layout: str) -> None:
    placement = placement_in(hosts.TREES / layout)
    assert placement.all([POD]) == [POD_CGROUP, CONTAINER_CGROUP, SANDBOX_CGROUP]


@pytest.mark.parametrize(
    ("path", "expanded"),
    [
        ("orchpods.slice", "/orchpods.slice"),
        ("orchpods-pod1_2.slice", "/orchpods.slice/orchpods-pod1_2.slice"),
        ("a-b-c.slice", "/a.slice/a-b.slice/a-b-c.slice"),
        ("/orchpods/pod1", "/orchpods/pod1"),
        ("/orchpods.slice/orchpods-pod1.slice", "/orchpods.slice/orchpods-pod1.slice"),
        ("-.slice", "-.slice"),
        ("plain", "plain"),
    ],
)
def test_the_name_of_a_slice_spells_its_path(path: str, expanded: str) -> None:
    assert expand_slice(path) == expanded


async def test_under_systemd_a_container_is_a_scope_named_after_it(tmp_path: Path) -> None:
    root = hosts.copy("v2", tmp_path)
    slices = root / "cgroup/orchpods.slice"
    (root / "cgroup/orchpods").rename(slices)
    pod_slice = slices / "orchpods-pod1.slice"
    (slices / "pod7d1f6c1e").rename(pod_slice)
    (pod_slice / "4f1c2d").rename(pod_slice / "cri-containerd-4f1c2d.scope")
    (pod_slice / "5a9b3e").rename(pod_slice / "crio-5a9b3e.scope")
    pod = dataclasses.replace(POD, cgroup_parent="orchpods-pod1.slice")
    sampler = Sampler(targets=lambda: [pod], sources=hosts.sources(root))
    (sample,) = (await sampler.sample()).pods
    await sampler.close()
    parent = "/orchpods.slice/orchpods-pod1.slice"
    assert sample.cgroup and sample.sandbox and sample.containers[0].cgroup
    assert sample.path == parent
    assert sample.sandbox_path == f"{parent}/crio-5a9b3e.scope"
    assert sample.containers[0].path == f"{parent}/cri-containerd-4f1c2d.scope"


def test_paths_given_by_the_target_are_used_unchanged() -> None:
    container = dataclasses.replace(CONTAINER, cgroup="/elsewhere/web")
    pod = dataclasses.replace(POD, containers=(container,), sandbox_cgroup="/elsewhere/sandbox")
    placement = placement_in(hosts.TREES / "v2")
    assert placement.all([pod]) == [POD_CGROUP, "/elsewhere/web", "/elsewhere/sandbox"]


def test_a_cgroup_that_does_not_exist_yet_is_searched_again(tmp_path: Path) -> None:
    root = hosts.copy("v2", tmp_path)
    pod = dataclasses.replace(POD, sandbox_id="late")
    placement = placement_in(root)
    assert placement.sandbox(pod) == f"{POD_CGROUP}/late"
    (root / "cgroup" / POD_CGROUP[1:] / "crio-late.scope").mkdir()
    assert placement.sandbox(pod) == f"{POD_CGROUP}/crio-late.scope"


def test_a_path_is_remembered_while_its_container_is_measured(tmp_path: Path) -> None:
    root = hosts.copy("v2", tmp_path)
    placement = placement_in(root)
    placement.all([POD])
    cgroup = root / "cgroup" / CONTAINER_CGROUP[1:]
    scope = cgroup.rename(cgroup.with_name(f"crio-{CONTAINER.id}.scope"))
    assert placement.container(POD, CONTAINER) == CONTAINER_CGROUP
    placement.all([])
    assert placement.container(POD, CONTAINER) == f"{POD_CGROUP}/{scope.name}"


def test_a_pod_without_a_sandbox_has_no_sandbox_cgroup(tmp_path: Path) -> None:
    placement = placement_in(tmp_path)
    assert placement.sandbox(dataclasses.replace(POD, sandbox_id=None)) == ""
    assert placement.container(POD, CONTAINER) == CONTAINER_CGROUP, "a host without cgroups"
