"""The devices that plugins list, and the node's extended resources that follow from them; pure.

A resource counts all its devices in capacity and the healthy ones in allocatable. When its plugin
is gone, no device is healthy; GRACE_S later there are none (cm/devicemanager/types.go).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

GRACE_S = 300.0
HEALTHY, UNHEALTHY, UNKNOWN = "Healthy", "Unhealthy", "Unknown"
MAX_RESOURCES = 256
MAX_DEVICES = 32_768  # of all resources


class TooManyDevices(Exception):
    """All plugins together list more than there may be; the text says so."""


class Device(NamedTuple):
    id: str
    is_healthy: bool
    numa_nodes: tuple[int, ...] = ()


class ResourceCount(NamedTuple):
    capacity: int
    allocatable: int


@dataclass(slots=True)
class _Listed:
    devices: Mapping[str, Device] = field(default_factory=dict)
    gone_at_s: float | None = None  # None while the plugin is connected


class Inventory:
    """Resources by name; times are the loop's."""

    def __init__(self) -> None:
        self._listed: dict[str, _Listed] = {}
        self._former: set[str] = set()  # resources that had a plugin and went

    def expect(self, resources: Iterable[str], now_s: float) -> None:
        """Resources of an earlier agent, whose plugins may register again."""
        for resource in resources:
            self._listed.setdefault(resource, _Listed(gone_at_s=now_s))

    def changes(self, resource: str, devices: Mapping[str, Device]) -> frozenset[str]:
        """The ids whose health is another once these are listed. It takes 30 ms at most, and may be
        asked in a thread.
        """
        before = self._listed.get(resource)
        old = before.devices if before and before.gone_at_s is None else {}
        return frozenset(
            one for one in {*old, *devices} if _health(old, one) != _health(devices, one)
        )

    def list(self, resource: str, devices: Mapping[str, Device]) -> None:
        """Replace the devices of a resource; those of plugins that are gone make room for them.
        TooManyDevices.
        """
        if self._others(resource) + len(devices) > MAX_DEVICES:
            self.drop_gone()
        others = self._others(resource)
        if others + len(devices) > MAX_DEVICES:
            raise TooManyDevices(
                f"{len(devices)} devices are listed, {others} of other resources are known, and "
                f"{MAX_DEVICES} are allowed in all"
            )
        self._listed[resource] = _Listed(devices)

    def _others(self, resource: str) -> int:
        """How many devices all other resources have."""
        return sum(len(its.devices) for name, its in self._listed.items() if name != resource)

    def lose(self, resource: str, now_s: float) -> frozenset[str]:
        """The plugin of a resource is gone; the ids of its devices, if it ever listed any."""
        listed = self._listed.setdefault(resource, _Listed())
        if listed.gone_at_s is not None:
            return frozenset()
        listed.gone_at_s = now_s
        return frozenset(listed.devices)

    def expire(self, now_s: float) -> bool:
        """Drop the resources whose plugin is gone for good; whether there were any."""
        return self._drop(now_s - GRACE_S)

    def drop_gone(self) -> None:
        """Drop all resources whose plugin is gone, at once."""
        self._drop(math.inf)

    def _drop(self, until_s: float) -> bool:
        """Drop what is gone since then or longer; whether there was any."""
        gone = [
            resource
            for resource, listed in self._listed.items()
            if listed.gone_at_s is not None and listed.gone_at_s <= until_s
        ]
        for resource in gone:
            del self._listed[resource]
            if len(self._former) < MAX_RESOURCES:
                self._former.add(resource)
        return bool(gone)

    def has(self, resource: str) -> bool:
        """Whether a plugin offers the resource, or did since this agent started."""
        return resource in self._listed or resource in self._former

    def resources(self) -> Collection[str]:
        return self._listed.keys()

    def gone(self) -> frozenset[str]:
        """Resources that had a plugin and went."""
        return frozenset(self._former - self._listed.keys())

    def healthy(self, resource: str) -> Collection[str] | None:
        """Ids; None for a resource without a plugin."""
        listed = self._listed.get(resource)
        if listed is None:
            return None
        if listed.gone_at_s is not None:
            return ()
        return [device.id for device in listed.devices.values() if device.is_healthy]

    def device(self, resource: str, one: str) -> Device | None:
        listed = self._listed.get(resource)
        return listed.devices.get(one) if listed else None

    def health(self, resource: str, one: str) -> str:
        """HEALTHY, UNHEALTHY, or UNKNOWN while no plugin lists the device."""
        listed = self._listed.get(resource)
        known = listed.devices if listed and listed.gone_at_s is None else {}
        return _health(known, one)

    def counts(self) -> dict[str, ResourceCount]:
        """By resource."""
        return {
            resource: ResourceCount(len(listed.devices), len(self.healthy(resource) or ()))
            for resource, listed in self._listed.items()
        }


def _health(known: Mapping[str, Device], one: str) -> str:
    device = known.get(one)
    if device is None:
        return UNKNOWN
    return HEALTHY if device.is_healthy else UNHEALTHY
