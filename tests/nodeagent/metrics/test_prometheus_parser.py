"""The real Prometheus reads from our pages what was written, series by series.

Two thirds of the label values are what breaks naive writers: quotes, backslashes, newlines, UTF-8.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from nodeagent.metrics.containerstats import render_container_metrics
from nodeagent.metrics.resource import render_resource_metrics
from nodeagent.stats.host import machine
from nodeagent.stats.reading import HostReader
from nodeagent.stats.sources import Background
from orch.component.http import negotiation
from tests.e2e.harness import eventually
from tests.fakes import hosts
from tests.fakes.hosts import POD, Clock
from tests.fakes.prometheus import Prometheus, prometheus

pytestmark = pytest.mark.real

NAMES = ["web-0", 'quo"ted', "back\\slash\\n", "new\nline", "größe-日本-🙂", "{brace,}='x'", " "]
PATHS = ("/containers", "/resource", "/containers-open", "/resource-open")

Series = dict[tuple[tuple[str, str], ...], float]


@pytest.fixture(scope="module")
def pages() -> dict[str, bytes]:
    """The pages of a node whose pods and images have those names; read just now."""
    clock = Clock(time.time_ns())
    sources = hosts.sources(hosts.TREES / "v2", wall_ns=clock)
    reader = HostReader(sources, Background(sources))
    pods = [
        dataclasses.replace(
            POD,
            name=name,
            uid=f"u{number}",
            containers=(dataclasses.replace(POD.containers[0], name=name, image=f"{name}:1"),),
        )
        for number, name in enumerate(NAMES)
    ]
    sample = reader.read(pods)
    reader.close()
    root = hosts.TREES / "hybrid"
    facts = machine.read_host_facts(
        str(root / "proc"), str(root / "sys"), str(root / "etc"), hardware=lambda: hosts.HARDWARE
    )
    return {
        "/containers": render_container_metrics(sample, host=facts),
        "/resource": render_resource_metrics(sample),
        "/containers-open": render_container_metrics(sample, host=facts, openmetrics=True),
        "/resource-open": render_resource_metrics(sample, openmetrics=True),
    }


@pytest.fixture(scope="module")
def scraper(
    pages: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_open = self.path.endswith("-open")
            kind = negotiation.OPENMETRICS_TYPE if is_open else negotiation.TEXT_TYPE
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(pages[self.path])))
            self.end_headers()
            self.wfile.write(pages[self.path])

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    jobs = [
        {
            "job_name": path,
            "metrics_path": path,
            "honor_labels": True,
            "static_configs": [{"targets": [f"127.0.0.1:{server.server_port}"]}],
        }
        for path in PATHS
    ]
    directory: Path = tmp_path_factory.mktemp("prometheus")
    with prometheus(directory, jobs) as running:
        yield running
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("path", PATHS)
def test_prometheus_reads_every_series_as_it_was_written(
    pages: dict[str, bytes], scraper: Prometheus, path: str
) -> None:
    is_openmetrics = path.endswith("-open")
    plain = pages[path.removesuffix("-open")].decode()
    written: Series = {}
    for family in text_string_to_metric_families(plain):
        for one in family.samples:
            labels = {"__name__": one.name, **{k: v for k, v in one.labels.items() if v}}
            if not is_openmetrics and f"\n{one.name}" not in plain:
                labels["__name__"] = one.name.removesuffix("_total")  # which the parser added
            written[tuple(sorted(labels.items()))] = one.value
    assert len(written) > 20

    def read() -> Series:
        found = scraper.query(f'{{job="{path}",__name__!~"up|scrape_(duration|samples|series).*"}}')
        return {
            tuple(sorted((k, v) for k, v in one["metric"].items() if k not in ("job", "instance"))):
            float(one["value"][1])
            for one in found
        }  # fmt: skip

    eventually(lambda: len(read()) == len(written), within_s=60, what=f"{path} is scraped")
    seen = read()
    assert seen.keys() - written.keys() == written.keys() - seen.keys() == set()
    assert seen == pytest.approx(written)
