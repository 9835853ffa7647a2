"""Reloading: what is put in force, what a broken file changes (nothing), what metrics tell."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nodeagent.config import options
from nodeagent.config.current import CurrentConfig
from nodeagent.config.load import load_config
from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.reload import Reloader
from orch.component.diagnostics.metrics import Registry
from orch.component.process.loops import cancel, spawn
from orch.component.process.notify import Notifier

pytestmark = pytest.mark.may_block

HEAD = "apiVersion: nodeagent.config.orch.io/v1beta1\nkind: NodeAgentConfiguration\n"


class Agent:
    """A reloader of one file, and what it did."""

    def __init__(self, file: Path, *flags: str) -> None:
        self.file = file
        file.write_text(HEAD)
        given = options.parse([f"--config={file}", *flags])
        self.current = CurrentConfig(load_config(given.config, None, given.overrides))
        self.applied: list[NodeAgentConfiguration] = []
        self.renewed = 0
        self.at = datetime(2026, 1, 1, tzinfo=UTC)
        self.reloader = Reloader(
            given, self.current, Notifier(""),
            apply=self.applied.append, renew=self._renew, now=lambda: self.at,
        )  # fmt: skip

    async def _renew(self) -> None:
        self.renewed += 1

    async def reload(self, text: str) -> bool:
        self.file.write_text(HEAD + text)
        return await self.reloader.reload()

    def metrics(self) -> str:
        registry = Registry()
        registry.register(self.reloader)
        return registry.render("")[0].decode()


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Agent]:
    return lambda *flags: Agent(tmp_path / "agent.yaml", *flags)


async def test_reloadable_fields_change_while_running(make: Callable[..., Agent]) -> None:
    agent = make()
    assert await agent.reload("housekeepingInterval: 20s\nlogging: {level: debug}\n")
    (applied,) = agent.applied
    assert (applied.housekeepingInterval, applied.logging.level) == (20.0, "debug")
    assert agent.current.value == applied


async def test_nothing_is_applied_when_nothing_changed(make: Callable[..., Agent]) -> None:
    agent = make()
    assert await agent.reload("# a comment\n")
    assert agent.applied == []
    assert agent.renewed == 1  # certificates may have changed


async def test_a_flag_still_wins_over_the_file(make: Callable[..., Agent]) -> None:
    agent = make("--log-level=warning")
    await agent.reload("logging: {level: debug}\n")
    assert agent.current.value.logging.level == "warning"


BROKEN = [
    ("port: many\n", ":3: port: "),
    ("prot: 1\n", ":3: prot: there is no such field"),
    ("port: 1\nport: 2\n", "port"),
    ("featureGates: {NodeAgentPSY: true}\n", "did you mean NodeAgentPSI?"),
    ("a: [\n", "agent.yaml:"),
]


@pytest.mark.parametrize(("text", "said"), BROKEN)
async def test_a_broken_file_changes_nothing_and_is_logged(
    make: Callable[..., Agent], caplog: pytest.LogCaptureFixture, text: str, said: str
) -> None:
    agent = make()
    before = agent.current.value
    assert not await agent.reload(text)
    assert agent.current.value is before and agent.applied == []
    (record,) = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert said in record.getMessage()
    assert "not reloaded" in record.getMessage()


async def test_metrics_tell_of_the_last_reload_and_the_last_success(
    make: Callable[..., Agent],
) -> None:
    agent = make()
    start_s = agent.at.timestamp()
    successful, stamp = "nodeagent_config_last_reload_{}", "success_timestamp_seconds"
    assert f"{successful.format('successful')} 1.0\n" in agent.metrics()
    agent.at = datetime(2026, 1, 2, tzinfo=UTC)
    await agent.reload("port: many\n")
    assert f"{successful.format('successful')} 0.0\n" in agent.metrics()
    assert agent.reloader.succeeded_at_s == start_s
    await agent.reload("")
    assert f"{successful.format('successful')} 1.0\n" in agent.metrics()
    assert f"{successful.format(stamp)} " in agent.metrics()
    assert agent.reloader.succeeded_at_s == agent.at.timestamp()


async def test_a_needed_restart_is_logged_once_per_reload(
    make: Callable[..., Agent], caplog: pytest.LogCaptureFixture
) -> None:
    agent = make()
    assert await agent.reload("port: 10251\nmaxPods: 9\n")
    (warning,) = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert warning.getMessage() == "these need a restart to change: maxPods, port"
    assert agent.current.value.port == 10250


async def test_a_hang_up_reloads(make: Callable[..., Agent]) -> None:
    agent = make()
    agent.file.write_text(HEAD + "logging: {level: debug}\n")
    agent.reloader.listen()
    running = spawn(agent.reloader.run(), name="reload")
    os.kill(os.getpid(), signal.SIGHUP)
    async with asyncio.timeout(30):
        while not agent.applied:
            await asyncio.sleep(0.01)
    await cancel(running)
