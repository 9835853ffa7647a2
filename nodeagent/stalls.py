"""Telling of a stall that a pressure trigger reported: a log line, and an event on what stalled."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.pods.registry import PodRegistry
from nodeagent.stats.sampler import Sampler
from nodeagent.triggers import PressureTriggers, Stall, TriggerRule
from orch.wire.core import Node
from orch.wire.meta import ApiObject, ObjectMeta

log = logging.getLogger(__name__)

REASON = "PressureStall"


class Recorder(Protocol):
    """Where events go; `orch.client.events.EventRecorder` is one."""

    def note(self, obj: ApiObject, type: str, reason: str, message: str) -> None: ...  # noqa: A002


def pressure_triggers(
    config: NodeAgentConfiguration,
    *,
    node_name: str,
    sampler: Sampler,
    registry: PodRegistry,
    recorder: Recorder | None,
) -> PressureTriggers:
    """The triggers of the configuration, told as log lines and events."""
    rules = [
        TriggerRule(one.resource, one.level, one.scope, one.threshold, one.window)
        for one in config.psiTriggers
    ]
    return PressureTriggers(
        rules,
        pods=lambda: sampler.latest.pods if sampler.latest else (),
        tell=stall_teller(node_name, registry, recorder),
        cgroups=sampler.reader.layout.unified,
    )


def stall_teller(
    node_name: str, registry: PodRegistry, recorder: Recorder | None
) -> Callable[[Stall], None]:
    """A function that logs a stall and notes it on its node or pod."""
    # Events about a node carry its name as uid, so that `describe node` finds them.
    node = Node(metadata=ObjectMeta(name=node_name, uid=node_name))

    def tell(stall: Stall) -> None:
        what = _name_of(stall)
        log.warning("%s of %s", stall.rule, what)
        if recorder is None:
            return
        obj = registry.find(stall.namespace, stall.pod) if stall.pod else node
        if obj is not None:
            recorder.note(obj, "Warning", REASON, f"{stall.rule} of {what}")

    return tell


def _name_of(stall: Stall) -> str:
    if not stall.pod:
        return "the node"
    pod = f"pod {stall.namespace}/{stall.pod}"
    return f"container {stall.container} of {pod}" if stall.container else pod
