"""What ends pods before their time, built and connected: evictions, and the node's shutdown.

What is asked of this agent's health, connected: does it work, and does what it depends on.

Used by `parts` alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.heartbeat import LeaseLoop
from nodeagent.node.eviction import Evictions
from nodeagent.node.logind import Logind
from nodeagent.node.rules.ending_order import groups_of
from nodeagent.node.shutdown import ShutdownGuard
from nodeagent.node.status_loop import StatusLoop
from nodeagent.pods.pod_workers import PodWorkers
from nodeagent.pods.registry import PodRegistry
from nodeagent.runtime.health import RuntimeWatch
from nodeagent.runtime.verdict import runtime_problems
from nodeagent.stats.sampler import Sampler
from nodeagent.wiring.stats import SamplingCheck
from orch.client.events import EventRecorder
from orch.component.diagnostics.health import CheckFailed, HealthChecks, SliMetrics
from orch.component.process.daemon import SetupError


def build_evictions(
    config: NodeAgentConfiguration,
    status: StatusLoop,
    sampler: Sampler,
    registry: PodRegistry,
    workers: PodWorkers | None,
    events: EventRecorder,
) -> Evictions | None:
    """None where there are no pods to evict."""
    if workers is None:
        return None

    return Evictions(
        registry,
        state=lambda: status.pressure,
        fresh=sampler.fresh,
        evict=workers.evict,
        announce=lambda text: note_on(status, events, "EvictionThresholdMet", text),
        longest_soft_grace_s=config.evictionMaxPodGracePeriod,
    )


def build_guard(
    config: NodeAgentConfiguration,
    registry: PodRegistry,
    workers: PodWorkers | None,
    *,
    changed: Callable[[], None],
    note: Callable[[str, str], None],
) -> ShutdownGuard | None:
    """None where pods are not to be ended in order, or there are none."""
    try:
        groups = groups_of(config)
    except ValueError as error:
        raise SetupError(str(error)) from None
    if not groups or workers is None:
        return None
    return ShutdownGuard(
        groups, registry, manager=Logind, end=workers.end, changed=changed, note=note
    )


def note_on(status: StatusLoop, events: EventRecorder, reason: str, text: str) -> None:
    """An event on the node, once it is known to the API server."""
    if status.node is not None:
        events.note(status.node, "Warning", reason, text)


def build_health(
    sampling: SamplingCheck,
    lease: LeaseLoop | None,
    watch: RuntimeWatch,
    status: StatusLoop | None,
) -> tuple[HealthChecks, SliMetrics]:
    """/healthz and /livez: this process works; /readyz: what it depends on does too."""
    slis = SliMetrics()
    checks = HealthChecks(slis)
    checks.add("ping", lambda: None)
    checks.add("sampling", sampling)
    if lease:
        checks.add("lease", lease.alive)

    def runtime_ready() -> None:
        now_s = asyncio.get_running_loop().time()
        if problems := runtime_problems(watch.health, now_s):
            raise CheckFailed("; ".join(problems))

    def registered() -> None:
        if status is not None and not status.registered:
            raise CheckFailed("the node is not registered with the API server")

    checks.add("runtime", runtime_ready, endpoints=("readyz",))
    checks.add("registered", registered, endpoints=("readyz",))
    return checks, slis
