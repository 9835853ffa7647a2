"""`orchctl wait`: until objects exist, are gone, or reach a state."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from orch.component.terminal import visible
from orch.ctl import api, changes, selection
from orch.ctl.api import Api
from orch.ctl.discovery import Discovery
from orch.ctl.failures import CommandFailed, WrongUsage
from orch.ctl.manifests import Manifest
from orch.ctl.options import seconds
from orch.ctl.selection import Selected
from orch.wire import jsonpath, raw

EXAMPLES = """
orchctl wait pod/web --for condition=Ready --timeout 60s
orchctl wait pods -l app=web --for delete
orchctl wait pod/web --for jsonpath='{.status.phase}'=Running
"""
_POLL_S = 0.2
_DEFAULT_S = 30.0
_LONGEST_S = 7 * 24 * 3600.0  # what a negative time means to kubectl
_GOALS = "create, delete, condition=NAME[=VALUE] or jsonpath={.path}[=VALUE]"

Test = Callable[[Mapping[str, Any] | None], bool]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    selection.add_arguments(parser, "wait for")
    parser.add_argument("--for", dest="goal", required=True, metavar="GOAL", help=_GOALS)
    parser.add_argument("--timeout", type=seconds, default=_DEFAULT_S, help="longest wait (30s)")


def run(args: argparse.Namespace) -> int:
    found = selection.require(args)
    return api.run(args, partial(_wait_all, found, goal(args.goal)))


def goal(text: str) -> Test:
    """Whether an object (None: it is missing) has reached the goal; WrongUsage."""
    kind, equals, rest = text.partition("=")
    if text in ("create", "delete"):
        return lambda record: (record is None) == (text == "delete")
    if kind == "condition" and rest:
        name, _, wanted = rest.partition("=")
        return partial(_has_condition, name, wanted or "True")
    if kind == "jsonpath" and equals and rest:
        return _path_goal(rest)
    raise WrongUsage(f"--for {text!r} is not a goal: {_GOALS}")


def _path_goal(text: str) -> Test:
    path, brace, rest = text.strip("'").partition("}")
    wanted = rest.removeprefix("'").removeprefix("=") if brace else path.partition("=")[2]
    path = f"{path}}}" if brace else path.partition("=")[0]
    try:
        nodes = jsonpath.relaxed(path)
    except jsonpath.JsonPathError as error:
        raise WrongUsage(f"--for: {error}") from None
    return partial(_has_value, nodes, wanted)


def _has_condition(name: str, wanted: str, record: Mapping[str, Any] | None) -> bool:
    for condition in raw.records(record, "status", "conditions"):
        if raw.text(condition, "type").lower() == name.lower():
            return raw.text(condition, "status").lower() == wanted.lower()
    return False


def _has_value(
    nodes: tuple[jsonpath.Node, ...], wanted: str, record: Mapping[str, Any] | None
) -> bool:
    try:
        found = jsonpath.values(nodes, record)
    except jsonpath.JsonPathError:
        return False
    return any(not wanted or jsonpath.text(value) == wanted for value in found)


async def _wait_all(
    found: Sequence[Manifest], test: Test, api: Api, args: argparse.Namespace
) -> int:
    selected = await selection.select(api, Discovery(api), args, found)
    if not selected and args.goal != "delete":
        raise CommandFailed("no such object: nothing to wait for")
    limit_s = args.timeout if args.timeout >= 0 else _LONGEST_S
    deadline_s = asyncio.get_running_loop().time() + limit_s

    async def wait(item: Selected) -> None:
        if not await _reached(api, item, test, args.goal, deadline_s):
            raise CommandFailed(
                f"{item.label} did not reach {args.goal} within {limit_s:g} s: "
                "'orchctl describe' shows why"
            )

    return await changes.each(selected, wait)


async def _reached(api: Api, item: Selected, test: Test, goal_text: str, deadline_s: float) -> bool:
    """Poll until the goal is reached and report it; False when the time is over."""
    loop = asyncio.get_running_loop()
    read = api.find if goal_text in ("create", "delete") else api.read
    gone = goal_text == "delete"
    first = True
    while not test(await read(item.path())):
        if loop.time() >= deadline_s:
            return False
        first = False
        await asyncio.sleep(min(_POLL_S, max(0.0, deadline_s - loop.time())))
    if not (first and gone):  # gone from the start: nothing to report
        print(visible(f"{item.label} {'deleted' if gone else 'condition met'}"), flush=True)
    return True
