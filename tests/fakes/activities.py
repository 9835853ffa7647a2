"""Containers and services as evidence shows them, for tests of causes."""

from __future__ import annotations

from typing import Any

from nodeagent.pressure.evidence import Activity, DeviceUse, Evidence, Subject
from nodeagent.stats.samples import Limits, MemorySample

MB = 1_000_000
NO_STALLS = {"cpu": 0.0, "memory": 0.0, "io": 0.0}
DISK = (259, 0)


def activity(name: str, *, service: bool = False, **more: Any) -> Activity:
    """A container `app` of the pod `shop/NAME`, or a service, that does nothing but `more`."""
    subject = Subject(service=name) if service else Subject("shop", name, "app")
    stalls = {**NO_STALLS, **more.pop("stalls", {})}
    idle: dict[str, Any] = {
        "limits": Limits(cpu_shares=2), "cores": 0.0, "throttled": 0.0,
        "memory": MemorySample(usage_bytes=10 * MB), "anon_growth": 0.0,
        "swap_growth": 0.0, "limit_hits": 0.0,
        "killed": 0, "major_faults": 0.0, "threads": 2, "thread_growth": 0, "io": None,
    }  # fmt: skip
    return Activity(subject=subject, stalls=stalls, **{**idle, **more})


def machine(*activities: Activity, **more: Any) -> Evidence:
    """Ten seconds of a machine of two processors with these containers and services."""
    stalls = {**NO_STALLS, **more.pop("stalls", {})}
    usual: dict[str, Any] = {
        "time_ns": 1_800_000_000_000_000_000, "seconds": 10.0, "cpus": 2,
        "cores": sum(each.cores for each in activities), "available_share": 0.6,
        "sees_services": True,
    }  # fmt: skip
    return Evidence(stalls=stalls, activities=activities, **{**usual, **more})


def reads(size_bytes: float, requests: float) -> DeviceUse:
    return DeviceUse(DISK, size_bytes, 0.0, requests, 0.0)


def writes(size_bytes: float, requests: float) -> DeviceUse:
    return DeviceUse(DISK, 0.0, size_bytes, 0.0, requests)
