"""What ends pods before their time, built and connected: evictions, and the node's shutdown."""

from __future__ import annotations

from collections.abc import Callable

from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.evictions import Evictions
from nodeagent.logind import Logind
from nodeagent.node.shutdown import groups_of
from nodeagent.pods.keeper import PodKeeper
from nodeagent.pods.registry import PodRegistry
from nodeagent.shutdown import ShutdownGuard
from nodeagent.stats.sampler import Sampler
from nodeagent.statusloop import StatusLoop
from orch.client.events import EventRecorder
from orch.component.daemon import SetupError


def build_evictions(
    config: NodeAgentConfiguration,
    status: StatusLoop,
    sampler: Sampler,
    registry: PodRegistry,
    keeper: PodKeeper | None,
    events: EventRecorder,
) -> Evictions | None:
    """None where there are no pods to evict."""
    if keeper is None:
        return None

    return Evictions(
        registry,
        state=lambda: status.pressure,
        fresh=sampler.fresh,
        evict=keeper.evict,
        announce=lambda text: note_on(status, events, "EvictionThresholdMet", text),
        longest_soft_grace_s=config.evictionMaxPodGracePeriod,
    )


def build_guard(
    config: NodeAgentConfiguration,
    registry: PodRegistry,
    keeper: PodKeeper | None,
    *,
    changed: Callable[[], None],
    note: Callable[[str, str], None],
) -> ShutdownGuard | None:
    """None where pods are not to be ended in order, or there are none."""
    try:
        groups = groups_of(config)
    except ValueError as error:
        raise SetupError(str(error)) from None
    if not groups or keeper is None:
        return None
    return ShutdownGuard(
        groups, registry, manager=Logind, end=keeper.end, changed=changed, note=note
    )


def note_on(status: StatusLoop, events: EventRecorder, reason: str, text: str) -> None:
    """An event on the node, once it is known to the API server."""
    if status.node is not None:
        events.note(status.node, "Warning", reason, text)
