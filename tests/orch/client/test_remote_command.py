"""How a command's channels are read, written, and how it ended; with a server in test_exec.py."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from orch.client.answers import TransportError
from orch.client.remote_command import STDERR, STDOUT, RemoteCommand
from orch.wire.errors import ApiError


class Message(NamedTuple):
    data: object


class Socket:
    """Says what it is given, and keeps what it is sent."""

    def __init__(self, *messages: object, protocol: str = "v5.channel.k8s.io") -> None:
        self.protocol = protocol
        self.sent: list[bytes] = []
        self._messages = messages

    async def __aiter__(self) -> Any:
        for message in self._messages:
            yield Message(message)

    async def send_bytes(self, data: bytes) -> None:
        self.sent.append(data)


def ending(**status: Any) -> bytes:
    return b"\x03" + json.dumps(status).encode()


async def run(*messages: object) -> tuple[RemoteCommand, list[tuple[int, bytes]]]:
    command = RemoteCommand(Socket(*messages))  # type: ignore[arg-type]
    return command, [piece async for piece in command.output()]


async def test_outputs_are_told_apart_and_what_is_neither_is_dropped() -> None:
    command, pieces = await run(
        b"\x01", b"\x01a", b"\x02b", b"", b"\x09c", "text", ending(status="Success")
    )
    assert pieces == [(STDOUT, b""), (STDOUT, b"a"), (STDERR, b"b")]
    assert command.exit_code() == 0


@pytest.mark.parametrize(
    ("causes", "code"),
    [
        ([{"reason": "ExitCode", "message": "7"}], 7),
        ([{"reason": "Other", "message": "3"}, {"reason": "ExitCode", "message": "255"}], 255),
        ([{"reason": "ExitCode", "message": "-1"}], 1),
        ([{"reason": "ExitCode", "message": "0"}], 1),
        ([{"reason": "ExitCode", "message": "256"}], 1),  # which a process ends with as 0
        ([{"reason": "ExitCode", "message": "9" * 5000}], 1),
        ([{"reason": "ExitCode", "message": 7}, 7, None], 1),
        ({"reason": "ExitCode"}, 1),
        ([], 1),
        (None, 1),
    ],
)
async def test_the_exit_code_is_in_the_status(causes: Any, code: int) -> None:
    details = {"causes": causes}
    end = ending(status="Failure", reason="NonZeroExitCode", details=details)
    assert (await run(end))[0].exit_code() == code


async def test_a_command_that_did_not_run_is_an_error() -> None:
    command, _ = await run(ending(status="Failure", reason="InternalError", message="no file"))
    with pytest.raises(ApiError, match="no file"):
        command.exit_code()


@pytest.mark.parametrize("details", [[1], "x", {"causes": [1]}, {"causes": 5}])
async def test_an_end_that_is_told_in_wrong_types_is_an_error(details: Any) -> None:
    """A node tells it. Each was a defect of the client, with its trace."""
    told = ending(status=[], reason={}, message=7, code="x", details=details)
    command, _ = await run(told)
    with pytest.raises(ApiError, match="the server answered 500"):
        command.exit_code()


async def test_an_end_that_is_not_told_is_no_success() -> None:
    command, _ = await run(b"\x01half")
    with pytest.raises(TransportError, match="its outcome is unknown"):
        command.exit_code()
    with pytest.raises(TransportError, match="not told in JSON"):
        await run(b"\x03oops")


@pytest.mark.parametrize(
    ("protocol", "end"), [("v5.channel.k8s.io", [b"\xff\x00"]), ("v4.channel.k8s.io", [])]
)
async def test_input_its_end_and_sizes_are_sent(protocol: str, end: list[bytes]) -> None:
    socket = Socket(protocol=protocol)
    command = RemoteCommand(socket)  # type: ignore[arg-type]
    await command.send_input(b"x")
    await command.send_input(b"")
    await command.resize(80, 24)
    assert socket.sent == [b"\x00x", *end, b'\x04{"Width":80,"Height":24}']
