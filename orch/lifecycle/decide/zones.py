"""Zones: how much of each is down, and how fast its nodes may be tainted NoExecute; pure.

When much of a zone fails at once, the zone is more likely at fault than its nodes; when everything
fails, the controller is. Source: pkg/controller/nodelifecycle ComputeZoneState, handleDisruption.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from orch.lifecycle.decide.records import Bucket, Settings
from orch.wire import names
from orch.wire.records.core import Node

EXCLUDE_LABEL = "node.orch.io/exclude-disruption"
_FEW = 2  # this many nodes down are never a disruption
_SEPARATOR = ":\0:"


class Disruption(Enum):
    NORMAL = "Normal"
    PARTIAL = "PartialDisruption"
    FULL = "FullDisruption"


@dataclass(frozen=True, slots=True)
class ZoneState:
    """The number of nodes that count for their zone, and how disrupted it is."""

    size: int
    disruption: Disruption


def zone_of(node: Node) -> str:
    """Region and zone as one key; "" for a node that names neither."""
    region, zone = node.metadata.label(names.LABEL_REGION), node.metadata.label(names.LABEL_ZONE)
    return f"{region}{_SEPARATOR}{zone}" if region or zone else ""


def is_counted(node: Node) -> bool:
    """Whether the node counts for its zone."""
    return EXCLUDE_LABEL not in (node.metadata.labels or {})


def survey(
    nodes: Mapping[str, Node], ready: Mapping[str, bool], settings: Settings
) -> dict[str, ZoneState]:
    """The state of every zone that has nodes; `ready` is by node name."""
    votes: dict[str, list[bool]] = {}
    for name, node in nodes.items():
        counted = votes.setdefault(zone_of(node), [])
        if is_counted(node):
            counted.append(ready[name])
    return {
        zone: ZoneState(len(found), disruption(sum(found), len(found) - sum(found), settings))
        for zone, found in votes.items()
    }


def disruption(ready: int, not_ready: int, settings: Settings) -> Disruption:
    if ready == 0 and not_ready > 0:
        return Disruption.FULL
    share = not_ready / max(1, ready + not_ready)
    if not_ready > _FEW and share >= settings.unhealthy_zone_threshold:
        return Disruption.PARTIAL
    return Disruption.NORMAL


def all_down(states: Mapping[str, ZoneState]) -> bool:
    """Whether every zone with counted nodes is down; False while there is none."""
    counted = [state for state in states.values() if state.size]
    return bool(counted) and all(state.disruption is Disruption.FULL for state in counted)


def rate(state: ZoneState, settings: Settings) -> float:
    """Nodes per second that may be tainted NoExecute."""
    if state.disruption is not Disruption.PARTIAL:
        return settings.eviction_rate
    return settings.secondary_eviction_rate if state.size > settings.large_zone_size else 0.0


def refill(bucket: Bucket | None, rate: float, now_s: float, settings: Settings) -> Bucket:
    """The bucket refilled for the time since; a new bucket allows one node immediately."""
    if bucket is None:
        return Bucket(1.0, now_s)
    limit = max(1.0, rate * settings.period_s)
    tokens = min(limit, bucket.tokens + rate * (now_s - bucket.at_s))
    return Bucket(tokens, now_s)
