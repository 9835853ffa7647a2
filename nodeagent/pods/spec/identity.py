"""Fingerprints that recognise a pod and a container across restarts and upgrades; pure.

A container's hash leaves out whatever is empty, so that a newer agent whose records know more
fields computes the same value and touches no running container.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from orch.wire.records.pods import Container


def container_hash(container: Container) -> str:
    """16 hexadecimal digits over everything that was said about the container."""
    return _digest(_meaningful(container.to_wire()))[:16]


def static_pod_uid(manifest: Any, node_name: str, origin: str) -> str:
    """32 hexadecimal digits; `origin` is `file:<path>` or `url:<url>`."""
    return _digest([manifest, f"host:{node_name}", origin])[:32]


def _digest(data: Any) -> str:
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _meaningful(data: Any) -> Any:
    if isinstance(data, dict):
        kept = {key: _meaningful(value) for key, value in data.items()}
        return {key: value for key, value in kept.items() if value not in (None, "", [], {})}
    if isinstance(data, list):
        return [_meaningful(item) for item in data]
    return data
