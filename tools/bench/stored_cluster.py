"""A data file with the objects of a large cluster, written by the server's own storage."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from orch.server.objects.document import encode, key_of
from orch.server.storage.sqlite import SqliteStorage
from orch.wire.records.kinds import LEASES, NODES, PODS, Resource

LEASE_NAMESPACE = "orch-node-lease"
TIME = "2026-01-01T00:00:00Z"
_CONDITIONS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")


def node(name: str) -> dict[str, Any]:
    """A node as an agent reports it, with twenty images: about 4 kB."""
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "labels": {"orch.io/hostname": name, "orch.io/os": "linux", "orch.io/arch": "amd64"},
        },
        "spec": {},
        "status": {
            "capacity": {"cpu": "8", "memory": "32Gi", "pods": "110"},
            "allocatable": {"cpu": "7800m", "memory": "30Gi", "pods": "110"},
            "conditions": [
                {
                    "type": kind, "status": "True" if kind == "Ready" else "False",
                    "reason": f"NodeHas{kind}", "message": f"the node is well as to {kind}",
                    "lastHeartbeatTime": TIME, "lastTransitionTime": TIME,
                }
                for kind in _CONDITIONS
            ],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "images": [
                {"names": [f"registry.example/team/application-{n}:v1.{n}"], "sizeBytes": 10**8 + n}
                for n in range(20)
            ],
            "nodeInfo": {"kernelVersion": "6.18.0", "osImage": "Debian", "architecture": "amd64"},
        },
    }  # fmt: skip


def lease(name: str) -> dict[str, Any]:
    return {
        "kind": "Lease",
        "apiVersion": LEASES.api_version,
        "metadata": {"name": name, "namespace": LEASE_NAMESPACE},
        "spec": {
            "holderIdentity": name,
            "leaseDurationSeconds": 40,
            "renewTime": "2026-01-01T00:00:00.000000Z",
        },
    }


def pod(name: str) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "bench"}},
        "spec": {"nodeName": "n0", "containers": [{"name": "c", "image": "application:1"}]},
        "status": {"phase": "Running", "podIP": "10.1.0.1", "startTime": TIME},
    }


def fill(file: Path, *, nodes: int, pods: int = 0) -> None:
    """Write that many Nodes with a Lease each, and Pods."""
    asyncio.run(_fill(file, nodes, pods))


async def _fill(file: Path, nodes: int, pods: int) -> None:
    storage = SqliteStorage(file)
    await storage.open()

    async def put(resource: Resource, document: dict[str, Any]) -> None:
        metadata = document["metadata"] = {
            **document["metadata"],
            "uid": "00000000-0000-4000-8000-000000000000",
            "creationTimestamp": TIME,
        }
        key = key_of(resource, metadata.get("namespace", ""), metadata["name"])
        await storage.create(key, encode(document))

    names = [f"n{number}" for number in range(nodes)]
    await asyncio.gather(*(put(NODES, node(name)) for name in names))
    await asyncio.gather(*(put(LEASES, lease(name)) for name in names))
    await asyncio.gather(*(put(PODS, pod(f"p{number}")) for number in range(pods)))
    await storage.close()
