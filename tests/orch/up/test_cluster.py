"""The daemons of a local cluster, with tiny programs in their places."""

from __future__ import annotations

import json
import logging
import os
import signal
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from orch.client.kubeconfig import load_kubeconfig
from orch.component.process import loops
from orch.component.process.clock import utc_now
from orch.component.process.daemon import SetupError
from orch.up import cluster as under_test
from orch.up.cluster import Cluster
from orch.up.commands import Ports
from orch.up.layout import Layout, issue_certificates
from orch.wire import times
from tests.fakes.http_api import HttpApi, http_api
from tests.fakes.programs import OBEDIENT, gone, shell, until

pytestmark = pytest.mark.may_block  # orch-up serves nobody while it reads a daemon's last words

DAEMONS = ("apiserver", "controller-manager", "nodeagent")
BROKEN = "echo it is broken >&2; exit 3"
LEASE = "/apis/coordination.orch.io/v1/namespaces/orch-node-lease/leases/n1"
NODE = "/api/v1/nodes/n1"


class Local(Cluster):
    """A cluster of fake programs; the API server is ready when `ready` says so."""

    def __init__(self, run_dir: Path, *, runtime: str | None = None) -> None:
        layout = Layout(run_dir)
        layout.make()
        ports = Ports(apiserver=1, nodeagent=2, healthz=3, controller=4)
        certificates = issue_certificates(layout.pki, "n1", now=utc_now())
        super().__init__(layout, ports, certificates, node="n1", runtime=runtime)
        self.ready = True
        self.order = run_dir / "order"
        for name in DAEMONS:
            self.runs(name, OBEDIENT.format(f"echo {name} >> {self.order};"))

    def runs(self, name: str, script: str) -> None:
        self._commands[name] = shell(script)

    def log(self, name: str) -> list[str]:
        path = self.layout.logs / f"{name}.log"
        return path.read_text().splitlines() if path.exists() else []

    async def up(self, *names: str) -> None:
        await until(lambda: all("up" in self.log(name) for name in names))

    def kill(self, name: str) -> None:
        os.kill(self.child(name).pid, signal.SIGKILL)

    async def apiserver_ready(self) -> bool:
        return self.ready

    async def node_reports(self) -> bool:
        return self.ready


@pytest_asyncio.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Local]:
    monkeypatch.setattr(under_test, "RESTART_PAUSE_S", 0.0)
    cluster = Local(tmp_path)
    yield cluster
    await cluster.stop()


# ---- start and stop


async def test_a_started_cluster_writes_where_everything_is(cluster: Local) -> None:
    await cluster.start()
    told = json.loads(cluster.layout.cluster_file.read_text())
    assert told["apiserver"] == "https://127.0.0.1:1"
    assert told["nodeagent"] == "https://127.0.0.1:2"
    assert told["nodeagentHealthz"] == "http://127.0.0.1:3"
    assert told["controllerManager"] == "https://127.0.0.1:4"
    assert (told["node"], told["runtime"]) == ("n1", None)
    assert told["pids"] == {name: cluster.child(name).pid for name in DAEMONS}
    for name in ("kubeconfig", "caFile", "clientCert", "clientKey", "monitoringCert"):
        assert Path(told[name]).is_file(), name


async def test_every_client_has_a_kubeconfig_with_its_own_certificate(cluster: Local) -> None:
    await cluster.start()
    certificates = cluster.certificates
    for name, pair in (
        ("admin", certificates.admin),
        ("node", certificates.node),
        ("controller-manager", certificates.controller),
    ):
        path = cluster.layout.kubeconfig(name)
        config = load_kubeconfig(str(path))
        assert (config.server, config.cert_file) == (cluster.url, pair.cert_file)
        assert path.stat().st_mode & 0o077 == 0


async def test_it_stops_in_reverse_order_and_leaves_nothing_running(cluster: Local) -> None:
    await cluster.start()
    await cluster.up(*DAEMONS)
    pids = [cluster.child(name).pid for name in DAEMONS]
    await cluster.stop()
    assert cluster.order.read_text().split() == list(reversed(DAEMONS))
    assert all(gone(pid) for pid in pids)
    assert not cluster.layout.cluster_file.exists()
    await cluster.stop()  # again: nothing happens


async def test_a_daemon_that_exits_during_the_start_is_reported_with_the_end_of_its_log(
    cluster: Local,
) -> None:
    cluster.ready = False
    cluster.runs("apiserver", BROKEN)
    with pytest.raises(SetupError) as caught:
        await cluster.start()
    assert str(caught.value) == (
        "apiserver exited with code 3; "
        f"the end of {cluster.layout.logs / 'apiserver.log'}:\n  it is broken"
    )
    with pytest.raises(KeyError):
        cluster.child("controller-manager")  # nothing after it was started


