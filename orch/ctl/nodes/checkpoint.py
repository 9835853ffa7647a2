"""`orchctl checkpoint`, a running container's state as an archive on its node; `checkpoint list`.

Agents are asked through the API server's node proxy, so that no key of a node is needed. One that
does not list its archives is named, and the others are still shown.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import orjson

from orch.component.process import loops
from orch.component.process.clock import utc_now
from orch.component.terminal import visible
from orch.ctl import api, changes, selection
from orch.ctl.api import Api, segment
from orch.ctl.command_table import Verb
from orch.ctl.failures import CommandFailed, WrongUsage
from orch.ctl.nodes import usage
from orch.ctl.output import formats, printing
from orch.wire import raw
from orch.wire.errors import ApiError
from orch.wire.tables.layout import NONE, since

_HEADER = ("NODE", "POD", "CONTAINER", "SIZE", "AGE", "PINNED", "ARCHIVE")
_NO_SUCH_PAGE = "404 page not found"  # of an agent without checkpoints, and of nothing else
_SWITCHED_OFF = (
    "the agent of {} takes no checkpoints: switch its feature gate ContainerCheckpoint on"
)
_INTERVAL_S = 0.2  # between two updates of the seconds on a terminal
_CLEAR = "\r\x1b[K"

Archive = Mapping[str, Any]


def _add_checkpoint(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pod", metavar="[NAMESPACE/]POD", help="the pod; or 'list', see examples")
    parser.add_argument("-c", "--container", default="", help="needed when there are several")
    parser.add_argument(
        "--timeout", type=int, default=0, metavar="SECONDS",
        help="longest time the runtime may take; 0 leaves it to the agent",
    )  # fmt: skip


def _run_checkpoint(args: argparse.Namespace) -> int:
    if args.timeout < 0:
        raise WrongUsage("--timeout is a number of seconds, 0 or more")
    return api.run(args, _checkpoint)


async def _checkpoint(api: Api, args: argparse.Namespace) -> int:
    namespace, _, name = args.pod.rpartition("/")
    namespace = namespace or api.namespace
    pod = await api.read(selection.pod_path(namespace, name))
    node = raw.text(pod, "spec", "nodeName")
    if not node:
        raise CommandFailed(f"the pod {namespace}/{name} is not on a node yet: wait until it is")
    container = args.container or _only_container(pod)
    page = "/".join(("checkpoint", *map(segment, (namespace, name, container))))
    params = {"timeout": str(args.timeout or "")}
    what = f"checkpointing {namespace}/{name}/{container} on {node}"
    loop = asyncio.get_running_loop()
    begin_s = loop.time()
    counting = loops.spawn(_count(what), name="progress")
    try:
        answer = await api.call("POST", selection.node_path(node, page), params=params)
    except ApiError as error:
        if error.code == 404 and error.message.endswith(_NO_SUCH_PAGE):
            raise CommandFailed(_SWITCHED_OFF.format(node)) from None
        raise
    finally:
        await loops.cancel(counting)
        print(_CLEAR if sys.stderr.isatty() else "", end="", file=sys.stderr, flush=True)
    took_s = loop.time() - begin_s
    try:
        archives = orjson.loads(answer.body)["items"]
    except (ValueError, KeyError, TypeError):
        raise CommandFailed(
            f"the agent of {node} did not say where the archive is: see the agent's log"
        ) from None
    for archive in archives:
        print(visible(f"{node}:{archive}"))
    size = await _size(api, node, archives)
    printing.note(f"{what}: done, {f'{size}, ' if size else ''}{took_s:.1f} s")
    return 0


async def _size(api: Api, node: str, archives: Sequence[str]) -> str:
    """The size of the archives, as the agent lists them; "" when it does not."""
    try:
        listed = await _archives(api, node)
    except (ApiError, CommandFailed):
        return ""
    names = {str(archive).rpartition("/")[2] for archive in archives}
    sizes = [raw.number(item, "size") for item in listed if raw.text(item, "name") in names]
    return usage.size_text(sum(sizes)) if sizes else ""


def _only_container(pod: Mapping[str, Any]) -> str:
    names = [raw.text(container, "name") for container in raw.records(pod, "spec", "containers")]
    if len(names) != 1:
        raise CommandFailed(f"the pod has the containers {', '.join(names)}: name one with -c")
    return names[0]


async def _count(what: str) -> None:
    """Count the seconds on the last line of a terminal; does nothing anywhere else."""
    loop = asyncio.get_running_loop()
    begin_s = loop.time()
    while sys.stderr.isatty():
        line = visible(f"{what}: {loop.time() - begin_s:.0f} s")
        print(f"{_CLEAR}{line}", end="", file=sys.stderr, flush=True)
        await asyncio.sleep(_INTERVAL_S)


def _add_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("nodes", nargs="*", metavar="NODE", help="only of these nodes")
    parser.add_argument("--no-headers", action="store_true", help="only the rows")
    formats.add_to(parser, (*formats.DATA, "name"))


async def _list(api: Api, args: argparse.Namespace) -> int:
    archives: dict[str, Sequence[Archive]] = {}

    async def ask(node: str) -> None:
        archives[node] = await _archives(api, node)

    code = await changes.each(await selection.node_names(api, args), ask)
    _show(archives, args)
    return code


async def _archives(api: Api, node: str) -> list[Archive]:
    """The archives an agent lists: `name`, `size` in bytes, `created`, and their container."""
    try:
        return raw.records(await api.read(selection.node_path(node, "checkpoint")), "items")
    except ApiError as error:
        if error.code not in (404, 405) or error.name:
            raise
        raise CommandFailed(
            f"the agent of {node} does not list its archives: run 'nodeagent checkpoint list' there"
        ) from None


def _show(archives: Mapping[str, Sequence[Archive]], args: argparse.Namespace) -> None:
    listed = [(node, archive) for node, found in archives.items() for archive in found]
    if args.output.name == "name":
        for node, archive in listed:
            print(visible(f"{node}:{raw.text(archive, 'name')}"))
    elif args.output:
        formats.show(args.output, [{"node": node, **archive} for node, archive in listed])
    elif listed:
        header = [] if args.no_headers else [_HEADER]
        rows = [_row(node, archive) for node, archive in listed]
        print("\n".join(printing.columns([*header, *rows])))
    elif archives:
        printing.note("No checkpoints found")


def _row(node: str, archive: Archive) -> tuple[str, ...]:
    pod = f"{raw.text(archive, 'namespace')}/{raw.text(archive, 'pod')}".strip("/")
    return (
        node,
        pod or NONE,
        raw.text(archive, "container") or NONE,
        usage.size_text(raw.number(archive, "size")),
        since(raw.text(archive, "created"), utc_now()),
        "yes" if archive.get("pinned") is True else "no",
        raw.text(archive, "name"),
    )


CHECKPOINT = Verb(
    _add_checkpoint, _run_checkpoint,
    "orchctl checkpoint shop/web-0 -c app --timeout 60\norchctl checkpoint list worker-1",
)  # fmt: skip
LIST = Verb(
    _add_list, partial(api.run, action=_list),
    "orchctl checkpoint list\norchctl checkpoint list worker-1 -o json",
)  # fmt: skip
