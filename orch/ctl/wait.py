"""`orchctl wait`: until objects are there, gone, or as they should be."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from orch.ctl import changes, choosing, jsonpath, session
from orch.ctl.api import Api
from orch.ctl.choosing import Chosen
from orch.ctl.discovery import Discovery
from orch.ctl.failures import CommandFailed, WrongUsage, visible
from orch.ctl.manifests import Manifest
from orch.ctl.options import seconds
from orch.wire import raw

EXAMPLES = """
orchctl wait pod/web --for condition=Ready --timeout 60s
orchctl wait pods -l app=web --for delete
orchctl wait pod/web --for jsonpath='{.status.phase}'=Running
"""
_POLL_S = 0.2
_DEFAULT_S = 30.0
_LONGEST_S = 7 * 24 * 3600.0  # what a negative time means to kubectl

Test = Callable[[Mapping[str, Any] | None], bool]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    choosing.add_arguments(parser, "wait for")
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="of every namespace")
    parser.add_argument(
        "--for", dest="goal", required=True, metavar="GOAL",
        help="create, delete, condition=NAME[=VALUE] or jsonpath={.path}[=VALUE]",
    )  # fmt: skip
    parser.add_argument("--timeout", type=seconds, default=_DEFAULT_S, help="longest wait (30s)")


def run(args: argparse.Namespace) -> int:
    found = choosing.require(args, args.words)
    test = goal(args.goal)
    return session.run(args, partial(_wait_all, found, test))


def goal(text: str) -> Test:
    """Whether an object (None: it is not there) is as the text says; WrongUsage."""
    kind, equals, rest = text.partition("=")
    if text == "create":
        return lambda record: record is not None
    if text == "delete":
        return lambda record: record is None
    if kind == "condition" and rest:
        name, _, wanted = rest.partition("=")
        return partial(_has_condition, name, wanted or "True")
    if kind == "jsonpath" and equals and rest:
        return _path_goal(rest)
    raise WrongUsage(
        f"--for {text!r} is no goal: create, delete, condition=NAME[=VALUE] or "
        "jsonpath={.path}[=VALUE]"
    )


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
    return any(not wanted or jsonpath.shown(value) == wanted for value in found)


async def _wait_all(
    found: Sequence[Manifest], test: Test, api: Api, args: argparse.Namespace
) -> int:
    chosen = await choosing.choose(api, Discovery(api), args, args.words, found)
    if not chosen and args.goal != "delete":
        raise CommandFailed("there is no such object: nothing to wait for")
    limit_s = args.timeout if args.timeout >= 0 else _LONGEST_S
    deadline_s = asyncio.get_running_loop().time() + limit_s

    async def wait(one: Chosen) -> None:
        await _wait(api, one, test, args.goal, deadline_s, limit_s)

    return await changes.each(chosen, wait)


async def _wait(
    api: Api, chosen: Chosen, test: Test, goal_text: str, deadline_s: float, limit_s: float
) -> None:
    loop = asyncio.get_running_loop()
    may_be_missing = goal_text in ("create", "delete")
    first = True
    while True:
        record = await (api.find if may_be_missing else api.read)(chosen.path)
        if test(record):
            if not (first and goal_text == "delete"):  # it was gone before: nothing to tell
                print(visible(f"{chosen.shown} {_met(goal_text)}"), flush=True)
            return
        first = False
        if loop.time() >= deadline_s:
            raise CommandFailed(
                f"{chosen.shown} is not as {goal_text} wants after {limit_s:g} s: "
                "'orchctl describe' shows why"
            )
        await asyncio.sleep(min(_POLL_S, max(0.0, deadline_s - loop.time())))


def _met(goal_text: str) -> str:
    return "deleted" if goal_text == "delete" else "condition met"
