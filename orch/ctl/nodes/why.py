"""`orchctl node why NODE`: who causes pressure on a node, whom it hurts, and what to do about it.

The agent judges; this prints its report, a line for each cause, the worst first.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from orch.component.terminal import one_line
from orch.ctl import api, selection
from orch.ctl.api import Api
from orch.ctl.failures import CommandFailed
from orch.ctl.nodes import usage
from orch.ctl.output import formats
from orch.wire import raw
from orch.wire.errors import ApiError
from orch.wire.times import human_age, parse_time

EXAMPLES = """
orchctl node why worker-1
orchctl node why worker-1 -o json
"""
_KIND = "NodePressure"
_MAX_LINES = 5
_MUCH = 20.0  # percent
_UNSURE = 0.7  # below this confidence a cause is called probable
_HEADINGS = {"io": "disks", "process": "processes"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("node", metavar="NODE", help="name of the node")
    formats.add_to(parser, formats.DATA)


def run(args: argparse.Namespace) -> int:
    return api.run(args, _why)


async def _why(api: Api, args: argparse.Namespace) -> int:
    name = selection.node_name(args.node)
    report = await ask(api, name)
    if args.output:
        formats.show(args.output, report)
    else:
        print("\n".join(map(one_line, lines(name, report))))
    return 0


async def ask(api: Api, name: str) -> Mapping[str, Any]:
    """The report of a node's agent; CommandFailed where the agent has none."""
    try:
        report = await api.read(selection.node_path(name, "pressure"))
    except ApiError as error:
        if error.code != 404 or error.name:  # a name is that of a missing node
            raise
        raise CommandFailed(
            f"the agent of {name} does not say why: it is older than this command; "
            f"'orchctl node top {name} --pressure' shows who waits"
        ) from None
    if report.get("kind") != _KIND:
        raise CommandFailed(f"the agent of {name} answered with something else than {_KIND}")
    return report


def lines(name: str, report: Mapping[str, Any]) -> list[str]:
    """One line where nothing is wrong, else one for each cause."""
    causes = raw.records(report, "causes")
    if not causes:
        return [f"{name}: {_quiet(report)} ({', '.join(_waits(report)) or 'pressure unknown'})"]
    shown = [_line(name, cause, raw.text(report, "time")) for cause in causes[:_MAX_LINES]]
    more = len(causes) - len(shown) + raw.number(report, "more")
    if more:
        shown[-1] += f" (and {more} more causes: -o json)"
    return shown


def _quiet(report: Mapping[str, Any]) -> str:
    if not raw.value(report, "windowSeconds"):
        return "the agent has just started; ask again in ten seconds"
    if any(share >= _MUCH for share in _shares(report).values()):
        return "tasks wait, and nobody stands out as the cause"
    return "nothing waits long enough to need a cause"


def _waits(report: Mapping[str, Any]) -> list[str]:
    return [f"{resource} {share:.0f} %" for resource, share in _shares(report).items()]


def _shares(report: Mapping[str, Any]) -> dict[str, float]:
    """Percent of the last ten seconds in which some task waited, by resource."""
    found = {}
    for resource in usage.RESOURCES:
        averages = raw.value(report, "resources", resource, "some")
        if isinstance(averages, list) and averages and isinstance(averages[0], int | float):
            found[resource] = float(averages[0])
    return found


def _line(node: str, cause: Mapping[str, Any], now: str) -> str:
    resource = raw.text(cause, "resource")
    confidence = raw.value(cause, "confidence")
    is_unsure = isinstance(confidence, int | float) and confidence < _UNSURE
    since = _since(raw.text(cause, "since"), now)
    culprit = raw.mapping(cause, "culprit")
    hurt = [_subject(node, one) for one in raw.records(cause, "suffers") if one != culprit]
    others = raw.number(cause, "sufferers") - len(raw.records(cause, "suffers"))
    if others > 0:
        hurt.append(f"{others} more")
    return "".join(
        (
            f"{_HEADINGS.get(resource, resource)}: {'probably ' if is_unsure else ''}",
            f"{_subject(node, culprit)} {raw.text(cause, 'does')}",
            f", {since}" if since else "",
            f"; {', '.join(hurt)} {'suffer' if len(hurt) > 1 else 'suffers'}" if hurt else "",
            f". Next: {raw.text(cause, 'nextStep')}.",
        )
    )


def _subject(node: str, subject: Mapping[str, Any]) -> str:
    pod, container = raw.text(subject, "pod"), raw.text(subject, "container")
    if pod:
        where = f" ({container})" if container else ""
        return f"pod {raw.text(subject, 'namespace')}/{pod}{where}"
    service = raw.text(subject, "service")
    return f"service {service}" if service else f"node {node}"


def _since(since: str, now: str) -> str:
    """`for 4m`; empty where a time cannot be read."""
    try:
        seconds = (parse_time(now) - parse_time(since)).total_seconds()
    except ValueError:
        return ""
    return f"for {human_age(seconds)}"
