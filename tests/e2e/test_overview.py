"""The overview page of a real node, through the API server, as an operator opens it."""

from __future__ import annotations

import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest_runtime import RealRuntime
from tests.e2e.conftest import DEMO
from tests.e2e.harness import LocalCluster, eventually, local_cluster
from tests.fakes.browser import browser

DROP_IN = (
    "apiVersion: nodeagent.config.orch.io/v1beta1\nkind: NodeAgentConfiguration\n"
    "overviewPage: true\n"
)

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, real_runtime: RealRuntime
) -> Iterator[LocalCluster]:
    """A cluster with the demo pod, whose agent serves the page."""
    run_dir = tmp_path_factory.mktemp("cluster") / "run"
    for name, text in (
        ("manifests/demo.yaml", DEMO.read_text()),
        ("nodeagent.conf.d/50-page.conf", DROP_IN),
    ):
        (run_dir / name).parent.mkdir(parents=True, exist_ok=True)
        (run_dir / name).write_text(text)
    address = f"--host-address={real_runtime.host_address}"
    with local_cluster(run_dir, address, runtime=real_runtime.endpoint) as running:
        yield running


@pytest.fixture(scope="module")
def proxy(cluster: LocalCluster) -> Iterator[str]:
    """The address of a `kubectl proxy`, which authenticates what a browser asks."""
    kubectl = shutil.which("kubectl")
    assert kubectl, "kubectl is installed by the set-up of make test"
    command = [kubectl, f"--kubeconfig={cluster.info['kubeconfig']}", "proxy", "--port=0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield f"http://{process.stdout.readline().split()[-1]}"
        process.terminate()


async def test_a_browser_shows_the_node_with_its_pods_and_pressure(
    cluster: LocalCluster, proxy: str, tmp_path: Path
) -> None:
    page = cluster.proxy("/overview")

    def is_measured() -> bool:
        text = cluster.request(page)
        is_ready = "3/3 ready" in text and "runtime ok" in text  # checks are made each 5 s
        return is_ready and re.search(r"cpu localhost/\S+ running", text) is not None

    eventually(is_measured, within_s=120, what="the demo pod runs, and checks say so")
    async with browser(tmp_path / "profile") as tab:
        await tab.open(f"{proxy}{page}?refresh=0", width=360, height=740)
        assert await tab.value("document.documentElement.scrollWidth") <= 360
        assert await tab.value("document.querySelector('h1').textContent") == cluster.node
        shown = await tab.value("document.body.innerText")
        for expected in ("CPU in use", f"default/demo-{cluster.node}", "Checkpoints", "runtime ok"):
            assert expected in shown
        styled = "getComputedStyle(document.querySelector('.tiles')).display"
        assert await tab.value(styled) == "grid", "the policy came through both proxies"


def test_the_policy_comes_through_the_api_server(cluster: LocalCluster, proxy: str) -> None:
    with urllib.request.urlopen(f"{proxy}{cluster.proxy('/overview')}", timeout=60) as answer:
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'; style-src")
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        assert len(answer.read()) <= 80_000
