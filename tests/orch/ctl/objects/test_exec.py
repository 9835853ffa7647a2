"""`orchctl exec` against a server that plays the agent's end of the WebSocket."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import sys
import termios
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import WSMsgType, web

from tests.fakes.http_api import Answer, HttpApi
from tests.orch.ctl.conftest import Orchctl

POD = "/api/v1/namespaces/default/pods/web"
V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
SUCCESS = {"kind": "Status", "status": "Success"}
Talk = Callable[[web.WebSocketResponse], Awaitable[dict[str, Any] | None]]


def exited(code: int) -> dict[str, Any]:
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}


@pytest.fixture(autouse=True)
def _pod(api: HttpApi) -> None:
    spec = {"containers": [{"name": "a"}, {"name": "b"}]}
    annotations = {"kubectl.kubernetes.io/default-container": "b"}
    api.put(POD, {"metadata": {"name": "web", "annotations": annotations}, "spec": spec})


def talks(api: HttpApi, talk: Talk, *protocols: str) -> None:
    """The server agrees to one of the protocols, talks, and tells the status that it is given."""

    async def handle(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(protocols=protocols or (V5, V4))
        await socket.prepare(request)
        asked.append(request.query.copy())  # type: ignore[arg-type]
        await socket.send_bytes(b"\x01")
        status = await talk(socket)
        if status is not None:
            await socket.send_bytes(b"\x03" + json.dumps(status).encode())
        await socket.close()
        return socket

    asked: list[Any] = []
    api.sockets[f"{POD}/exec"] = handle
    api.sockets["asked"] = asked  # type: ignore[assignment]


def asked(api: HttpApi) -> dict[str, list[str]]:
    (query,) = api.sockets["asked"]  # type: ignore[misc]
    return {name: query.getall(name) for name in query}


async def test_output_errors_and_exit_code_come_here(orchctl: Orchctl, api: HttpApi) -> None:
    async def talk(socket: web.WebSocketResponse) -> dict[str, Any]:
        await socket.send_bytes(b"\x01out\n")
        await socket.send_bytes(b"\x02err\n")
        await socket.send_bytes(b"\x01" + b"x" * 1_000_000)
        return exited(7)

    talks(api, talk)
    result = await orchctl("exec", "web", "--", "sh", "-c", "a b; -n")
    assert (result.code, result.out, result.err) == (7, "out\n" + "x" * 1_000_000, "err\n")
    assert asked(api) == {
        "container": ["b"], "command": ["sh", "-c", "a b; -n"], "stdout": ["true"],
        "stderr": ["true"],
    }  # fmt: skip


@pytest.mark.parametrize("protocol", [V5, V4])
async def test_input_goes_there_and_its_end_too(
    orchctl: Orchctl, api: HttpApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, protocol: str
) -> None:
    data = os.urandom(300_000)
    (tmp_path / "data").write_bytes(data)
    got: list[bytes] = []

    async def talk(socket: web.WebSocketResponse) -> dict[str, Any]:
        while sum(len(one) - 1 for one in got if one[:1] == b"\x00") < len(data):
            got.append(await socket.receive_bytes())
        if protocol == V5:
            got.append(await socket.receive_bytes())
        return SUCCESS

    talks(api, talk, protocol)
    with (tmp_path / "data").open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        result = await orchctl("exec", "pod/web", "-i", "-c", "a", "cat")
    assert result.code == 0
    assert b"".join(one[1:] for one in got if one[:1] == b"\x00") == data
    assert (got[-1] == b"\xff\x00") is (protocol == V5)
    assert asked(api)["stdin"] == ["true"] and asked(api)["container"] == ["a"]


async def test_a_refusal_is_told_as_the_server_says_it(orchctl: Orchctl, api: HttpApi) -> None:
    status = {"kind": "Status", "code": 400, "reason": "BadRequest", "message": "it does not run"}
    api.answers["GET", f"{POD}/exec"] = Answer(status, 400)
    result = await orchctl("exec", "web", "--", "ls")
    assert result.code == 1
    assert result.err.startswith("error: it does not run (BadRequest); ")


async def test_a_command_that_cannot_start_is_an_error(orchctl: Orchctl, api: HttpApi) -> None:
    async def talk(socket: web.WebSocketResponse) -> dict[str, Any]:
        return {"status": "Failure", "reason": "InternalError", "message": "no such file"}

    talks(api, talk)
    result = await orchctl("exec", "web", "--", "nope")
    assert (result.code, result.out) == (1, "")
    assert "no such file" in result.err


async def test_a_broken_connection_is_an_error(orchctl: Orchctl, api: HttpApi) -> None:
    async def talk(socket: web.WebSocketResponse) -> None:
        await socket.send_bytes(b"\x01half")

    talks(api, talk)
    result = await orchctl("exec", "web", "--", "cat")
    assert (result.code, result.out) == (1, "half")
    assert "the connection ended before the command: its outcome is unknown" in result.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("exec", "web"), "the following arguments are required: -- COMMAND"),
        (("exec", "deploy/web", "ls"), "deploy/web runs no commands: name a pod"),
    ],
)
async def test_a_wrong_command_line_is_refused(
    orchctl: Orchctl, words: tuple[str, ...], told: str
) -> None:
    result = await orchctl(*words)
    assert result.code == 2 and told in result.err


async def test_without_a_terminal_here_there_is_none_there(
    orchctl: Orchctl, api: HttpApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def talk(_: web.WebSocketResponse) -> dict[str, Any]:
        return SUCCESS

    talks(api, talk)
    with Path(os.devnull).open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        result = await orchctl("exec", "-it", "web", "--", "sh")
    assert result.code == 0
    assert "no terminal is given to it: -t needs -i and a terminal here" in result.err
    assert "tty" not in asked(api)


class Terminal:
    """`orchctl exec -it` in a terminal of its own."""

    def __init__(self, url: str) -> None:
        self.master, self.slave = pty.openpty()
        termios.tcsetwinsize(self.slave, (40, 100))
        self.before = termios.tcgetattr(self.slave)
        self._command = (
            sys.executable, "-m", "orch.ctl.main", "--server", url, "exec", "-it", "web", "--", "sh"
        )  # fmt: skip

    async def start(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *self._command, stdin=self.slave, stdout=self.slave, stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip

    def is_raw(self) -> bool:
        return not termios.tcgetattr(self.slave)[3] & termios.ICANON

    def close(self) -> None:
        os.close(self.master)
        os.close(self.slave)


@pytest.mark.may_block
@pytest.mark.parametrize("end", ["exit", "term", "broken"])
async def test_a_terminal_is_raw_meanwhile_and_then_as_it_was(api: HttpApi, end: str) -> None:
    async def talk(socket: web.WebSocketResponse) -> dict[str, Any] | None:
        sizes.append(json.loads((await socket.receive_bytes())[1:]))
        termios.tcsetwinsize(terminal.slave, (50, 120))
        process.send_signal(signal.SIGWINCH)
        sizes.append(json.loads((await socket.receive_bytes())[1:]))
        raw.append(terminal.is_raw())
        os.write(terminal.master, b"\x03")  # Ctrl-C is the command's
        keys.append(await socket.receive_bytes())
        if end == "term":
            process.send_signal(signal.SIGTERM)
            assert (await socket.receive()).type in (WSMsgType.CLOSE, WSMsgType.CLOSED)
        return exited(3) if end == "exit" else None

    sizes: list[Any] = []
    keys: list[bytes] = []
    raw: list[bool] = []
    terminal = Terminal(api.url)
    talks(api, talk)
    process = await terminal.start()
    async with asyncio.timeout(30):
        _, err = await process.communicate()
    assert process.returncode == {"exit": 3, "term": -signal.SIGTERM, "broken": 1}[end], err
    assert sizes == [{"Width": 100, "Height": 40}, {"Width": 120, "Height": 50}]
    assert raw == [True] and keys == [b"\x00\x03"]
    assert termios.tcgetattr(terminal.slave) == terminal.before
    terminal.close()
