"""How the sampler is connected: its loop, and the cgroups beside those of pods."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace

import pytest

from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.stats.host.machine import HostFacts
from nodeagent.wiring.stats import (
    require_machine,
    sampling_loop,
    system_parts,
    warn_of_old_cgroups,
)
from orch.component.process.daemon import SetupError
from orch.component.process.loops import cancel, spawn


@pytest.mark.looptime
async def test_each_reading_is_followed_by_a_look_for_what_it_shows_first() -> None:
    done: list[str] = []

    async def read() -> None:
        done.append("pages")

    pages = SimpleNamespace(step=read)
    looks = [lambda: done.append("new disks"), lambda: done.append("pressure")]
    loop = sampling_loop(pages, looks, 10)  # type: ignore[arg-type]
    running = spawn(loop.run(), name="sampling")
    await asyncio.sleep(15)
    await cancel(running)
    assert done == ["pages", "new disks", "pressure"] * 2


@pytest.mark.parametrize(
    ("fields", "own", "shown"),
    [
        ({}, None, {"pods": "/orchpods"}),
        ({}, "/agent", {"pods": "/orchpods", "nodeagent": "/agent"}),
        (
            {"systemCgroups": "/system.slice", "cgroupRoot": "/below"},
            None,
            {"pods": "/below/orchpods", "misc": "/system.slice"},
        ),
    ],
)
def test_the_parts_of_the_system_are_those_whose_cgroup_is_known(
    fields: dict[str, str], own: str | None, shown: dict[str, str]
) -> None:
    host = HostFacts(2, 2, 10, 0, 77, "b", "m", "s", "6.1", "os", "arm64", "linux", "h", 0)
    config = NodeAgentConfiguration.model_validate(fields)
    parts = system_parts(config, host, own, None)()
    assert {part.name: part.cgroup for part in parts} == shown
    assert {part.started_at_ns for part in parts if part.name != "nodeagent"} == {77}


@pytest.mark.parametrize(
    ("fields", "swap_bytes", "version", "said"),
    [
        ({"failSwapOn": True}, 4096, "v2", "has 4096 bytes of swap; run swapoff -a"),
        ({"failSwapOn": True}, 0, "v1", ""),
        ({"failCgroupV1": True}, 4096, "v1", "this host has cgroup v1"),
        ({"failCgroupV1": True}, 4096, "v2", ""),
        ({"singleProcessOOMKill": False}, 0, "v1", "singleProcessOOMKill is false, which needs"),
        ({"singleProcessOOMKill": False}, 0, "v2", ""),
        ({"singleProcessOOMKill": True}, 0, "v1", ""),
        ({}, 4096, "v1", ""),
    ],
)
def test_an_agent_does_not_start_on_a_machine_that_is_ruled_out(
    fields: dict[str, bool], swap_bytes: int, version: str, said: str
) -> None:
    host = HostFacts(2, 2, 10, swap_bytes, 77, "b", "m", "s", "6.1", "os", "arm64", "linux", "h", 0)
    config = NodeAgentConfiguration.model_validate(fields)
    with pytest.raises(SetupError, match=said) if said else contextlib.nullcontext():
        require_machine(config, host, version)


@pytest.mark.parametrize(("version", "is_old"), [("v1", 1), ("hybrid", 1), ("v2", 0), ("none", 0)])
def test_an_agent_warns_of_old_cgroups_at_its_start(
    caplog: pytest.LogCaptureFixture, version: str, is_old: int
) -> None:
    warn_of_old_cgroups(version)
    assert [record.levelname for record in caplog.records] == ["WARNING"] * is_old
    assert f"this host has cgroup {version}: cgroup v1 is in mainten" in caplog.text or not is_old
