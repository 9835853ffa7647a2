"""Pods through the death and the silence of a real containerd."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.conftest_runtime import provisioned
from tests.fakes.realpods import Agent, manifest

pytestmark = [pytest.mark.real, pytest.mark.seconds(40)]


async def test_containers_outlive_their_runtime_and_are_kept(tmp_path: Path) -> None:
    with provisioned(tmp_path / "rt") as runtime:
        agent = Agent(tmp_path, runtime.endpoint)
        agent.start()
        try:
            agent.put(manifest("kept", {"name": "app"}))
            await agent.runs("kept")
            before = agent.ids("kept")
            await asyncio.to_thread(runtime.control, "stop", "--signal", "KILL")
            agent.put(manifest("later", {"name": "app"}))
            await asyncio.sleep(3)
            await agent.until(lambda: agent.status("later").phase == "Pending")
            assert agent.status("kept").phase == "Running"
            await asyncio.to_thread(runtime.control, "start")
            await agent.runs("later")
            assert agent.ids("kept") == before
            [status] = agent.status("kept").containerStatuses or []
            assert status.restartCount == 0
        finally:
            await agent.close()
        assert await asyncio.to_thread(lambda: list(agent.directory.glob("root/pods/*"))) == []


async def test_a_frozen_runtime_freezes_nothing_else(tmp_path: Path) -> None:
    with provisioned(tmp_path / "rt") as runtime:
        agent = Agent(tmp_path, runtime.endpoint)
        agent.start()
        try:
            agent.put(manifest("first", {"name": "app"}))
            await agent.runs("first")
            await asyncio.to_thread(runtime.control, "stop", "--signal", "STOP")
            agent.put(manifest("second", {"name": "app"}))
            await agent.until(lambda: len(agent.registry.pods()) == 2)
            await asyncio.sleep(2)
            await asyncio.to_thread(runtime.control, "stop", "--signal", "CONT")
            await agent.runs("second")
        finally:
            await agent.close()


async def test_probes_that_a_frozen_runtime_did_not_answer_restart_no_container(
    tmp_path: Path,
) -> None:
    probe = {
        "exec": {"command": ["true"]},
        "periodSeconds": 1, "timeoutSeconds": 6, "failureThreshold": 1,
    }  # fmt: skip
    with provisioned(tmp_path / "rt") as runtime:
        agent = Agent(tmp_path, runtime.endpoint)
        agent.start()
        try:
            agent.put(manifest("probed", {"name": "app", "livenessProbe": probe}))
            await agent.runs("probed")
            before = agent.ids("probed")
            await asyncio.to_thread(runtime.control, "stop", "--signal", "STOP")
            await asyncio.sleep(19)  # a probe is given up after 16 s
            await asyncio.to_thread(runtime.control, "stop", "--signal", "CONT")
            await asyncio.sleep(4)
            assert agent.ids("probed") == before
            [status] = agent.status("probed").containerStatuses or []
            assert status.restartCount == 0
        finally:
            await agent.close()
