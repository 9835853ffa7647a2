"""Which host is which."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.stats.cgroup import layout
from tests.fakes import hosts


@pytest.mark.parametrize("name", hosts.LAYOUTS)
def test_each_captured_host_is_recognised(name: str) -> None:
    assert layout.detect_layout(str(hosts.TREES / name / "cgroup")).version == name


def test_a_host_without_cgroups_has_nothing_to_read(tmp_path: Path) -> None:
    for root in (tmp_path, tmp_path / "gone"):
        found = layout.detect_layout(str(root))
        assert (found.version, found.files, found.directory("/a")) == ("none", (), None)


def test_a_joint_mount_serves_each_of_its_controllers() -> None:
    controllers = layout.detect_layout(str(hosts.TREES / "v1/cgroup")).controllers
    assert controllers["cpu"] == controllers["cpuacct"]
    assert controllers["cpu"].endswith("/cpu,cpuacct")


def test_only_the_v2_tree_of_a_hybrid_host_has_pressure() -> None:
    hybrid = layout.detect_layout(str(hosts.TREES / "hybrid/cgroup"))
    assert {file.hierarchy for file in hybrid.files if file.name.endswith(".pressure")} == {
        hybrid.unified
    }
    assert {file.name for file in hybrid.files if file.hierarchy == hybrid.unified} == {
        "cpu.pressure",
        "memory.pressure",
        "io.pressure",
    }


def test_an_unused_unified_directory_does_not_make_a_host_hybrid(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory/cgroup.procs").touch()
    (tmp_path / "unified").mkdir()
    assert layout.detect_layout(str(tmp_path)).version == "v1"
