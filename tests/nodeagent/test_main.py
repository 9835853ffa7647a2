"""The agent as a process: in which order it starts, what stops it early, and how it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nodeagent import main
from nodeagent.stats.cgroup.layout import detect_layout
from orch.client.kubeconfig import ClientConfig, write_kubeconfig
from orch.component.process import files as process_files
from orch.component.process.system import describe_process
from tests import preloaded
from tests.conftest import Pki

pytestmark = [pytest.mark.slow, pytest.mark.seconds(10)]

PROGRAM = "nodeagent.main"
PATIENCE_S = 60  # for a busy machine; an idle one needs a second
Process = subprocess.Popen[bytes] | preloaded.Copy
HEAD = "apiVersion: nodeagent.config.orch.io/v1beta1\nkind: NodeAgentConfiguration\n"


class Place:
    """Where one agent keeps everything, and the flags that say so."""

    def __init__(self, directory: Path, free_port: Callable[[], int]) -> None:
        self.root = directory / "root"
        self.logs = directory / "logs"
        self.lock = directory / "agent.lock"
        self.port = free_port()
        self.healthz_port = free_port()
        self.read_only_port = free_port()
        self.flags = (
            f"--root-dir={self.root}",
            f"--pod-logs-dir={self.logs}",
            f"--lock-file={self.lock}",
            "--hostname-override=node-1",
            "--address=127.0.0.1",
            f"--port={self.port}",
            f"--healthz-port={self.healthz_port}",
            "--container-runtime-endpoint=",
        )

    def refusal(self, *more: str) -> str:
        """The one line of an agent that does not start."""
        done = preloaded.run(PROGRAM, *self.flags, *more, timeout_s=PATIENCE_S)
        assert done.returncode == 1, done.stderr
        assert done.stdout == ""
        (line,) = done.stderr.splitlines()
        return line


@pytest.fixture
def place(tmp_path: Path, free_port: Callable[[], int]) -> Place:
    return Place(tmp_path, free_port)


# ---- before anything is started


def test_every_mistake_of_the_configuration_is_a_line(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "agent.yaml"
    config.write_text(HEAD + "prot: 10250\nmaxPods: many\nnodeStatusUpdateFrequency: soon\n")
    assert main.main([*place.flags, f"--config={config}", "--log-level=loud"]) == 1
    printed = capsys.readouterr()
    lines = printed.err.splitlines()
    assert printed.out == ""
    assert len(lines) == 4
    for expected in (
        f"nodeagent: error: {config}:3: prot: ",
        f"nodeagent: error: {config}:4: maxPods: ",
        f"nodeagent: error: {config}:5: nodeStatusUpdateFrequency: ",
        "nodeagent: error: --log-level: ",
    ):
        assert any(line.startswith(expected) for line in lines), (expected, lines)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["agent.yaml"]


def test_an_unknown_feature_is_a_line(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main([*place.flags, "--feature-gates=NodeAgentPSY=true"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("nodeagent: error: ")
    assert "NodeAgentPSY" in line and "NodeAgentPSI" in line
    assert not place.lock.exists()


def test_wrong_usage_ends_with_2(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main.main([*place.flags, "--no-such-flag"])
    assert caught.value.code == 2
    assert "--no-such-flag" in capsys.readouterr().err


def test_one_agent_per_lock_file_and_the_lock_comes_first(place: Place) -> None:
    held = process_files.acquire(str(place.lock), holder="node agent")
    try:
        line = place.refusal("--tls-cert-file=/absent.crt", "--tls-private-key-file=/absent.key")
    finally:
        os.close(held)
    assert line == (
        f"nodeagent: error: another node agent ({describe_process(os.getpid())}) holds the lock "
        f"file {place.lock}; stop it, or give this one another --lock-file"
    )
    assert not place.root.exists()


def test_a_lock_file_that_cannot_be_created_is_named(place: Place) -> None:
    line = place.refusal("--lock-file=/proc/none/agent.lock")
    assert line.startswith("nodeagent: error: cannot use the lock file /proc/none/agent.lock: ")


def test_a_root_directory_that_cannot_be_made_is_named(place: Place) -> None:
    line = place.refusal("--root-dir=/proc/none")
    assert line.startswith("nodeagent: error: cannot make the directory /proc/none: ")


def test_without_its_certificate_it_makes_no_directories(place: Place) -> None:
    line = place.refusal("--tls-cert-file=/absent.crt", "--tls-private-key-file=/absent.key")
    assert line.startswith("nodeagent: error: ")
    assert "/absent.crt" in line
    assert not place.root.exists() and not place.logs.exists()


def test_a_taken_port_is_named(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = place.refusal(f"--port={port}")
    expected = f"nodeagent: error: nodeagent: cannot listen on 127.0.0.1:{port}: "
    assert line.startswith(expected)


# ---- running


class Manager:
    """systemd's end of NOTIFY_SOCKET."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)
        self._socket.settimeout(PATIENCE_S)

    def next(self) -> str:
        """Wait for the next message."""
        return self._socket.recv(4096).decode()

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(tmp_path / "notify")
    yield manager
    manager.close()


