"""The program of hollow nodes: its command line, and its control over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from nodeagent.hollow import main
from nodeagent.hollow.fleet import Lateness
from orch.client.kubeconfig import ClientConfig
from orch.component.process import loops
from orch.component.process.daemon import Stop

Client = TestClient[web.Request, web.Application]


@dataclass
class Figures:
    nodes: int = 3


@dataclass
class Fleet:
    """What the control asks of a fleet."""

    asked: list[Any] = field(default_factory=list)
    shown: dict[str, str] = field(default_factory=lambda: {"hollow-0": "True"})
    lateness: Lateness = field(default_factory=lambda: Lateness({7: 1}))

    def figures(self) -> Figures:
        return Figures()

    def choose(self, count: int) -> list[str]:
        return [f"hollow-{n}" for n in range(count)]

    async def inject(self, kind: str, names: list[str]) -> None:
        if kind != "silent":
            raise ValueError(f"there is no fault {kind!r}")
        self.asked.append((kind, names))

    def heal(self) -> None:
        self.asked.append("heal")


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


@pytest_asyncio.fixture
async def client(fleet: Fleet) -> AsyncIterator[Client]:
    async with TestClient(TestServer(main.control(fleet))) as client:  # type: ignore[arg-type]
        yield client


async def test_the_fleet_is_shown(client: Client) -> None:
    assert await (await client.get("/figures")).json() == {"nodes": 3}
    assert await (await client.get("/nodes")).json() == {"hollow-0": "True"}


async def test_faults_are_injected_and_healed(client: Client, fleet: Fleet) -> None:
    answer = await client.post("/faults?kind=silent&count=2")
    assert await answer.json() == ["hollow-0", "hollow-1"]
    assert (await client.post("/heal")).status == (await client.post("/reset")).status == 200
    assert fleet.asked == [("silent", ["hollow-0", "hollow-1"]), "heal"]
    assert not fleet.lateness


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("kind=odd", "there is no fault 'odd'"),
        ("kind=silent&count=all", "'all' is not a positive number"),
        ("kind=silent&count=-1", "'-1' is not a positive number"),
    ],
)
async def test_a_fault_that_is_none_is_refused(client: Client, query: str, text: str) -> None:
    answer = await client.post(f"/faults?{query}")
    assert answer.status == 400
    assert text in await answer.text()


@pytest.mark.parametrize(
    "argv", [[], ["--kubeconfig=x", "--count=0"], ["--kubeconfig=x", "--count=many"]]
)
def test_wrong_usage_ends_with_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main.parser().parse_args(argv)
    assert caught.value.code == 2
    assert capsys.readouterr().err


async def test_it_prints_its_control_address_and_stops_on_a_signal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(main.daemon, "freeze_gc", lambda: None)
    options = main.parser().parse_args(["--kubeconfig=unused", "--count=2"])
    stop = Stop()
    config = ClientConfig(server="http://127.0.0.1:1")  # nobody is there
    running = loops.spawn(main.run(options, config, stop), name="hollow")
    printed = ""
    async with asyncio.timeout(60):
        while "\n" not in printed:
            await asyncio.sleep(0)
            printed += capsys.readouterr().out
    address = printed.removeprefix("control http://").strip()
    host, port = address.split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.close()
    stop.set("test")
    await running
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(host, int(port))


def test_a_kubeconfig_that_cannot_be_read_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(main.logs, "configure", lambda: None)
    assert main.main([f"--kubeconfig={tmp_path / 'absent'}"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("nodeagent hollow: error: ")
    assert "absent" in line
