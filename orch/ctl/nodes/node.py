"""`orchctl node`: the pages of a node's agent, through the API server's node proxy."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from orch.component.terminal import visible
from orch.ctl import api, selection
from orch.ctl.api import Api
from orch.ctl.command_table import Verb
from orch.ctl.failures import CommandFailed
from orch.ctl.nodes import usage
from orch.ctl.output import formats, printing
from orch.wire import raw
from orch.wire.errors import ApiError
from orch.wire.names import DIAGNOSTICS_GROUP

_HEADER = (
    "NAMESPACE", "POD", "CONTAINERS", "CPU", "MEMORY",
    "CPU PRESSURE", "MEMORY PRESSURE", "IO PRESSURE",
)  # fmt: skip


def _verb(page: str, action: Callable[[Api, argparse.Namespace], Any], more: str = "") -> Verb:
    """The command for one page; every page but the plain text of `healthz` takes -o."""

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("node", metavar="NODE", help="name of the node")
        if page != "healthz":
            formats.add_to(parser, formats.DATA)

    example = f"orchctl node {page} worker-1"
    return Verb(add_arguments, partial(api.run, action=action), f"{example}\n{example}{more}")


def _path(args: argparse.Namespace, page: str) -> str:
    return selection.node_path(selection.node_name(args.node), page)


async def _summary(api: Api, args: argparse.Namespace) -> int:
    summary = await api.read(_path(args, "stats/summary"))
    if args.output:
        formats.show(args.output, summary)
        return 0
    print("\n".join(printing.columns(_node_rows(raw.mapping(summary, "node")))))
    pods = raw.records(summary, "pods")
    if pods:
        print("\n" + "\n".join(printing.columns([_HEADER, *sorted(map(_pod_row, pods))])))
    return 0


async def _text(page: str, api: Api, args: argparse.Namespace) -> int:
    """A page as the agent writes it for people."""
    path = _path(args, page)
    async with api.suggesting(path):
        answer = await api.call("GET", path, accept="*/*")
    print("\n".join(map(visible, answer.body.decode(errors="replace").splitlines())))
    return 0


async def _zpage(page: str, kind: str, api: Api, args: argparse.Namespace) -> int:
    """The text of a page, or its record; 406 when the agent serves only its text."""
    try:
        if not args.output:
            return await _text(page, api, args)
        accept = f"application/json;v=v1alpha1;g={DIAGNOSTICS_GROUP};as={kind}"
        formats.show(args.output, await api.read(_path(args, page), accept=accept))
    except ApiError as error:
        if error.code != 404 or error.name:  # a name is that of a missing node
            raise
        raise CommandFailed(
            f"the agent of {selection.node_name(args.node)} does not serve {page}: its feature "
            f"gate Component{kind} is off by default"
        ) from None
    return 0


async def _configz(api: Api, args: argparse.Namespace) -> int:
    found = await api.read(_path(args, "configz"))
    (config,) = found.values() if len(found) == 1 else (found,)
    formats.show(args.output or formats.Format("yaml"), config)
    return 0


def _node_rows(node: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        ("Node", raw.text(node, "nodeName")),
        ("Up since", raw.text(node, "startTime")),
        ("CPU", f"{usage.cores(node)} cores"),
        ("Memory", "{} working set, {} available".format(
            *_sizes(node, "memory", "workingSet", "available"))),
        ("Disk", "{} used, {} of {} available".format(
            *_sizes(node, "fs", "used", "available", "capacity"))),
        ("Network", "{} received, {} sent".format(*_sizes(node, "network", "rx", "tx"))),
        *((f"Pressure {name}", _pressure(node, name, "avg10", "avg60", "avg300"))
          for name in usage.RESOURCES),
    ]  # fmt: skip


def _sizes(record: Mapping[str, Any], part: str, *names: str) -> list[str]:
    return [usage.size_text(usage.number(record, part, f"{name}Bytes")) for name in names]


def _pod_row(pod: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        raw.text(pod, "podRef", "namespace"),
        raw.text(pod, "podRef", "name"),
        str(len(raw.records(pod, "containers"))),
        usage.cores(pod),
        *_sizes(pod, "memory", "workingSet"),
        *(_pressure(pod, name, "avg10") for name in usage.RESOURCES),
    )


def _pressure(record: Mapping[str, Any], resource: str, *windows: str) -> str:
    """Stalled time in percent, averaged over windows."""
    psi = raw.mapping(record, resource, "psi")
    shares = [[raw.value(psi, kind, window) for window in windows] for kind in ("some", "full")]
    some, full = ("/".join(f"{share or 0:.2f}" for share in kind) for kind in shares)
    if not psi:
        return usage.MISSING
    return f"some {some} %, full {full} %" if len(windows) > 1 else f"{some} %"


SUMMARY = _verb("summary", _summary, " -o yaml")
HEALTHZ = _verb("healthz", partial(_text, "healthz"), " -v")
STATUSZ = _verb("statusz", partial(_zpage, "statusz", "Statusz"), " -o json")
FLAGZ = _verb("flagz", partial(_zpage, "flagz", "Flagz"), " -o json")
CONFIGZ = _verb("configz", _configz, " -o jsonpath={.featureGates}")
