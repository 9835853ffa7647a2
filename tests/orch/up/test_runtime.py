"""Which runtime is chosen, by what the tool answers; the tool here is a program of the test."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from nodeagent.runtime.base import RuntimeVersion
from orch.component.process import loops
from orch.component.process.daemon import SetupError
from orch.up import runtime as under_test
from orch.up.runtime import RuntimeChoice, RuntimeTool, choose_runtime
from tests.fakes.cri_server import CriServer
from tests.fakes.programs import gone, until
from tests.fakes.runtime import FakeRuntime

TOOL = """
import json, os, pathlib, signal, sys
here = pathlib.Path(__file__).parent
with (here / "calls").open("a") as calls:
    calls.write(json.dumps([os.getpid(), *sys.argv[1:]]) + chr(10))
answer = json.loads((here / "answers").read_text())[sys.argv[1]]
if answer is None:
    signal.pause()
print(answer[1])
sys.exit(answer[0])
"""
FOUND = (0, "unix:///run/found.sock")
NONE_FOUND = (3, "")
MADE = (0, "unix:///run/made.sock")
FAILED = (1, "half an endpoint")


class Tool:
    """A provisioning tool that answers as told; None does not answer."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "runtime"
        self.shared = directory / "agent"
        self._folder = directory
        self._program = directory / "tool"
        self._program.write_text(TOOL)
        self.answers(find=NONE_FOUND, up=MADE, down=(0, ""))

    def answers(self, **answers: tuple[int, str] | None) -> None:
        path = self._folder / "answers"
        known = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**known, **answers}))

    def calls(self) -> list[list[str]]:
        return [call[1:] for call in self._read()]

    def pids(self) -> list[int]:
        return [call[0] for call in self._read()]

    def _read(self) -> list[list]:  # type: ignore[type-arg]
        path = self._folder / "calls"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]

    def used(self) -> RuntimeTool:
        return RuntimeTool(self._program, self.directory, shared=self.shared)


@pytest.fixture
def tool(tmp_path: Path) -> Tool:
    return Tool(tmp_path)


def be(monkeypatch: pytest.MonkeyPatch, uid: int) -> None:
    monkeypatch.setattr("os.geteuid", lambda: uid)


async def test_a_runtime_that_runs_already_is_used_and_none_is_made(tool: Tool) -> None:
    tool.answers(find=FOUND)
    assert await tool.used().choose() == RuntimeChoice("unix:///run/found.sock")
    assert tool.calls() == [["find"]]