async def test_a_daemon_that_takes_too_long_is_reported(
    cluster: Local, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(under_test, "START_DEADLINE_S", 0.2)
    monkeypatch.setattr(under_test, "LOG_AFTER_S", 0.0)
    cluster.ready = False
    with pytest.raises(SetupError, match=r"the API server is not ready after \d+ s; the end of"):
        await cluster.start()
    assert caplog.messages == ["waiting: the API server is not ready"]


# ---- keeping


async def test_a_daemon_that_exits_is_restarted(
    cluster: Local, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.start()
    await cluster.up("nodeagent")
    keeping = loops.spawn(cluster.keep("nodeagent"), name="keep")
    before = cluster.child("nodeagent").pid
    cluster.kill("nodeagent")

    def told() -> int:
        pids = json.loads(cluster.layout.cluster_file.read_text())["pids"]
        return int(pids["nodeagent"])

    await until(lambda: keeping.done() or told() != before)
    assert told() == cluster.child("nodeagent").pid
    assert not gone(told())
    assert caplog.messages == [
        "nodeagent exited with code -9 and is restarted; the end of its log: up"
    ]
    await loops.cancel(keeping)


async def test_a_daemon_that_keeps_exiting_is_given_up(cluster: Local) -> None:
    cluster.runs("nodeagent", BROKEN)
    await cluster.start_child("nodeagent")
    with pytest.raises(SetupError, match=r"nodeagent keeps exiting; the end of .*\n  it is broken"):
        await cluster.keep("nodeagent")
    assert len(cluster.log("nodeagent")) == 1 + under_test.MAX_RESTARTS


async def test_exits_of_long_ago_do_not_count(
    cluster: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(under_test, "RESTART_WINDOW_S", 0.0)
    cluster.runs("nodeagent", BROKEN)
    await cluster.start_child("nodeagent")
    keeping = loops.spawn(cluster.keep("nodeagent"), name="keep")
    ends = 2 * under_test.MAX_RESTARTS
    await until(lambda: keeping.done() or len(cluster.log("nodeagent")) > ends)
    assert not keeping.done()
    await loops.cancel(keeping)


# ---- what the node says of itself


@pytest_asyncio.fixture
async def api() -> AsyncIterator[HttpApi]:
    async with http_api() as api:
        yield api


def asking(api: HttpApi, tmp_path: Path, *, runtime: str | None) -> Cluster:
    cluster = Local(tmp_path, runtime=runtime)
    cluster.url = api.url
    return cluster


def put_node(api: HttpApi, ready: str, *, renewed: datetime, message: str = "") -> None:
    condition = {"type": "Ready", "status": ready, "message": message}
    metadata = {"name": "n1"}
    api.put(NODE, {"kind": "Node", "apiVersion": "v1", "metadata": metadata,
                   "status": {"conditions": [condition]}})  # fmt: skip
    api.put(LEASE, {"kind": "Lease", "apiVersion": "coordination.orch.io/v1",
                    "metadata": {**metadata, "namespace": "orch-node-lease"},
                    "spec": {"renewTime": times.format_micro_time(renewed)}})  # fmt: skip


MINUTE = timedelta(minutes=1)
WORDS = [  # Ready, with a runtime, renewed after the start of this agent; does it count?
    ("True", True, True, True),
    ("True", False, True, True),
    ("False", False, True, True),  # without a runtime it is not Ready, and says so
    ("False", True, True, False),
    ("Unknown", True, True, False),
    ("True", True, False, False),  # what an earlier start left behind
]


@pytest.mark.parametrize(("ready", "with_runtime", "after", "expected"), WORDS)
async def test_only_reports_of_this_starts_agent_count(
    api: HttpApi, tmp_path: Path, ready: str, with_runtime: bool, after: bool, expected: bool
) -> None:
    cluster = asking(api, tmp_path, runtime="unix:///run/x" if with_runtime else None)
    renewed = utc_now() + (MINUTE if after else -MINUTE)
    put_node(api, ready, renewed=renewed)
    assert await Cluster.node_reports(cluster) is expected


async def test_the_nodes_reason_for_not_being_ready_is_recorded(
    api: HttpApi, tmp_path: Path
) -> None:
    cluster = asking(api, tmp_path, runtime="unix:///run/x")
    put_node(api, "False", renewed=utc_now() + MINUTE, message="no network plugin")
    assert cluster.not_ready == ""
    assert not await Cluster.node_reports(cluster)
    assert cluster.not_ready == "no network plugin"


async def test_a_node_or_server_that_is_not_there_does_not_report(
    api: HttpApi, tmp_path: Path
) -> None:
    cluster = asking(api, tmp_path, runtime=None)
    assert not await Cluster.node_reports(cluster)
    cluster.url = "http://127.0.0.1:1"
    assert not await Cluster.node_reports(cluster)
    assert not await Cluster.apiserver_ready(cluster)
