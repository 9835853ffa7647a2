"""A real Prometheus as a child of the test: its parser and its queries are what operators use.

And VictoriaMetrics, which takes the same configuration, API and queries: Debian's Prometheus is
built without discovery of targets by an API server.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.ports import free_port

Job = dict[str, Any]


class Prometheus:
    """Queries at one address; OSError while it is not up yet."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, path: str, **query: str) -> Any:
        """The `data` of an answer of the HTTP API."""
        url = f"{self.url}{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]

    def query(self, text: str, **more: str) -> list[Any]:
        """The samples of an instant query; none while it is not up yet."""
        try:
            found: list[Any] = self.ask("/api/v1/query", query=text, **more)["result"]
        except urllib.error.URLError:
            return []
        return found

    def value(self, text: str) -> float | None:
        """The one value of a query, None without any."""
        found = self.query(text)
        return float(found[0]["value"][1]) if found else None


@contextmanager
def victoria_metrics(directory: Path, jobs: Sequence[Job]) -> Iterator[Prometheus]:
    """One that scrapes each second and looks for targets as often; it refuses unknown fields."""
    program = shutil.which("victoria-metrics")
    if not program:
        pytest.skip("VictoriaMetrics is not installed (Debian package victoria-metrics)")
    config = {"global": {"scrape_interval": "1s"}, "scrape_configs": list(jobs)}
    (directory / "scrape.yml").write_text(json.dumps(config))
    port = free_port()
    command = [
        program, f"-promscrape.config={directory / 'scrape.yml'}", "-promscrape.config.strictParse",
        f"-storageDataPath={directory / 'data'}", f"-httpListenAddr=127.0.0.1:{port}",
        "-promscrape.kubernetesSDCheckInterval=1s", "-search.latencyOffset=0s",
        "-search.disableCache", "-memory.allowedBytes=64MB", "-retentionPeriod=1d",
    ]  # fmt: skip
    with (
        (directory / "log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as process,
    ):
        try:
            yield Prometheus(f"http://127.0.0.1:{port}")
        finally:
            process.terminate()
            process.wait(30)


@contextmanager
def prometheus(directory: Path, jobs: Sequence[Job]) -> Iterator[Prometheus]:
    """One that scrapes each second; a page it cannot parse fails the test at the end."""
    program = shutil.which("prometheus")
    if not program:
        pytest.skip("Prometheus is not installed and could not be (Debian package prometheus)")
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": list(jobs),
    }
    (directory / "prometheus.yml").write_text(json.dumps(config))
    port = free_port()
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                program,
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'data'}",
                "--enable-feature=exemplar-storage",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        yield Prometheus(f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait(30)
    assert "parse" not in (directory / "log").read_text(errors="replace").lower()
