"""`orchctl node`: what a node's agent says of itself, through the API server's node proxy."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from orch.ctl import printing, session
from orch.ctl.api import Api, segment
from orch.ctl.failures import WrongUsage, visible
from orch.wire import raw

_MISSING = "-"
_GIB, _MIB = 2**30, 2**20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("question", choices=("summary", "healthz"), help="what to ask")
    parser.add_argument("node", metavar="NODE", help="name of the node")
    parser.add_argument("-o", "--output", choices=("json", "yaml"), default="", help="form")


def run(args: argparse.Namespace) -> int:
    return session.run(args, _summary if args.question == "summary" else _healthz)


async def _healthz(api: Api, args: argparse.Namespace) -> int:
    if args.output:
        raise WrongUsage("healthz is plain text: leave -o out")
    answer = await api.call("GET", _proxied(args.node, "healthz"), accept="*/*")
    print("\n".join(map(visible, answer.body.decode(errors="replace").splitlines())))
    return 0


async def _summary(api: Api, args: argparse.Namespace) -> int:
    summary = await api.get(_proxied(args.node, "stats/summary"))
    if args.output:
        print(printing.as_json(summary) if args.output == "json" else printing.as_yaml(summary))
        return 0
    print("\n".join(_node_lines(raw.mapping(summary, "node"))))
    pods = raw.records(summary, "pods")
    if pods:
        print("\n" + "\n".join(printing.columns([_HEADER, *sorted(map(_pod_row, pods))])))
    return 0


def _proxied(node: str, path: str) -> str:
    return f"/api/v1/nodes/{segment(node)}/proxy/{path}"


def _node_lines(node: Mapping[str, Any]) -> list[str]:
    rows = [("Node", raw.text(node, "nodeName")), ("Up since", raw.text(node, "startTime"))]
    rows += [
        ("CPU", f"{_cores(raw.mapping(node, 'cpu'))} cores"),
        ("Memory", f"{_bytes(node, 'memory', 'workingSetBytes')} working set, "
                   f"{_bytes(node, 'memory', 'availableBytes')} available"),
        ("Disk", f"{_bytes(node, 'fs', 'usedBytes')} used, "
                 f"{_bytes(node, 'fs', 'availableBytes')} of "
                 f"{_bytes(node, 'fs', 'capacityBytes')} available"),
        ("Network", f"{_bytes(node, 'network', 'rxBytes')} received, "
                    f"{_bytes(node, 'network', 'txBytes')} sent"),
    ]  # fmt: skip
    rows += [
        (f"Pressure {name}", _pressure(raw.mapping(node, name, "psi")))
        for name in ("cpu", "memory", "io")
    ]
    return printing.columns(rows)


_HEADER = (
    "NAMESPACE", "POD", "CONTAINERS", "CPU", "MEMORY",
    "CPU PRESSURE", "MEMORY PRESSURE", "IO PRESSURE",
)  # fmt: skip


def _pod_row(pod: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        raw.text(pod, "podRef", "namespace"),
        raw.text(pod, "podRef", "name"),
        str(len(raw.records(pod, "containers"))),
        _cores(raw.mapping(pod, "cpu")),
        _bytes(pod, "memory", "workingSetBytes"),
        *(_some(raw.mapping(pod, name, "psi")) for name in ("cpu", "memory", "io")),
    )


def _cores(cpu: Mapping[str, Any]) -> str:
    nano = raw.value(cpu, "usageNanoCores")
    return f"{nano / 10**9:.3f}" if isinstance(nano, int) else _MISSING


def _bytes(record: Mapping[str, Any], *path: str) -> str:
    size = raw.value(record, *path)
    if not isinstance(size, int):
        return _MISSING
    return f"{size / _GIB:.1f}Gi" if size >= _GIB else f"{size / _MIB:.1f}Mi"


def _pressure(psi: Mapping[str, Any]) -> str:
    """Stalled time in percent over 10 s, 60 s and 5 min."""
    if not psi:
        return _MISSING
    return ", ".join(
        f"{kind} {'/'.join(_percent(psi, kind, f'avg{window}') for window in (10, 60, 300))} %"
        for kind in ("some", "full")
    )


def _some(psi: Mapping[str, Any]) -> str:
    return f"{_percent(psi, 'some', 'avg10')} %" if psi else _MISSING


def _percent(psi: Mapping[str, Any], *path: str) -> str:
    share = raw.value(psi, *path)
    return f"{share:.2f}" if isinstance(share, int | float) else _MISSING
