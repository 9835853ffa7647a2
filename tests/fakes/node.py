"""Facts of an ordinary, healthy node, to be bent by the tests that need another one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nodeagent.node.rules.facts import (
    AddressFacts,
    FilesystemFacts,
    ImageFacts,
    MachineFacts,
    NodeFacts,
    UsageFacts,
)
from nodeagent.node.rules.pressure import parse_thresholds
from nodeagent.node.rules.settings import NodeSettings
from nodeagent.runtime.base import RuntimeCondition, RuntimeVersion
from nodeagent.runtime.verdict import RuntimeHealth

GI = 1024**3
READY = (RuntimeCondition("RuntimeReady", True), RuntimeCondition("NetworkReady", True))
DEFAULT_HARD = {
    "memory.available": "100Mi",
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
    "imagefs.available": "15%",
    "imagefs.inodesFree": "5%",
}


def settings(**changes: Any) -> NodeSettings:
    base = NodeSettings(
        node_name="n1",
        agent_version="v0.1.0",
        agent_port=10250,
        thresholds=parse_thresholds(DEFAULT_HARD),
    )
    return replace(base, **changes)


def machine(**changes: Any) -> MachineFacts:
    base = MachineFacts(
        cpu_count=4,
        memory_bytes=8 * GI,
        hostname="host-1",
        architecture="amd64",
        operating_system="linux",
        kernel_version="6.1.0",
        os_image="Debian GNU/Linux 12",
        machine_id="m",
        system_uuid="s",
        boot_id="b",
    )
    return replace(base, **changes)


def usage(**changes: Any) -> UsageFacts:
    fs = FilesystemFacts(
        available_bytes=50 * GI, capacity_bytes=100 * GI, inodes_free=900, inodes=1000
    )
    base = UsageFacts(
        memory_available_bytes=6 * GI,
        memory_working_set_bytes=2 * GI,
        node_fs=fs,
        image_fs=fs,
        pids_in_use=500,
        pids_max=32768,
    )
    return replace(base, **changes)


def runtime(**changes: Any) -> RuntimeHealth:
    base = RuntimeHealth(
        last_good_s=100.0,
        conditions=READY,
        version=RuntimeVersion("containerd", "2.1.9", "v1"),
    )
    return replace(base, **changes)


def facts(**changes: Any) -> NodeFacts:
    """A Ready node at loop time 100."""
    base = NodeFacts(
        time_s=100.0,
        machine=machine(),
        usage=usage(),
        runtime=runtime(),
        images=(ImageFacts(("r@sha256:1", "r:1"), 1000),),
        addresses=(AddressFacts("InternalIP", "192.0.2.7"), AddressFacts("Hostname", "host-1")),
    )
    return replace(base, **changes)