@contextmanager
def running(
    flags: tuple[str, ...], log: Path, *, anew: bool = False, **environment: str
) -> Iterator[Process]:
    """An agent, of whom nobody has seen anything before if it is started `anew`."""
    env = {**os.environ, **environment}
    process: Process
    with log.open("wb") as sink:
        if anew:
            command = [sys.executable, "-m", PROGRAM, *flags]
            process = subprocess.Popen(command, env=env, stdout=sink, stderr=sink)
        else:
            process = preloaded.start(PROGRAM, *flags, env=env, stdout=sink, stderr=sink)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def test_it_tells_systemd_when_it_serves_that_it_lives_and_when_it_stops(
    place: Place, manager: Manager, tmp_path: Path
) -> None:
    told = {"NOTIFY_SOCKET": manager.path, "WATCHDOG_USEC": "4000000"}
    log = tmp_path / "agent.log"
    with running(place.flags, log, anew=True, **told) as process:
        assert manager.next() == "READY=1\nSTATUS=running"
        # At that moment both ports answer.
        with urllib.request.urlopen(
            f"http://127.0.0.1:{place.healthz_port}/healthz", timeout=PATIENCE_S
        ) as response:
            assert response.read() == b"ok"
        socket.create_connection(("127.0.0.1", place.port), PATIENCE_S).close()
        assert [manager.next(), manager.next()] == ["WATCHDOG=1", "WATCHDOG=1"]

        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0, log.read_text()
    while (message := manager.next()) == "WATCHDOG=1":
        pass  # one more may have been under way
    assert message == "STOPPING=1"
    text = log.read_text()
    assert "node agent v" in text and "for node node-1" in text
    assert "stopped: received SIGTERM" in text
    assert "Traceback" not in text and "ERROR" not in text
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", place.port), PATIENCE_S)


def test_health_is_measured_though_nobody_asks(
    place: Place, manager: Manager, tmp_path: Path
) -> None:
    command = (*place.flags, f"--read-only-port={place.read_only_port}")
    url = f"http://127.0.0.1:{place.read_only_port}/metrics/slis"
    with running(command, tmp_path / "log", NOTIFY_SOCKET=manager.path):
        assert manager.next().startswith("READY=1")
        deadline_s, page = time.monotonic() + PATIENCE_S, ""
        while 'orch_healthcheck{name="sampling",type="healthz"} 1' not in page:
            assert time.monotonic() < deadline_s, page
            time.sleep(0.1)
            with urllib.request.urlopen(url, timeout=PATIENCE_S) as response:
                page = response.read().decode()
        with urllib.request.urlopen(url.removesuffix("/slis"), timeout=PATIENCE_S) as response:
            metrics = response.read().decode()
    assert 'orch_healthcheck{name="runtime",type="readyz"}' in page
    assert 'orch_certificate_expiration_timestamp_seconds{use="serving"} ' in metrics


def test_keep_alives_begin_though_nobody_it_speaks_to_answers(
    place: Place, manager: Manager, tmp_path: Path
) -> None:
    """API server and runtime take its connections and stay silent."""
    kubeconfig, endpoint = tmp_path / "kubeconfig", tmp_path / "runtime.sock"
    told = {"NOTIFY_SOCKET": manager.path, "WATCHDOG_USEC": "4000000"}
    with (
        socket.create_server(("127.0.0.1", 0)) as api,
        socket.create_server(str(endpoint), family=socket.AF_UNIX),
    ):
        server = f"http://127.0.0.1:{api.getsockname()[1]}"
        write_kubeconfig(str(kubeconfig), ClientConfig(server=server))
        flags = (
            f"--kubeconfig={kubeconfig}",
            f"--container-runtime-endpoint=unix://{endpoint}",
        )
        with running((*place.flags, *flags), tmp_path / "log", **told) as process:
            assert manager.next() == "READY=1\nSTATUS=running"
            assert [manager.next() for _ in range(3)] == ["WATCHDOG=1"] * 3
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0


