"""A real Prometheus scrapes the agent over TLS with a client certificate."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.harness import LocalCluster, eventually

PATHS = ["/metrics/resource", "/metrics/slis", "/metrics/containerstats", "/metrics"]


@pytest.fixture(scope="module")
def prometheus(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Prometheus that scrapes every page of the agent each second."""
    program = shutil.which("prometheus")
    if not program:
        pytest.skip("Prometheus is not installed and could not be (Debian package prometheus)")
    directory = tmp_path_factory.mktemp("prometheus")
    target = urllib.parse.urlsplit(cluster.info["nodeagent"]).netloc
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [
            {
                "job_name": path,
                "scheme": "https",
                "metrics_path": path,
                "tls_config": {
                    "ca_file": cluster.info["caFile"],
                    "cert_file": cluster.info["monitoringCert"],
                    "key_file": cluster.info["monitoringKey"],
                },
                "static_configs": [{"targets": [target]}],
            }
            for path in PATHS
        ],
    }
    (directory / "prometheus.yml").write_text(json.dumps(config))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                program,
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    yield f"http://127.0.0.1:{port}"
    process.terminate()
    process.wait(20)
    assert "parse" not in (directory / "log").read_text(errors="replace").lower()


def ask(url: str, path: str, **query: str) -> Any:
    with urllib.request.urlopen(
        f"{url}{path}?{urllib.parse.urlencode(query)}", timeout=5
    ) as answer:
        return json.load(answer)["data"]


@pytest.mark.parametrize("path", PATHS)
def test_every_page_is_scraped_without_error(
    cluster: LocalCluster, prometheus: str, path: str
) -> None:
    # the SLI page is filled by the first health probe, as a supervisor would send it
    cluster.kubectl("get", "--raw", cluster.proxy("/healthz"))

    def up() -> bool:
        try:
            targets = ask(prometheus, "/api/v1/targets")["activeTargets"]
        except OSError:
            return False
        target = next((t for t in targets if t["labels"]["job"] == path), None)
        if target is None:
            return False
        assert target["lastError"] == "", target["lastError"]
        return bool(target["health"] == "up")

    eventually(up, within_s=20, what=f"{path} is up")
    (series,) = ask(prometheus, "/api/v1/query", query=f'up{{job="{path}"}}')["result"]
    assert series["value"][1] == "1"


def test_the_pages_hold_what_they_are_scraped_for(cluster: LocalCluster, prometheus: str) -> None:
    def working_set() -> list[Any]:
        query = 'container_memory_working_set_bytes{container="memory",job="/metrics/resource"}'
        found: list[Any] = ask(prometheus, "/api/v1/query", query=query)["result"]
        return found

    (series,) = eventually(working_set, within_s=30, what="the demo pod's memory is scraped")
    assert float(series["value"][1]) > 20 * 1024 * 1024

    def healthcheck() -> list[Any]:
        query = 'orch_healthcheck{name="ping",type="healthz"}'
        found: list[Any] = ask(prometheus, "/api/v1/query", query=query)["result"]
        return found

    (series,) = eventually(healthcheck, within_s=10, what="the health gauge is scraped")
    assert series["value"][1] == "1"
