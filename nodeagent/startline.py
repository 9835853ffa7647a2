"""The first line an agent writes: which one it is, how it is configured, what it lacks; pure."""

from __future__ import annotations

from collections.abc import Sequence

from nodeagent.config.types import NodeAgentConfiguration
from orch.component.features import Features
from orch.wire import version


def start_line(
    config: NodeAgentConfiguration,
    features: Features,
    *,
    node_name: str,
    source: str,
    digest: str,
    missing: Sequence[str],
) -> str:
    """`source` is the main file ("" for none), `missing` one phrase for each thing, and why."""
    parts = [
        f"configuration {digest} from {source or 'defaults and flags'}",
        f"serving {config.address}:{config.port}",
        *missing,
        *_gates(features),
    ]
    return f"node agent {version.VERSION} for node {node_name}: {'; '.join(parts)}"


def _gates(features: Features) -> list[str]:
    """Which gates were switched, and which are off, each with why."""
    states = list(features.all())
    switched = [f"{gate.name}={str(on).lower()}" for gate, on in states if on != gate.default]
    on = [gate.name for gate, enabled in states if enabled]
    off = [
        f"{gate.name} ({'switched off' if gate.default else gate.stage.value.lower()})"
        for gate, enabled in states
        if not enabled
    ]
    told = [f"features on: {', '.join(on)}"]
    if off:
        told.append(f"off: {', '.join(off)}")
    if switched:
        told.append(f"gates set: {', '.join(switched)}")
    return told
