"""What the sampler is measured beside: a C program that does the same reads, and other agents."""

from __future__ import annotations

import os
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

SOURCE = Path(__file__).with_name("pread.c")


class CReader:
    """The compiled program, fed with the paths it has to read."""

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
    """None without a compiler."""
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


def node_exporter_row(scrapes: int = 10) -> str:
    """One line about Debian's node exporter, with its default collectors."""
    program = shutil.which("prometheus-node-exporter")
    if program is None:
        return "node exporter: not installed (apt-get install prometheus-node-exporter)"
    port = _free_port()
    flag = f"--web.listen-address=127.0.0.1:{port}"
    return _scraped("node exporter", [program, flag], f"http://127.0.0.1:{port}/metrics", scrapes)


def cadvisor_row(cgroups: int, scrapes: int = 5) -> str:
    """One line about cAdvisor on the same cgroups, when `CADVISOR` names its binary."""
    program = os.environ.get("CADVISOR", "")
    if not program:
        return "cAdvisor: not given (CADVISOR=path)"
    port = _free_port()
    command = [program, f"--port={port}", "--listen_ip=127.0.0.1", "--housekeeping_interval=1h"]
    command += ["--allow_dynamic_housekeeping=false", "--docker_only=false"]
    url = f"http://127.0.0.1:{port}/metrics"
    return _scraped(f"cAdvisor, {cgroups} cgroups", command, url, scrapes)


def _scraped(name: str, command: list[str], url: str, scrapes: int) -> str:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        size = _wait_for(url)
        before = sum(psutil.Process(process.pid).cpu_times()[:2])
        walls = []
        for _ in range(scrapes):
            begun = time.perf_counter()
            with urllib.request.urlopen(url, timeout=30) as answer:
                body = answer.read()
            walls.append(time.perf_counter() - begun)
        cpu = (sum(psutil.Process(process.pid).cpu_times()[:2]) - before) / scrapes
        resident = psutil.Process(process.pid).memory_info().rss / 2**20
    except OSError as error:
        return f"{name}: cannot be scraped: {error}"
    finally:
        process.terminate()
        process.wait(10)
    series = sum(1 for line in body.splitlines() if line and not line.startswith(b"#"))
    return (
        f"{name}: {series} series, {size} bytes, {cpu * 1e3:.1f} ms CPU a scrape "
        f"({cpu / max(series, 1) * 1e6:.2f} us per series), "
        f"median {statistics.median(walls) * 1e3:.1f} ms, resident {resident:.0f} MiB"
    )


def _wait_for(url: str) -> int:
    for _ in range(100):
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return len(answer.read())
        except OSError:
            time.sleep(0.1)
    raise OSError(f"{url} does not answer")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
