import logging
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orch.component.process import notify
from orch.component.process.daemon import SetupError
from orch.component.process.notify import Notifier


@pytest.fixture(params=["path", "abstract"])
def manager(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[socket.socket]:
    """The service manager's end of NOTIFY_SOCKET."""
    shown = str(tmp_path / "notify") if request.param == "path" else f"@notify-{tmp_path.name}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(shown.replace("@", "\0"))
        server.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", shown)
        yield server


def received(manager: socket.socket) -> str:
    return manager.recv(4096).decode()


def test_messages_are_those_of_the_protocol(manager: socket.socket) -> None:
    notifier = Notifier.from_environment()
    assert notifier.enabled
    notifier.ready()
    assert received(manager) == "READY=1"
    notifier.ready("serving 3 pods")
    assert received(manager) == "READY=1\nSTATUS=serving 3 pods"
    notifier.watchdog()
    assert received(manager) == "WATCHDOG=1"
    notifier.stopping()
    assert received(manager) == "STOPPING=1"


def test_a_status_is_one_line_of_utf8(manager: socket.socket) -> None:
    Notifier.from_environment().status("läuft für uns\nREADY=1")
    assert received(manager) == "STATUS=läuft für uns READY=1"


def test_a_reload_carries_the_monotonic_time(manager: socket.socket) -> None:
    Notifier.from_environment().reloading()
    match = re.fullmatch(r"RELOADING=1\nMONOTONIC_USEC=(\d+)", received(manager))
    assert match is not None
    assert abs(int(match[1]) / 1e6 - time.monotonic()) < 60


def test_without_a_socket_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notifier = Notifier.from_environment()
    assert not notifier.enabled
    notifier.ready()
    notifier.watchdog()


def test_a_manager_that_does_not_listen_is_logged_once_and_retried(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    socket_file = tmp_path / "notify"
    notifier = Notifier(str(socket_file))
    notifier.watchdog()
    notifier.watchdog()
    assert caplog.messages == [
        f"cannot send WATCHDOG=1 to systemd at NOTIFY_SOCKET {socket_file}: "
        "No such file or directory"
    ]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(socket_file))
        notifier.watchdog()
        assert received(server) == "WATCHDOG=1"
    notifier.stopping()
    assert caplog.messages[1:] == [
        f"cannot send STOPPING=1 to systemd at NOTIFY_SOCKET {socket_file}: Connection refused"
    ]


def test_a_full_queue_is_logged_and_never_waited_for(
    manager: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    notifier = Notifier.from_environment()
    for _ in range(10_000):
        notifier.watchdog()
    assert len(caplog.messages) == 1
    assert "temporarily unavailable" in caplog.text


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        # the reference's table, but for the second itself, which spec.md supports
        ({}, None),
        ({"WATCHDOG_USEC": ""}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "4000000"}, 2.0),
        ({"WATCHDOG_USEC": "1000000"}, 0.5),
        ({"WATCHDOG_USEC": "15000000", "WATCHDOG_PID": "17"}, 7.5),
        ({"WATCHDOG_USEC": "15000000", "WATCHDOG_PID": "18"}, None),
        ({"WATCHDOG_USEC": "1", "WATCHDOG_PID": "18"}, None),
    ],
)
def test_the_keep_alive_interval_is_half_of_the_watchdogs(
    environ: dict[str, str], expected: float | None
) -> None:
    assert notify.watchdog_interval_s(environ, 17) == expected


@pytest.mark.parametrize(
    ("environ", "text"),
    [
        ({"WATCHDOG_USEC": "999999"}, "WatchdogSec of .* s .* too short: set it to at least 1 s"),
        ({"WATCHDOG_USEC": "500"}, "is too short"),
        ({"WATCHDOG_USEC": "-1"}, "WATCHDOG_USEC='-1' in the environment is not a whole number"),
        ({"WATCHDOG_USEC": "15s"}, "WATCHDOG_USEC='15s'"),
        ({"WATCHDOG_USEC": "²"}, "not a whole number"),
        ({"WATCHDOG_USEC": "15000000", "WATCHDOG_PID": "me"}, "WATCHDOG_PID='me'"),
    ],
)
def test_a_watchdog_that_cannot_work_is_refused(environ: dict[str, str], text: str) -> None:
    with pytest.raises(SetupError, match=text):
        notify.watchdog_interval_s(environ, 17)


def test_more_than_ten_minutes_works_and_warns(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert notify.watchdog_interval_s({"WATCHDOG_USEC": "600000000"}, 17) == 300
        assert caplog.messages == []
        assert notify.watchdog_interval_s({"WATCHDOG_USEC": "601000000"}, 17) == 300.5
    assert caplog.messages == ["WatchdogSec of 601 s is above 10 minutes and is discouraged"]
