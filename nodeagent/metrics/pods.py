"""The pods' part of the agent's metrics page, and the page of probes.

Every value is read from the registry and the counts when a page is requested; nothing is stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import Metric

from nodeagent.metrics.families import bare_counter, counter, gauge
from nodeagent.pods.counts import FAMILIES, PROBE, PodCounts, ProbeKey
from nodeagent.pods.decide.phase import FINAL_PHASES
from nodeagent.pods.registry import PodRegistry
from nodeagent.pods.resize.changes import IN_PROGRESS, PENDING
from orch.component.process import system
from orch.wire.podrules import podspec


def pod_metrics(registry: PodRegistry, counts: PodCounts, mirrors: int) -> Iterator[Metric]:
    """Desired, running and started pods and containers, rejections, and mirror pods in the API."""
    static = Counter("true" if podspec.is_static(pod) else "" for pod in registry.pods())
    yield gauge("nodeagent_desired_pods", "Pods that should run.", static, ["static"])
    yield gauge("nodeagent_mirror_pods", "Mirror pods that the API holds.", mirrors)
    yield from _lifecycles(registry)
    views = registry.views().values()
    running = sum(1 for view in views if view.active)
    yield gauge("nodeagent_running_pods", "Pods with a running container.", running)
    states = Counter(c.container.state.value for view in views for c in view.containers)
    text = "Containers of pods, by their state."
    yield gauge("nodeagent_running_containers", text, states, ["container_state"])
    yield from _starts(counts)
    yield from _image_volumes(counts)
    yield from _resizes(registry, counts)
    yield from _devices(counts)
    text = "When the runtime's pods were listed last, in Unix seconds; 0 for not yet."
    yield gauge("nodeagent_pleg_last_seen_seconds", text, counts.listed_at_s)
    text = "Events of the runtime passed over: they told nothing new."
    yield counter("nodeagent_pleg_discard_events", text, counts.discarded_events)
    for family in FAMILIES:
        yield counts.timings.collect(family)


def probe_metrics(counts: PodCounts) -> Iterator[Metric]:
    """Probes of containers, and since when this process counts them."""
    text = "Start time of the process since unix epoch in seconds."
    yield gauge("process_start_time_seconds", text, system.process_start_s())
    yield counts.timings.collect(PROBE)
    text = "Probes of containers, by their result."
    yield counter("prober_probe", text, counts.probes, ProbeKey._fields)


def _lifecycles(registry: PodRegistry) -> Iterator[Metric]:
    """Pods that have not finished, and the step of the lifecycle that each is in."""
    active: Counter[str] = Counter()
    working: Counter[tuple[str, str, str]] = Counter()
    for pod in registry.pods():
        static = "true" if podspec.is_static(pod) else ""
        over = pod.status.phase in FINAL_PHASES
        active[static] += not over
        lifecycle = "terminating" if over or pod.metadata.deletionTimestamp else "sync"
        if over and not registry.view(pod.metadata.uid or "").active:
            lifecycle = "terminated"
        working[lifecycle, "desired", static] += 1
    for uid, view in registry.views().items():
        if view.active and registry.desired(uid) is None:
            working["terminating", "orphan", "unknown"] += 1
    yield gauge("nodeagent_active_pods", "Pods that are not over.", active, ["static"])
    text = "Pods by what is done about them, and whether anyone wants them."
    yield gauge("nodeagent_working_pods", text, working, ["lifecycle", "config", "static"])


def _image_volumes(counts: PodCounts) -> Iterator[Metric]:
    text = "Mounts of images as volumes that were asked for."
    yield counter("nodeagent_image_volume_requested", text, counts.image_volumes_requested)
    text = "Mounts of images as volumes that were made."
    yield counter("nodeagent_image_volume_mounted_succeed", text, counts.image_volumes_mounted)
    text = "Mounts of images as volumes that could not be made."
    yield counter("nodeagent_image_volume_mounted_errors", text, counts.image_volume_errors)


def _resizes(registry: PodRegistry, counts: PodCounts) -> Iterator[Metric]:
    """Resizes asked for, those that wait, and those that are granted and not in force yet."""
    name, labels = "nodeagent_container_requested_resizes", ["resource", "requirement", "operation"]
    text = "Changes of a container's resources that were asked for, each resource by itself."
    yield counter(name, text, counts.requested_resizes, labels)
    text = "Resizes that this node could not grant if it were empty."
    yield counter("nodeagent_pod_infeasible_resizes", text, counts.infeasible_resizes)
    text = "Resizes that were granted after they had to wait."
    name = "nodeagent_pod_deferred_accepted_resizes"
    yield counter(name, text, counts.deferred_accepted_resizes)
    shown = [c for pod in registry.pods() for c in pod.status.conditions or ()]
    waiting = Counter((c.reason or "").lower() for c in shown if c.type == PENDING)
    yield gauge("nodeagent_pod_pending_resizes", "Resizes that wait.", waiting, ["reason"])
    under_way = sum(1 for c in shown if c.type == IN_PROGRESS)
    text = "Resizes that are granted and not in force yet."
    yield gauge("nodeagent_pod_in_progress_resizes", text, under_way)


def _devices(counts: PodCounts) -> Iterator[Metric]:
    name, text = "nodeagent_device_plugin_registration", "Registrations of device plugins."
    yield counter(name, text, counts.device_registrations, ["resource_name"])
    name, labels = "nodeagent_pod_resources_endpoint", ["server_api_version"]
    requests, errors = counts.pod_resources_requests, counts.pod_resources_errors
    text = "Questions about the devices of pods."
    yield counter(f"{name}_requests", text, {"v1": requests.total()}, labels)
    for method in ("list", "get", "get_allocatable"):
        text = f"Questions of the kind {method} about the devices of pods."
        yield bare_counter(f"{name}_requests_{method}", text, {"v1": requests[method]}, labels)
        text = f"Those of the kind {method} that could not be answered."
        yield bare_counter(f"{name}_errors_{method}", text, {"v1": errors[method]}, labels)


def _starts(counts: PodCounts) -> Iterator[Metric]:
    yield counter("nodeagent_started_pods", "Sandboxes of pods started.", counts.started_pods)
    text = "Sandboxes that could not be started."
    yield counter("nodeagent_started_pods_errors", text, counts.started_pod_errors)
    name, started = "nodeagent_started_containers", counts.started_containers
    yield counter(name, "Containers started.", started, ["container_type"])
    name, errors = "nodeagent_started_containers_errors", counts.started_container_errors
    text = "Containers that could not be started, by their waiting reason."
    yield counter(name, text, errors, ["container_type", "code"])
    name, failed = "nodeagent_credential_provider_plugin_errors", counts.credential_plugin_errors
    text = "Times that a plugin gave no answer that could be used."
    yield counter(name, text, failed, ["plugin_name"])
    text = "Unused images removed, by the reason: space or age."
    yield counter("nodeagent_image_garbage_collected", text, counts.images_removed, ["reason"])
    text = "Pods evicted, by what they used too much of."
    yield counter("nodeagent_evictions", text, counts.evictions, ["eviction_signal"])
    text = "Pods that this node did not take, by the reason."
    yield counter("nodeagent_admission_rejections", text, counts.rejections, ["reason"])
