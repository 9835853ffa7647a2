"""Which parts an agent has, by what it was given; nothing of it runs here."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from math import isnan
from pathlib import Path

import pytest

from nodeagent.config import options
from nodeagent.config.current import CurrentConfig
from nodeagent.config.load import load_config
from nodeagent.runtime.cri import CriRuntime
from nodeagent.wiring import agent
from nodeagent.wiring.agent import Parts
from orch.client.kubeconfig import ClientConfig, write_kubeconfig
from orch.component.diagnostics.health import CheckFailed
from orch.component.diagnostics.zpages import ZPages
from orch.component.flags.features import Features
from orch.component.flags.stability import MetricPolicy
from orch.component.process import loops, system
from orch.component.process.daemon import SetupError
from orch.wire.names import AGENT_CONFIG_API_VERSION, AGENT_CONFIG_KIND

pytestmark = pytest.mark.may_block  # everything is read and opened before anything is served

RUNTIME = "--container-runtime-endpoint=unix:///nowhere/cri.sock"
Build = Callable[..., Parts]


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Build:
    """A function flags → parts."""
    monkeypatch.setattr(system, "raise_open_files", lambda wanted: wanted)

    def build(*flags: str) -> Parts:
        given = options.parse(
            [
                f"--root-dir={tmp_path}",
                "--hostname-override=Node-1",
                "--container-runtime-endpoint=",
                *flags,
            ]
        )
        config = load_config(given.config, given.config_dir, given.overrides)
        return agent.build(given, CurrentConfig(config), Features(config.featureGates))

    return build


@pytest.fixture
def kubeconfig(tmp_path: Path) -> str:
    path = str(tmp_path / "kubeconfig")
    write_kubeconfig(path, ClientConfig(server="http://127.0.0.1:1", token="t"), name="x")
    return f"--kubeconfig={path}"


async def test_alone_it_measures_and_says_what_it_goes_without(build: Build) -> None:
    built = build()
    assert built.base.node_name == "node-1"
    assert (built.base.runtime, built.pods, built.checkpoints) == (None, None, None)
    assert (built.lease, built.base.clients, built.triggers) == (None, None, None)
    assert (built.measuring.runtime_disks, built.measuring.runtime_stats) == (None, None)
    assert [what.partition(":")[0] for what in built.missing[:2]] == [
        "standalone",
        "no container runtime",
    ]
    await built.recover()
    await built.stop_checkpoints()
    await built.close()


async def test_with_a_runtime_it_keeps_pods_and_makes_checkpoints(build: Build) -> None:
    built = build(RUNTIME)
    assert isinstance(built.base.runtime, CriRuntime)
    assert built.pods and built.checkpoints and built.measuring.runtime_disks
    assert built.measuring.runtime_stats is None  # an alpha feature
    assert not any("runtime" in what for what in built.missing)
    await built.close()


async def test_features_add_and_remove_parts(build: Build) -> None:
    built = build(
        RUNTIME, "--feature-gates=ContainerCheckpoint=false,PodAndContainerStatsFromCRI=true"
    )
    assert built.checkpoints is None
    assert built.measuring.runtime_stats
    await built.close()


@pytest.mark.parametrize("gate", [False, True])
async def test_triggers_whose_gate_is_off_are_warned_of_once(
    build: Build, tmp_path: Path, caplog: pytest.LogCaptureFixture, gate: bool
) -> None:
    path = tmp_path / "config.json"
    trigger = {"resource": "memory", "level": "full", "threshold": "200ms", "window": "2s"}
    head = {"apiVersion": AGENT_CONFIG_API_VERSION, "kind": AGENT_CONFIG_KIND}
    path.write_text(json.dumps(head | {"psiTriggers": [trigger]}))
    built = build(f"--config={path}", f"--feature-gates=NodeAgentPSITriggers={str(gate).lower()}")
    assert (built.triggers is not None) == gate
    warned = ["psiTriggers do nothing: the feature gate NodeAgentPSITriggers is off"]
    assert [line for line in caplog.messages if "psiTriggers" in line] == ([] if gate else warned)
    await built.close()


async def test_with_an_api_the_lease_has_a_connection_of_its_own(
    build: Build, kubeconfig: str
) -> None:
    built = build(kubeconfig)
    assert built.lease and built.base.clients
    assert built.base.clients.general.transport is not built.base.clients.lease.transport
    assert built.pods is None  # an API alone runs no pods
    assert not any("standalone" in what for what in built.missing)
    await built.close()


async def test_an_agent_that_does_not_register_still_renews_its_lease(
    build: Build, kubeconfig: str
) -> None:
    built = build(kubeconfig, "--register-node=false")
    assert built.lease
    assert list(built.liveness()) == ["sampling", "lease"]
    assert "lease" in [check.name for check in await built.health.run("healthz")]
    await built.close()


async def test_an_agent_does_not_start_without_a_cgroup_that_it_is_to_bound(
    build: Build, tmp_path: Path
) -> None:
    path = tmp_path / "reserved.json"
    head = {"apiVersion": AGENT_CONFIG_API_VERSION, "kind": AGENT_CONFIG_KIND}
    asked = {
        "enforceNodeAllocatable": ["kube-reserved"],
        "kubeReserved": {"memory": "1Gi"},
        "kubeReservedCgroup": "/no-such.slice",
    }
    path.write_text(json.dumps(head | asked))
    built = build(f"--config={path}")
    with pytest.raises(SetupError, match=r"^nodeagentReservedCgroup: there is no cgroup /no-such"):
        await built.enforce_reserved()
    await built.close()


REFUSED = [
    ("--node-labels=a/b/c=d", "a/b/c"),
    ("--kubeconfig=/absent/kubeconfig", "/absent/kubeconfig"),
]


@pytest.mark.parametrize(("flag", "text"), REFUSED)
async def test_what_cannot_work_is_one_clear_error(build: Build, flag: str, text: str) -> None:
    with pytest.raises(SetupError) as caught:
        build(flag)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.looptime
async def test_health_and_watchdog_ask_whether_the_machine_is_read(build: Build) -> None:
    built = build()
    assert [check.name for check in await built.health.run("healthz")] == ["ping", "sampling"]
    alive = built.liveness()
    assert list(alive) == ["sampling"]
    alive["sampling"]()
    await asyncio.sleep(31)
    with pytest.raises(CheckFailed, match="there is no reading of statistics after 31 s"):
        alive["sampling"]()
    assert [check.ok for check in await built.health.run("healthz")] == [True, False]
    await built.close()


async def test_it_is_ready_when_what_it_depends_on_is(build: Build, kubeconfig: str) -> None:
    built = build(kubeconfig, RUNTIME)
    found = {one.name: one for one in await built.health.run("readyz")}
    assert found["registered"].message == "the node is not registered with the API server"
    assert not found["runtime"].ok
    live = {one.name for one in await built.health.run("livez")}
    assert not {"runtime", "registered"} & live  # not a reason to be killed
    built.status.registered = True
    found = {one.name: one for one in await built.health.run("readyz")}
    assert found["registered"].ok
    await built.close()


async def test_alone_there_is_nothing_to_register_with(build: Build) -> None:
    built = build()
    assert {one.name: one.ok for one in await built.health.run("readyz")}["registered"]
    await built.close()


@pytest.mark.parametrize("is_on", [False, True])
async def test_the_overview_page_costs_nothing_where_it_is_off(
    build: Build, tmp_path: Path, is_on: bool
) -> None:
    path = tmp_path / "config.json"
    head = {"apiVersion": AGENT_CONFIG_API_VERSION, "kind": AGENT_CONFIG_KIND}
    path.write_text(json.dumps(head | ({"overviewPage": True} if is_on else {})))
    built = build(f"--config={path}")
    history = built.measuring.history
    assert (history is not None) is is_on
    services = built.services(None, MetricPolicy(), ZPages("nodeagent", {}))
    assert (services.overview is not None) is is_on
    if history:  # the sampling loop fills it
        running = loops.spawn(built.measuring.sampling.run(), name="sampling")
        async with asyncio.timeout(60):
            while isnan(history.node.memory_bytes[-1]):
                await asyncio.sleep(0.01)
        await loops.cancel(running)
    await built.close()


async def test_the_handlers_get_the_same_objects(build: Build) -> None:
    built = build(RUNTIME)
    services = built.services(None, MetricPolicy(), ZPages("nodeagent", {}))
    assert services.registry is built.base.registry
    assert built.checkpoints
    assert services.checkpoints is built.checkpoints.service
    assert services.health is built.health and services.slis is built.slis
    assert b'nodeagent_node_name{node="node-1"} 1.0' in services.metrics.render("")[0]
    await built.close()


@pytest.mark.parametrize(
    ("allowed", "budget"), [(20_000, 8192), (4096, 3072), (1024, 0), (500, 0), (-1, 8192)]
)
async def test_no_more_kernel_files_are_kept_than_leave_room_to_serve(
    build: Build, monkeypatch: pytest.MonkeyPatch, allowed: int, budget: int
) -> None:
    monkeypatch.setattr(system, "raise_open_files", lambda wanted: allowed)
    built = build()
    assert built.measuring.sampler.reader.fds_left == budget
    await built.close()
