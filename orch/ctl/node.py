"""`orchctl node`: what a node's agent says of itself, through the API server's node proxy."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial
from typing import Any

from orch.ctl import forms, printing, session, targets, usage
from orch.ctl.api import Api
from orch.ctl.commands import Verb
from orch.ctl.failures import CommandFailed, visible
from orch.wire import raw
from orch.wire.errors import ApiError
from orch.wire.names import DIAGNOSTICS_GROUP


def _node_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("node", metavar="NODE", help="name of the node")


def _data_arguments(parser: argparse.ArgumentParser) -> None:
    _node_argument(parser)
    forms.add_to(parser, (*forms.DATA, "jsonpath", "jsonpath-file"))


def _run_summary(args: argparse.Namespace) -> int:
    return session.run(args, _summary)


async def _summary(api: Api, args: argparse.Namespace) -> int:
    summary = await api.read(_page(args, "stats/summary"))
    if args.output:
        forms.show(args.output, summary)
        return 0
    print("\n".join(_node_lines(raw.mapping(summary, "node"))))
    pods = raw.records(summary, "pods")
    if pods:
        print("\n" + "\n".join(printing.columns([_HEADER, *sorted(map(_pod_row, pods))])))
    return 0


def _page(args: argparse.Namespace, page: str) -> str:
    return targets.node_path(targets.node_name(args.node), page)


def _run_text(args: argparse.Namespace, page: str) -> int:
    return session.run(args, partial(_text, page))


async def _text(page: str, api: Api, args: argparse.Namespace) -> int:
    """A page as the agent writes it for people."""
    path = _page(args, page)
    async with api.naming(path):
        answer = await api.call("GET", path, accept="*/*")
    print("\n".join(map(visible, answer.body.decode(errors="replace").splitlines())))
    return 0


def _run_zpage(args: argparse.Namespace, page: str, kind: str) -> int:
    return session.run(args, partial(_zpage, page, kind))


async def _zpage(page: str, kind: str, api: Api, args: argparse.Namespace) -> int:
    """The text of a page, or its record; 406 when the agent serves its text only."""
    try:
        if not args.output:
            return await _text(page, api, args)
        accept = f"application/json;v=v1alpha1;g={DIAGNOSTICS_GROUP};as={kind}"
        forms.show(args.output, await api.read(_page(args, page), accept=accept))
    except ApiError as error:
        if error.code != 404 or error.name:  # a name is that of a node that is not there
            raise
        node = targets.node_name(args.node)
        raise CommandFailed(
            f"the agent of {node} does not serve {page}: its feature gate Component{kind} is off "
            "by default"
        ) from None
    return 0


def _run_configz(args: argparse.Namespace) -> int:
    return session.run(args, _configz)


async def _configz(api: Api, args: argparse.Namespace) -> int:
    found = await api.read(_page(args, "configz"))
    (config,) = found.values() if len(found) == 1 else (found,)
    forms.show(args.output or forms.Form("yaml"), config)
    return 0


def _node_lines(node: Mapping[str, Any]) -> list[str]:
    rows = [("Node", raw.text(node, "nodeName")), ("Up since", raw.text(node, "startTime"))]
    rows += [
        ("CPU", f"{usage.cores(raw.mapping(node, 'cpu'))} cores"),
        ("Memory", f"{usage.size(node, 'memory', 'workingSetBytes')} working set, "
                   f"{usage.size(node, 'memory', 'availableBytes')} available"),
        ("Disk", f"{usage.size(node, 'fs', 'usedBytes')} used, "
                 f"{usage.size(node, 'fs', 'availableBytes')} of "
                 f"{usage.size(node, 'fs', 'capacityBytes')} available"),
        ("Network", f"{usage.size(node, 'network', 'rxBytes')} received, "
                    f"{usage.size(node, 'network', 'txBytes')} sent"),
    ]  # fmt: skip
    rows += [
        (f"Pressure {name}", _pressure(raw.mapping(node, name, "psi"))) for name in usage.RESOURCES
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
        usage.cores(raw.mapping(pod, "cpu")),
        usage.size(pod, "memory", "workingSetBytes"),
        *(_some(raw.mapping(pod, name, "psi")) for name in usage.RESOURCES),
    )


def _pressure(psi: Mapping[str, Any]) -> str:
    """Stalled time in percent over 10 s, 60 s and 5 min."""
    if not psi:
        return usage.MISSING
    return ", ".join(
        f"{kind} {'/'.join(_percent(psi, kind, f'avg{window}') for window in (10, 60, 300))} %"
        for kind in ("some", "full")
    )


def _some(psi: Mapping[str, Any]) -> str:
    return f"{_percent(psi, 'some', 'avg10')} %" if psi else usage.MISSING


def _percent(psi: Mapping[str, Any], *path: str) -> str:
    share = raw.value(psi, *path)
    return f"{share:.2f}" if isinstance(share, int | float) else usage.MISSING


SUMMARY = Verb(_data_arguments, _run_summary, "orchctl node summary worker-1")
HEALTHZ = Verb(_node_argument, partial(_run_text, page="healthz"), "orchctl node healthz worker-1")
STATUSZ = Verb(
    _data_arguments, partial(_run_zpage, page="statusz", kind="Statusz"),
    "orchctl node statusz worker-1\norchctl node statusz worker-1 -o json",
)  # fmt: skip
FLAGZ = Verb(
    _data_arguments, partial(_run_zpage, page="flagz", kind="Flagz"), "orchctl node flagz worker-1"
)
CONFIGZ = Verb(
    _data_arguments, _run_configz,
    "orchctl node configz worker-1\norchctl node configz worker-1 -o jsonpath={.featureGates}",
)  # fmt: skip