async def test_where_none_runs_root_provisions_one_that_sees_the_agents_directory(
    tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    be(monkeypatch, 0)
    assert await tool.used().choose() == RuntimeChoice("unix:///run/made.sock", provisioned=True)
    up = ["up", "--dir", str(tool.directory), "--share", str(tool.shared)]
    assert tool.calls() == [["find"], up]


async def test_a_provisioned_one_comes_with_the_address_that_its_pods_reach(
    tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    be(monkeypatch, 0)
    tool.answers(up=(0, "unix:///run/made.sock\n192.0.2.1"))
    choice = await tool.used().choose()
    assert (choice.endpoint, choice.host_address) == ("unix:///run/made.sock", "192.0.2.1")


async def test_only_root_provisions(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    be(monkeypatch, 1000)
    choice = await tool.used().choose()
    assert choice == RuntimeChoice(None, why="none is running, and only root can provision one")
    assert tool.calls() == [["find"]]


async def test_a_user_without_rights_uses_one_that_runs(
    tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    be(monkeypatch, 1000)
    tool.answers(find=FOUND)
    assert (await tool.used().choose()).endpoint == "unix:///run/found.sock"


async def test_a_failed_provisioning_is_no_reason_not_to_start(
    tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    be(monkeypatch, 0)
    tool.answers(up=FAILED)
    choice = await tool.used().choose()
    assert choice == RuntimeChoice(None, why="provisioning one failed; see the lines above")


async def test_a_search_that_fails_is_one(tool: Tool) -> None:
    tool.answers(find=FAILED)
    with pytest.raises(SetupError, match="the search for a container runtime failed"):
        await tool.used().choose()


async def test_what_was_provisioned_or_begun_is_taken_down_and_nothing_else(
    tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    be(monkeypatch, 1000)
    used = tool.used()
    await used.choose()
    await used.down()
    assert tool.calls() == [["find"]]
    be(monkeypatch, 0)
    tool.answers(up=FAILED)
    await used.choose()
    await used.down()
    assert tool.calls()[-1] == ["down", "--dir", str(tool.directory)]


async def test_a_provisioned_runtime_that_ends_is_started_again_and_said(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(under_test, "KEEP_INTERVAL_S", 0.02)
    place = tmp_path / "cri.sock"
    served = await asyncio.start_unix_server(lambda _reader, writer: writer.close(), place)
    keeping = loops.spawn(tool.used().keep(f"unix://{place}"), name="keeping")
    await asyncio.sleep(0.1)
    assert tool.calls() == []
    served.close()
    await until(lambda: ["up", "--dir", str(tool.directory)] in [c[:3] for c in tool.calls()])
    place.unlink(missing_ok=True)
    served = await asyncio.start_unix_server(lambda _reader, writer: writer.close(), place)
    await until(lambda: "runs again" in caplog.text)
    await loops.cancel(keeping)
    served.close()
    first, last = caplog.messages
    assert first == "the private container runtime has ended: starting it again"
    assert last.startswith("the private container runtime runs again (after ")


@pytest.mark.parametrize("word", ["find", "up"])
async def test_cancelling_ends_the_tool_first(
    tool: Tool, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    be(monkeypatch, 0)
    tool.answers(**{word: None})
    choosing = loops.spawn(tool.used().choose(), name="choosing")
    await until(lambda: [call for call in tool.calls() if call[0] == word])
    assert not gone(tool.pids()[-1])
    await loops.cancel(choosing)
    assert choosing.cancelled()
    assert gone(tool.pids()[-1])


async def test_the_tool_is_out_of_reach_of_the_terminals_signals(
    tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []
    start = asyncio.create_subprocess_exec

    async def noted(*command: str, **how: object) -> asyncio.subprocess.Process:
        started.append(how)
        return await start(*command, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", noted)
    be(monkeypatch, 0)
    await tool.used().choose()
    assert [how["start_new_session"] for how in started] == [True, True]


async def test_a_configured_endpoint_is_used_without_a_search() -> None:
    assert await choose_runtime("unix:///run/x", None) == RuntimeChoice("unix:///run/x")


async def test_an_empty_endpoint_means_none_and_logs_no_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert await choose_runtime("", None) == RuntimeChoice(None)
    assert caplog.messages == []


async def test_running_without_a_runtime_is_logged_with_the_reason(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("CONTAINER_RUNTIME_ENDPOINT", raising=False)
    monkeypatch.setattr(under_test, "SOCKETS", (str(tmp_path / "none"),))
    assert (await choose_runtime(None, None)).endpoint is None
    (message,) = caplog.messages
    assert "running without a container runtime: neither containerd >= 2 nor CRI-O" in message


@pytest.mark.parametrize(
    ("name", "version", "fits"),
    [
        ("containerd", "v2.1.9", True),
        ("containerd", "2.0.0-rc.1", True),
        ("containerd", "1.7.24~ds1", False),
        ("containerd", "", False),
        ("cri-o", "1.33.1", True),
    ],
)
async def test_without_a_tool_a_runtime_that_runs_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, version: str, fits: bool
) -> None:
    monkeypatch.delenv("CONTAINER_RUNTIME_ENDPOINT", raising=False)
    monkeypatch.setattr(under_test, "SOCKETS", (str(tmp_path / "none"), str(tmp_path / "cri")))
    runtime = FakeRuntime()
    runtime.about = RuntimeVersion(name, version, "v1")
    server = CriServer(runtime, tmp_path / "cri")
    await server.start()
    found = await choose_runtime(None, None)
    await server.stop()
    assert found.endpoint == (f"unix://{tmp_path / 'cri'}" if fits else None)


async def test_without_a_tool_the_environment_names_a_runtime(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for named in ("/run/x.sock", "unix:///run/x.sock"):
        monkeypatch.setenv("CONTAINER_RUNTIME_ENDPOINT", named)
        assert await choose_runtime(None, None) == RuntimeChoice("unix:///run/x.sock")
