"""Pods on the metrics page, after what happened to them on a runtime in memory."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from nodeagent.metrics.pods import pod_metrics, probe_metrics
from nodeagent.pods.counts import DEVICE_ALLOCATION
from orch.wire.records.core import Node
from orch.wire.records.pods import Pod
from tests.fakes.pods import UID, container_data, pod
from tests.fakes.podworld import PodWorld, named

pytestmark = pytest.mark.looptime


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[PodWorld]:
    world = PodWorld(tmp_path)
    yield world
    await world.stop()


def metrics_of(world: PodWorld, mirrors: int = 0) -> Iterator[Metric]:
    return pod_metrics(world.registry, world.counts, mirrors)


def probes_of(world: PodWorld) -> Iterator[Metric]:
    return probe_metrics(world.counts)


def page(
    world: PodWorld, metrics: Callable[[PodWorld], Iterator[Metric]] = metrics_of
) -> list[str]:
    """The lines that carry values."""

    class Page(Collector):
        def collect(self) -> list[Metric]:
            return list(metrics(world))

    registry = CollectorRegistry()
    registry.register(Page())
    lines = generate_latest(registry).decode().splitlines()
    return [line for line in lines if not line.startswith("#")]


async def test_durations_are_histograms(world: PodWorld) -> None:
    await world.start(pod())
    await world.until(lambda: world.status().status.phase == "Running")
    lines = page(world)
    for begins in (
        'nodeagent_pleg_relist_duration_seconds_bucket{le="+Inf"} ',
        'nodeagent_pod_worker_duration_seconds_count{operation_type="sync"} ',
        "nodeagent_pod_start_sli_duration_seconds_count 1.0",
        "nodeagent_pod_start_total_duration_seconds_count 1.0",
        "nodeagent_pod_worker_start_duration_seconds_count 1.0",
        'nodeagent_cgroup_manager_duration_seconds_count{operation_type="create"} 1.0',
    ):
        assert any(line.startswith(begins) for line in lines), begins


async def test_plugins_and_questions_about_devices_are_counted(world: PodWorld) -> None:
    counts = world.counts
    counts.device_registrations["example.com/foo"] += 2
    counts.timings.observe(DEVICE_ALLOCATION, 0.02, "example.com/foo")
    counts.pod_resources_requests.update({"list": 3, "get": 1})
    counts.pod_resources_errors["get"] += 1
    lines, name = page(world), "nodeagent_pod_resources_endpoint"
    for line in (
        'nodeagent_device_plugin_registration_total{resource_name="example.com/foo"} 2.0',
        'nodeagent_device_plugin_alloc_duration_seconds_count{resource_name="example.com/foo"} 1.0',
        f'{name}_requests_total{{server_api_version="v1"}} 4.0',
        f'{name}_requests_list{{server_api_version="v1"}} 3.0',
        f'{name}_requests_get_allocatable{{server_api_version="v1"}} 0.0',
        f'{name}_errors_get{{server_api_version="v1"}} 1.0',
    ):
        assert line in lines, line


async def test_listings_events_and_mirrors_are_shown(world: PodWorld) -> None:
    assert "nodeagent_pleg_last_seen_seconds 0.0" in page(world)
    began_s = time.time()
    await world.start(pod())
    await world.until(lambda: world.status().status.phase == "Running")
    world.counts.discarded_events = 2
    lines = page(world, partial(metrics_of, mirrors=1))
    assert {"nodeagent_mirror_pods 1.0", "nodeagent_pleg_discard_events_total 2.0"} <= set(lines)
    seen = next(line for line in lines if line.startswith("nodeagent_pleg_last_seen_seconds "))
    assert began_s <= float(seen.split()[1]) <= time.time()


async def test_a_finished_pod_is_terminated_not_terminating(world: PodWorld) -> None:
    await world.start(pod("once", restartPolicy="Never"))
    await world.until(lambda: "once" in world.running())
    world.runtime.exit(world.running()["once"])
    expected = 'nodeagent_working_pods{config="desired",lifecycle="terminated",static="true"} 1.0'
    await world.until(lambda: expected in page(world))
    shown = [line for line in page(world) if line.startswith("nodeagent_working_pods{")]
    assert [line for line in shown if not line.endswith(" 0.0")] == [expected]


async def test_starts_failures_and_states_are_counted(world: PodWorld) -> None:
    world.runtime.fail("run_sandbox", "no", times=1)
    bad = container_data("bad", image="localhost/absent:1", imagePullPolicy="Never")
    await world.start(pod("a", bad, initContainers=[container_data("i")]))
    await world.until(lambda: "i" in world.running())
    world.runtime.exit(world.running()["i"])
    await world.until(lambda: world.waiting("bad") == "ErrImageNeverPull")
    lines = page(world)
    for expected in (
        'nodeagent_desired_pods{static="true"} 1.0',
        'nodeagent_active_pods{static="true"} 1.0',
        'nodeagent_working_pods{config="desired",lifecycle="sync",static="true"} 1.0',
        "nodeagent_running_pods 1.0",
        'nodeagent_running_containers{container_state="exited"} 1.0',
        'nodeagent_running_containers{container_state="running"} 1.0',
        "nodeagent_started_pods_total 1.0",
        "nodeagent_started_pods_errors_total 1.0",
        'nodeagent_started_containers_total{container_type="container"} 1.0',
        'nodeagent_started_containers_total{container_type="init_container"} 1.0',
        'nodeagent_started_containers_errors_total{code="ErrImageNeverPull",'
        'container_type="container"} 1.0',
    ):
        assert expected in lines


async def test_images_as_volumes_are_counted_as_requested_mounted_and_failed(
    world: PodWorld,
) -> None:
    def with_volume(name: str, reference: str) -> Pod:
        mount = {"name": "files", "mountPath": "/files"}
        volume = {"name": "files", "image": {"reference": reference, "pullPolicy": "Never"}}
        container = container_data("app", volumeMounts=[mount])
        return named(pod(container, volumes=[volume]), name, name)

    async def becomes(name: str, reason: str) -> None:
        await world.until(lambda: world.registry.find("default", name) is not None)
        await world.until(lambda: world.waiting("app", name) == reason)

    def shown() -> list[str]:
        lines = (line.removeprefix("nodeagent_image_volume_") for line in page(world))
        return [line for line in lines if line.startswith(("requested", "mounted"))]

    await world.start(with_volume("good", "localhost/busybox:1"))
    await world.until(lambda: world.status("good").status.phase == "Running")
    [mount] = [m for m in world.made("app").spec.mounts if m.image]
    assert (mount.image, mount.container_path, mount.readonly) == (
        "localhost/busybox:1",
        "/files",
        True,
    )
    counts = ["requested_total 1.0", "mounted_succeed_total 1.0", "mounted_errors_total 0.0"]
    assert shown() == counts
    world.source.set(with_volume("absent", "localhost/absent:1"))
    await becomes("absent", "ErrImageNeverPull")
    assert shown() == [
        "requested_total 2.0",
        "mounted_succeed_total 1.0",
        "mounted_errors_total 1.0",
    ]
    world.runtime.fail("create_container", "no image mounts here", times=1)
    world.source.set(with_volume("refused", "localhost/busybox:1"))
    await becomes("refused", "CreateContainerError")
    assert shown()[2] == "mounted_errors_total 2.0"


async def test_rejections_are_counted_by_reason(world: PodWorld) -> None:
    world.node = Node.from_wire({"status": {"allocatable": {"pods": "0"}}})
    await world.start(pod())
    await world.until(lambda: world.status().status.phase == "Failed")
    assert 'nodeagent_admission_rejections_total{reason="OutOfpods"} 1.0' in page(world)


async def test_probes_are_counted_until_their_pod_is_gone(world: PodWorld) -> None:
    probe = {"exec": {"command": ["x"]}, "periodSeconds": 1}
    await world.start(pod(container_data("app", livenessProbe=probe)), named(pod(), "b", "uid-b"))
    key = (
        'prober_probe_total{container="app",namespace="default",pod="web",'
        f'pod_uid="{UID}",probe_type="Liveness",result="successful"}}'
    )
    await world.until(lambda: any(line.startswith(key) for line in page(world, probes_of)))
    took = (
        'prober_probe_duration_seconds_count{container="app",namespace="default",pod="web",'
        'probe_type="Liveness"} '
    )
    assert any(line.startswith(took) for line in page(world, probes_of))
    world.source.set()
    await world.until(lambda: not world.traces())
    assert not [line for line in page(world, probes_of) if line.startswith("prober_")]
    (since,) = page(world, probes_of)
    assert since.startswith("process_start_time_seconds 1.")
