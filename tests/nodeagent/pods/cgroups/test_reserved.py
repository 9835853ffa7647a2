"""Resources reserved from pods are bounded in cgroups that exist, on both versions of cgroups."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.pods.cgroups.reserved import ReservedPart, enforce
from nodeagent.pods.cgroups.tree import CgroupError
from nodeagent.wiring.node import reserved_parts
from orch.component.flags.features import Features

WHOLE = ReservedPart("systemReservedCgroup", "/system.slice", 500, 2**30, 1000)
# file by hierarchy, and what it holds afterwards
V1 = {"cpu/cpu.shares": "512", "memory/memory.limit_in_bytes": str(2**30), "pids/pids.max": "1000"}
V2 = {"cpu.weight": "20", "memory.max": str(2**30), "pids.max": "1000"}


def tree_with(root: Path, files: list[str], *, unified: bool) -> None:
    if unified:
        (root / "cgroup.controllers").write_text("cpu memory pids\n")
    for file in files:
        hierarchy, _, name = file.rpartition("/")
        directory = root / hierarchy / "system.slice"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text("0\n")


def content(root: Path, file: str) -> str:
    hierarchy, _, name = file.rpartition("/")
    return (root / hierarchy / "system.slice" / name).read_text()


@pytest.mark.parametrize(("expected", "unified"), [(V1, False), (V2, True)])
def test_shares_and_limits_are_those_that_are_reserved(
    tmp_path: Path, expected: dict[str, str], unified: bool
) -> None:
    tree_with(tmp_path, [*expected, "memory.min"] if unified else [*expected], unified=unified)
    enforce(WHOLE, tmp_path)
    assert {file: content(tmp_path, file) for file in expected} == expected
    if unified:
        assert content(tmp_path, "memory.min") == "0\n"


def test_memory_is_kept_for_it_where_that_is_wanted(tmp_path: Path) -> None:
    tree_with(tmp_path, ["memory.max", "memory.min"], unified=True)
    enforce(ReservedPart("f", "/system.slice", memory_bytes=4096, protects=True), tmp_path)
    assert content(tmp_path, "memory.min") == content(tmp_path, "memory.max") == "4096"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ([], r"systemReservedCgroup: there is no cgroup /system\.slice; make it, as systemd does"),
        (["cpu.weight"], r"the cgroup /system\.slice has no memory\.max; make it"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, files: list[str], said: str) -> None:
    tree_with(tmp_path, files, unified=True)
    (tmp_path / "cgroup.controllers").touch()
    with pytest.raises(CgroupError, match=said):
        enforce(WHOLE, tmp_path)
    assert not (tmp_path / "system.slice" / "memory.max").exists()


def test_of_a_compressible_part_only_the_shares_are_set() -> None:
    config = NodeAgentConfiguration.model_validate(
        {
            "systemReserved": {"cpu": "500m", "memory": "1Gi", "pid": "1000"},
            "systemReservedCgroup": "/system.slice",
            "nodeagentReserved": {"cpu": "1", "memory": "2Gi"},
            "nodeagentReservedCgroup": "/agent.slice",
            "enforceNodeAllocatable": ["pods", "system-reserved", "kube-reserved-compressible"],
        }
    )
    assert reserved_parts(config, Features({})) == [
        WHOLE,
        ReservedPart("nodeagentReservedCgroup", "/agent.slice", 1000),
    ]
    assert reserved_parts(NodeAgentConfiguration(), Features({})) == []
