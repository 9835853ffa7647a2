"""The agent's own page, as Prometheus reads it; every value comes from the object owning it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as modern
from prometheus_client.parser import text_string_to_metric_families as classic

from nodeagent.heartbeat import LeaseLoop
from nodeagent.metrics import agent
from nodeagent.metrics.agent import MetricSources
from nodeagent.metrics.calls import RuntimeOperations
from nodeagent.node.status_loop import StatusLoop
from nodeagent.pods.counts import PodCounts
from nodeagent.pods.registry import PodRegistry
from nodeagent.pods.spec.spec import PodSettings
from nodeagent.runtime.base import RuntimeUnavailable
from nodeagent.runtime.health import RuntimeWatch
from nodeagent.stats.sampler import Sampler
from nodeagent.stats.sources import Sources
from nodeagent.watchdog import Watchdog
from orch.client.events import EventRecorder
from orch.component.diagnostics.metrics import Registry
from orch.component.flags.features import Features
from orch.component.flags.stability import CURRENT, MetricPolicy
from orch.component.process.notify import Notifier
from orch.wire import metric_catalogue
from tests.fakes import hosts, node, pods
from tests.fakes.api import FakeApi
from tests.fakes.runtime import FakeRuntime

Page = dict[str, Metric]
ALL = MetricPolicy()  # nothing switched off


@pytest_asyncio.fixture
async def sources() -> AsyncIterator[MetricSources]:
    """An agent with everything, before anything has happened."""
    sampler = Sampler(targets=lambda: [hosts.POD], sources=hosts.sources(hosts.TREES / "v2"))
    registry = PodRegistry(PodSettings("n1", "/nowhere", "/nowhere"))
    registry.set_desired([pods.pod()])
    registry.set_view(pods.seen(pods.sandbox(), pods.instance()))
    api = FakeApi()

    async def collect() -> Any:
        return node.facts()

    yield MetricSources(
        node_name="n1",
        features=Features({"NodeAgentPSI": False}),
        emulated=CURRENT,
        sampler=sampler,
        registry=registry,
        counts=PodCounts(),
        runtime=RuntimeWatch(FakeRuntime()),
        status=StatusLoop(api, node.settings(), collect),
        lease=LeaseLoop(api, "n1"),
        shutdown=None,
        watchdog=Watchdog(Notifier(""), {}, interval_s=8),
        operations=RuntimeOperations(),
        stalls={("memory", "full", "pod"): 3},
        events=EventRecorder(api, "nodeagent"),
    )
    await sampler.close()


def registry_of(sources: MetricSources, policy: MetricPolicy = ALL) -> Registry:
    return agent.agent_registry(sources, policy)


def page_of(sources: MetricSources, policy: MetricPolicy = ALL) -> Page:
    """The families of the page by name; twice the same one is an error."""
    families = list(classic(registry_of(sources, policy).render("")[0].decode()))
    assert len({family.name for family in families}) == len(families)
    return {family.name: family for family in families}


def value(page: Page, family: str, /, **labels: str) -> float:
    (found,) = [s.value for s in page[family].samples if s.labels == labels]
    return found


FAMILIES = {  # what an operator's dashboard may ask for, and its tier
    "nodeagent_node_name": ("gauge", "ALPHA"),
    "orch_build_info": ("gauge", "ALPHA"),
    "orch_feature_enabled": ("gauge", "BETA"),
    "orch_log_lines_dropped": ("counter", "ALPHA"),
    "orch_events_dropped": ("counter", "ALPHA"),
    "nodeagent_status_reports": ("counter", "ALPHA"),
    "nodeagent_status_failures": ("counter", "ALPHA"),
    "nodeagent_node_ready": ("gauge", "ALPHA"),
    "nodeagent_runtime_checks": ("counter", "ALPHA"),
    "nodeagent_runtime_check_failures": ("counter", "ALPHA"),
    "nodeagent_lease_renewals": ("counter", "ALPHA"),
    "nodeagent_lease_failures": ("counter", "ALPHA"),
    "nodeagent_lease_late_seconds": ("gauge", "ALPHA"),
    "nodeagent_lease_last_renewal_timestamp_seconds": ("gauge", "ALPHA"),
    "nodeagent_desired_pods": ("gauge", "ALPHA"),
    "nodeagent_running_pods": ("gauge", "ALPHA"),
    "nodeagent_cgroup_version": ("gauge", "ALPHA"),
    "nodeagent_collector_duration_seconds": ("gauge", "ALPHA"),
    "nodeagent_read_errors": ("counter", "ALPHA"),
    "nodeagent_slow_reads": ("counter", "ALPHA"),
    "nodeagent_directory_walks_given_up": ("counter", "ALPHA"),
    "nodeagent_psi_trigger": ("counter", "ALPHA"),
    "nodeagent_psi_supported": ("gauge", "ALPHA"),
    "nodeagent_watchdog_skipped": ("counter", "ALPHA"),
    "nodeagent_runtime_operations": ("counter", "ALPHA"),
    "nodeagent_runtime_operations_duration_seconds": ("histogram", "ALPHA"),
    "registered_metrics": ("counter", "BETA"),
    "disabled_metrics": ("counter", "BETA"),
    "hidden_metrics": ("counter", "BETA"),
}


async def test_every_family_has_its_type_and_states_its_tier(sources: MetricSources) -> None:
    await sources.sampler.sample()
    page = page_of(sources)
    # The classic format names a counter's family by its samples; the parser takes `_total` off.
    found = {
        name: (page[name].type, page[name].documentation[1:].partition("]")[0])
        for name in FAMILIES
        if name in page
    }
    assert found == FAMILIES


async def test_the_tiers_are_those_that_the_catalogue_promises(sources: MetricSources) -> None:
    await sources.sampler.sample()
    for family in page_of(sources).values():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        if name.startswith(("process_", "python_gc_")):
            continue  # the library's own
        promised = metric_catalogue.tier_of(name)
        assert family.documentation.startswith(f"[{promised}] "), name


async def test_probes_have_a_page_of_their_own(sources: MetricSources) -> None:
    text = agent.probes_registry(sources.counts, ALL).render("")[0].decode()
    for helped in (
        "process_start_time_seconds [ALPHA] ",
        "prober_probe_total [BETA] ",
        "prober_probe_duration_seconds [ALPHA] ",
    ):
        assert f"# HELP {helped}" in text
    assert not [name for name in page_of(sources) if name.startswith("prober")]


async def test_the_page_is_openmetrics_on_request(sources: MetricSources) -> None:
    await sources.sampler.sample()
    body, content_type = registry_of(sources).render("application/openmetrics-text;version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    names = [family.name for family in modern(body.decode())]
    assert len(set(names)) == len(names)
    assert set(FAMILIES) <= set(names)


async def test_the_build_the_node_and_the_features_are_named(sources: MetricSources) -> None:
    page = page_of(sources)
    assert value(page, "nodeagent_node_name", node="n1") == 1
    (build,) = page["orch_build_info"].samples
    assert build.labels["git_version"].startswith("v")
    assert build.labels["platform"].startswith("linux/")
    assert value(page, "orch_feature_enabled", name="NodeAgentPSI", stage="BETA") == 0
    assert value(page, "orch_feature_enabled", name="ContainerCheckpoint", stage="BETA") == 1


async def test_counts_of_the_loops_are_shown_at_once(sources: MetricSources) -> None:
    registry = registry_of(sources)
    assert b"nodeagent_lease_renewals_total 0.0" in registry.render("")[0]
    assert sources.lease and sources.watchdog and sources.events
    sources.lease.renewals, sources.lease.failures, sources.lease.late_s = 5, 2, 1.5
    sources.lease.last_renewal_unix_s = 1700000000.25
    sources.status.reports, sources.status.failures = 7, 1
    sources.watchdog.skipped["sampling"] += 4
    sources.events.dropped = 6
    lines = registry.render("")[0].decode().splitlines()
    assert {
        "nodeagent_lease_renewals_total 5.0",
        "orch_events_dropped_total 6.0",
        "nodeagent_lease_failures_total 2.0",
        "nodeagent_lease_late_seconds 1.5",
        "nodeagent_lease_last_renewal_timestamp_seconds 1.70000000025e+09",
        "nodeagent_status_reports_total 7.0",
        "nodeagent_status_failures_total 1.0",
        'nodeagent_watchdog_skipped_total{check="sampling"} 4.0',
        'nodeagent_psi_trigger_total{level="full",resource="memory",scope="pod"} 3.0',
    } <= set(lines)


async def test_checks_of_the_runtime_are_counted(sources: MetricSources) -> None:
    runtime = FakeRuntime()
    watch = RuntimeWatch(runtime)
    await watch.check()
    runtime.fail("conditions", RuntimeUnavailable("Status", "gone"))
    await watch.check()
    page = page_of(replace(sources, runtime=watch))
    assert value(page, "nodeagent_runtime_checks") == 2
    assert value(page, "nodeagent_runtime_check_failures") == 1


async def test_readings_are_shown_after_the_first(sources: MetricSources) -> None:
    assert "nodeagent_collector_duration_seconds" not in page_of(sources)
    await sources.sampler.sample()
    page = page_of(sources)
    assert value(page, "nodeagent_cgroup_version") == 2
    collectors = {
        s.labels["collector"] for s in page["nodeagent_collector_duration_seconds"].samples
    }
    assert {"sample", "directories", "processes"} <= collectors
    supported = {(s.labels["source"], s.labels["resource"]): s.value
                 for s in page["nodeagent_psi_supported"].samples}  # fmt: skip
    assert supported and set(supported.values()) <= {0.0, 1.0}


async def test_a_host_without_cgroups_shows_no_version_of_them(
    sources: MetricSources, tmp_path: Path
) -> None:
    sampler = Sampler(targets=list, sources=Sources(cgroup_root=str(tmp_path)))
    assert "nodeagent_cgroup_version" not in page_of(replace(sources, sampler=sampler))


async def test_an_agent_without_a_lease_or_a_watchdog_shows_neither(sources: MetricSources) -> None:
    page = page_of(replace(sources, lease=None, watchdog=None))
    assert [name for name in page if "lease" in name or "watchdog" in name] == []


async def test_operators_disable_metrics_by_name(sources: MetricSources) -> None:
    policy = MetricPolicy(disabled=frozenset({"nodeagent_node_ready"}))
    page = page_of(sources, policy)
    assert "nodeagent_node_ready" not in page
    assert value(page, "disabled_metrics") == 1


@pytest.mark.parametrize("family", ["process_cpu_seconds", "process_resident_memory_bytes"])
async def test_the_process_itself_is_on_the_page(sources: MetricSources, family: str) -> None:
    assert value(page_of(sources), family) > 0