def test_its_directories_are_private_and_its_lock_ends_with_it(
    place: Place, manager: Manager, tmp_path: Path
) -> None:
    with running(place.flags, tmp_path / "log", NOTIFY_SOCKET=manager.path) as process:
        manager.next()
        directories = (place.root, place.root / "pki", place.root / "checkpoints", place.logs)
        umask = os.umask(0)
        os.umask(umask)
        modes = [path.stat().st_mode & 0o777 for path in directories]
        assert modes == [wanted & ~umask for wanted in (0o750, 0o700, 0o700, 0o755)]
        has_v1 = detect_layout("/sys/fs/cgroup").version in ("v1", "hybrid")
        assert ("cgroup v1 is in maintenance" in (tmp_path / "log").read_text()) is has_v1
        with pytest.raises(process_files.LockHeldError, match=f"pid {process.pid}"):
            process_files.acquire(str(place.lock), holder="node agent")
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
    os.close(process_files.acquire(str(place.lock), holder="node agent"))


def test_a_watchdog_that_cannot_be_fed_is_refused(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "500000")
    assert "WatchdogSec of 0.5 s" in place.refusal()
    assert not place.root.exists()


def test_a_fresh_agent_is_small(place: Place, manager: Manager, tmp_path: Path, pki: Pki) -> None:
    """The limit of `python -m tools.bench idle`, which watches a whole cluster for minutes.

    Like there, the certificate is given: making one takes 16 MiB for a moment.
    """
    pair = pki.server()
    files = (f"--tls-cert-file={pair.cert_file}", f"--tls-private-key-file={pair.key_file}")
    flags = (*place.flags, *files)
    told = {"NOTIFY_SOCKET": manager.path}
    with running(flags, tmp_path / "log", anew=True, **told) as process:
        assert manager.next().startswith("READY=1")
        with urllib.request.urlopen(
            f"http://127.0.0.1:{place.healthz_port}/healthz", timeout=PATIENCE_S
        ) as response:
            assert response.read() == b"ok"
        status = Path(f"/proc/{process.pid}/status").read_text()
        peak_kib = int(status.partition("VmHWM:")[2].split()[0])
        assert peak_kib <= 80 * 1024, peak_kib
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0


def test_sighup_reloads_and_tells_systemd_also_when_a_file_is_broken(
    place: Place, manager: Manager, tmp_path: Path
) -> None:
    config, log = tmp_path / "agent.yaml", tmp_path / "agent.log"
    config.write_text(HEAD)
    command = (*place.flags, f"--config={config}")
    with running(command, log, NOTIFY_SOCKET=manager.path) as process:
        assert manager.next() == "READY=1\nSTATUS=running"
        config.write_text(HEAD + "maxPods: 9\nlogging:\n  level: debug\n")
        process.send_signal(signal.SIGHUP)
        assert manager.next().startswith("RELOADING=1\nMONOTONIC_USEC=")
        assert manager.next() == "READY=1\nSTATUS=running"
        config.write_text(HEAD + "maxPods: many\n")
        process.send_signal(signal.SIGHUP)
        assert manager.next().startswith("RELOADING=1\n")
        assert manager.next() == ("READY=1\nSTATUS=running; the last reload failed, see the log")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0, log.read_text()
    text = log.read_text()
    assert "logging.level changed" in text
    assert "these need a restart to change: maxPods" in text
    assert f"the configuration is not reloaded: {config}:3: maxPods: " in text


def test_who_opens_the_lock_file_is_given_way_and_gets_the_lock(
    place: Place, manager: Manager, tmp_path: Path
) -> None:
    """A second agent takes over from the first, both started with --exit-on-lock-contention."""
    command = (*place.flags, "--exit-on-lock-contention")
    first_log, second_log = tmp_path / "first.log", tmp_path / "second.log"
    with running(command, first_log, NOTIFY_SOCKET=manager.path) as first:
        assert manager.next().startswith("READY=1")
        with running(command, second_log, NOTIFY_SOCKET=manager.path) as second:
            assert first.wait(PATIENCE_S) == 0, first_log.read_text()
            assert manager.next() == "STOPPING=1"
            assert manager.next().startswith("READY=1"), second_log.read_text()
            second.send_signal(signal.SIGTERM)
            assert second.wait(PATIENCE_S) == 0
    assert f"another process wants the lock file {place.lock}" in first_log.read_text()


def test_to_give_way_needs_a_lock_file(place: Place) -> None:
    line = place.refusal("--lock-file=", "--exit-on-lock-contention")
    assert line.startswith(
        "nodeagent: error: cannot exit on lock file contention: no lock file specified"
    )
