"""The inputs of a controller, decision after decision, as a file: JSON lines of what changed.

The first line holds the settings. Of nodes and pods only those fields are kept that a decision
looks at; of Leases, all of which belong to nodes, their uid and when they were renewed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TextIO

from orch.lifecycle.decide.records import Settings, Stamp, View
from orch.wire import times
from orch.wire.records.configuration import Lease
from orch.wire.records.core import Node
from orch.wire.records.pods import Pod
from tests.fakes import cluster

FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "histories"
_LONG_S = 3600.0  # a view that was never current is said to be so old

State = dict[str, dict[str, Any]]  # kind → key → what is kept of the object


@dataclass(frozen=True, slots=True)
class Look:
    """One decision's view; `begins` says that its controller remembered nothing."""

    view: View
    begins: bool


class Writer:
    """Appends looks to a file that stays readable if the program is killed."""

    def __init__(self, file: TextIO, settings: Settings) -> None:
        self._file = file
        self._last: State = {}
        self._line({"settings": asdict(settings)})

    def add(self, look: Look) -> None:
        state = _state(look.view)
        changed = {kind: _changed(self._last.get(kind, {}), state[kind]) for kind in state}
        self._last = state
        age_s = round(min(look.view.age_s, _LONG_S), 3)
        line = {"t": round(look.view.stamp.now_s, 3), "age": age_s, "begins": look.begins}
        self._line({**line, **{kind: some for kind, some in changed.items() if some}})

    def _line(self, data: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(data, separators=(",", ":")) + "\n")
        self._file.flush()


def read(path: Path) -> tuple[Settings, list[Look]]:
    """A line that was cut off at the end, as by a kill, does not count."""
    text = path.read_text()
    first, *others = (json.loads(line) for line in text[: text.rfind("\n")].splitlines())
    return Settings(**first["settings"]), list(_looks(others))


def write(path: Path, settings: Settings, looks: Sequence[Look]) -> None:
    with path.open("w") as file:
        writer = Writer(file, settings)
        for look in looks:
            writer.add(look)


def _looks(lines: Sequence[Mapping[str, Any]]) -> Iterator[Look]:
    state: State = {"nodes": {}, "leases": {}, "pods": {}}
    for line in lines:
        for kind, known in state.items():
            known.update(line.get(kind, {}))
        state = {
            kind: {key: kept for key, kept in known.items() if kept is not None}
            for kind, known in state.items()
        }
        yield Look(_view(state, line["t"], line["age"]), line["begins"])


def _view(state: State, now_s: float, age_s: float) -> View:
    pods: dict[str, list[Pod]] = {}
    for wire in state["pods"].values():
        pod = Pod.from_wire(wire)
        pods.setdefault(pod.spec.nodeName or "", []).append(pod)
    unbound = pods.pop("", [])
    leases = {name: _lease(name, *kept) for name, kept in state["leases"].items()}
    nodes = {name: Node.from_wire(wire) for name, wire in state["nodes"].items()}
    moment = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=now_s)
    return View(nodes, leases, pods, Stamp(now_s, times.format_time(moment)), age_s, unbound)


def _lease(name: str, uid: str, renewed: str) -> Lease:
    lease = cluster.lease(name, renewed)
    lease.metadata.uid = uid
    return lease


def _state(view: View) -> State:
    pods = [*view.unbound, *(pod for some in view.pods.values() for pod in some)]
    return {
        "nodes": {name: _kept_of_node(node) for name, node in view.nodes.items()},
        "leases": {
            name: [lease.metadata.uid or "", lease.spec.renewTime or ""]
            for name, lease in view.leases.items()
        },
        "pods": {pod.metadata.uid or "": _kept_of_pod(pod) for pod in pods},
    }


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """None is what went away."""
    new = {key: kept for key, kept in after.items() if before.get(key) != kept}
    return {**new, **{key: None for key in before if key not in after}}


def _kept_of_node(node: Node) -> dict[str, Any]:
    wire = node.to_wire()
    conditions = [
        {key: value for key, value in one.items() if key != "message"}
        for one in wire["status"].get("conditions", [])
    ]
    kept = ("name", "uid", "labels", "creationTimestamp")
    labels = {k: v for k, v in (node.metadata.labels or {}).items() if k.startswith("topology.")}
    return {
        "metadata": {**_only(wire["metadata"], kept), "labels": labels},
        "spec": _only(wire["spec"], ("taints", "unschedulable")),
        "status": {"conditions": conditions},
    }


def _kept_of_pod(pod: Pod) -> dict[str, Any]:
    wire = pod.to_wire()
    conditions = [_only(one, ("type", "status")) for one in wire["status"].get("conditions", [])]
    return {
        "metadata": _only(wire["metadata"], ("name", "namespace", "uid", "deletionTimestamp")),
        "spec": _only(wire["spec"], ("nodeName", "tolerations")),
        "status": {"conditions": conditions},
    }


def _only(wire: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {key: wire[key] for key in keys if key in wire}
