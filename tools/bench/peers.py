"""The sampler's competitors: a C program that does the same reads, and other exporters."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tools.bench import processes
from tools.bench.client import percentile

START_WITHIN_S = 60.0
SOURCE = Path(__file__).with_name("pread.c")


class CReader:
    """The compiled program, given the paths to read."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def passes(self, mode: str, passes: int, *, pause_ms: int = 0) -> list[float]:
        """CPU microseconds of each pass; mode is `kept` or `open`."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(f"{mode} {passes} {pause_ms}\n")
        self._process.stdin.flush()
        return [float(word) for word in self._process.stdout.readline().split()]


@contextmanager
def c_reader(paths: Sequence[str]) -> Iterator[CReader | None]:
    """Compile and start it; None without a compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        program = str(Path(directory, "pread"))
        subprocess.run([compiler, "-O2", "-o", program, str(SOURCE)], check=True)
        process = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdin and process.stdout
        process.stdin.write("".join(f"{path}\n" for path in paths) + "\n")
        process.stdin.flush()
        try:
            yield CReader(process)
        finally:
            process.stdin.close()
            process.wait(10)
            process.stdout.close()


@contextmanager
def running(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """The process of a command; terminated at the end."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(20)


@dataclass(frozen=True, slots=True)
class Scraped:
    """The cost of scraping another exporter; CPU is that of its process."""

    series: int
    body_bytes: int
    cpu_ms: float
    p50_ms: float
    p99_ms: float
    resident_mib: float

    @property
    def usec_per_series(self) -> float:
        return self.cpu_ms * 1e3 / max(self.series, 1)

    def __str__(self) -> str:
        return (
            f"{self.series} series, {self.body_bytes / 1e3:.0f} kB, {self.cpu_ms:.1f} ms CPU "
            f"({self.usec_per_series:.2f} us per series), p50 {self.p50_ms:.1f} ms, "
            f"p99 {self.p99_ms:.1f} ms, resident {self.resident_mib:.0f} MiB"
        )


def node_exporter(scrapes: int = 100) -> Scraped | None:
    """Debian's node exporter with its default collectors; None where it is not installed."""
    program = shutil.which("prometheus-node-exporter")
    if program is None:
        return None
    port = free_port()
    with running([program, f"--web.listen-address=127.0.0.1:{port}"]) as process:
        url = f"http://127.0.0.1:{port}/metrics"
        wait_for(process, url)
        return scraped(process.pid, url, scrapes)


def scraped(pid: int, url: str, scrapes: int) -> Scraped:
    """Scrape a running exporter, one request after the other."""
    before_s = processes.cpu_s(pid)
    walls, body = [], b""
    for _ in range(scrapes):
        begun_s = time.perf_counter()
        body = fetched(url)
        walls.append((time.perf_counter() - begun_s) * 1e3)
    cpu_s = processes.cpu_s(pid) - before_s
    series = sum(1 for line in body.splitlines() if line and not line.startswith(b"#"))
    return Scraped(
        series,
        len(body),
        cpu_s / scrapes * 1e3,
        percentile(walls, 500),
        percentile(walls, 990),
        processes.resident_mib(pid),
    )


def wait_for(process: subprocess.Popen[bytes], url: str) -> None:
    """Wait until it answers; OSError when it exits before, or takes more than a minute."""
    until_s = time.monotonic() + START_WITHIN_S
    while process.poll() is None and time.monotonic() < until_s:
        try:
            fetched(url)
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise OSError(f"{url} does not answer; exit code of its program: {process.returncode}")


def fetched(url: str) -> bytes:
    """The body; OSError without an answer of 200."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        body: bytes = answer.read()
    return body


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
