"""A real etcd for tests: its own process, data directory and ports, on loopback only."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fakes.ports import free_port

_MEMORY = Path("/dev/shm")  # no test needs what it wrote to outlive the machine


@dataclass
class EtcdServer:
    """`stop` keeps the data, `start` goes on with it at the same address."""

    directory: Path
    port: int
    peer_port: int
    metrics_port: int
    arguments: tuple[str, ...] = ()
    scheme: str = "http"
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def start(self) -> None:
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    "etcd", "--name=test", f"--data-dir={self.directory / 'data'}",
                    f"--listen-client-urls={self.url}", f"--advertise-client-urls={self.url}",
                    f"--listen-peer-urls=http://127.0.0.1:{self.peer_port}",
                    f"--initial-advertise-peer-urls=http://127.0.0.1:{self.peer_port}",
                    f"--initial-cluster=test=http://127.0.0.1:{self.peer_port}",
                    f"--listen-metrics-urls=http://127.0.0.1:{self.metrics_port}",
                    "--grpc-keepalive-min-time=500ms", "--heartbeat-interval=50",
                    "--election-timeout=500", *self.arguments,
                ],
                stdout=log, stderr=log,
            )  # fmt: skip
        deadline = time.monotonic() + 30
        while not self._is_healthy():
            assert self.process.poll() is None, (self.directory / "log").read_text()
            assert time.monotonic() < deadline, (self.directory / "log").read_text()
            time.sleep(0.02)

    def _is_healthy(self) -> bool:
        try:
            url = f"http://127.0.0.1:{self.metrics_port}/health"
            with urllib.request.urlopen(url, timeout=1) as answer:
                return b'"true"' in answer.read()
        except OSError:
            return False

    def stop(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait()

    @contextmanager
    def paused(self) -> Iterator[None]:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)  # a busy machine takes a while
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)


@contextmanager
def running_etcd(
    *arguments: str, scheme: str = "http", on_disk: bool = False
) -> Iterator[EtcdServer]:
    """`on_disk`: with a disk to sync to, as it is measured."""
    if shutil.which("etcd") is None:
        pytest.skip("needs etcd (Debian package etcd-server)")
    parent = str(_MEMORY) if _MEMORY.is_dir() and not on_disk else None
    with tempfile.TemporaryDirectory(prefix="etcd-", dir=parent) as name:
        server = EtcdServer(Path(name), free_port(), free_port(), free_port(), arguments, scheme)
        server.start()
        try:
            yield server
        finally:
            server.stop()
