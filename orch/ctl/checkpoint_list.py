"""`orchctl checkpoint list`: the archives on nodes, asked from their agents; or of a directory.

An agent that does not tell its archives is named, and the others are still shown.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from orch.component.process.clock import utc_now
from orch.ctl import changes, forms, printing, session, targets, usage
from orch.ctl.api import Api
from orch.ctl.failures import CommandFailed
from orch.wire import raw, times
from orch.wire.errors import ApiError
from orch.wire.tables.layout import NONE, since

EXAMPLES = """
orchctl checkpoint list
orchctl checkpoint list worker-1 -o json
orchctl checkpoint list --dir /var/lib/nodeagent/checkpoints
"""
_PAGE = "checkpoint"
_NAME = re.compile(r"checkpoint-.+_.+-\d{4}-\d\d-\d\dT.+\.tar(?:\.age)?")
_HEADER = ("NODE", "POD", "CONTAINER", "SIZE", "AGE", "PINNED", "ARCHIVE")

Archive = Mapping[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("nodes", nargs="*", metavar="NODE", help="only of these nodes")
    parser.add_argument("--dir", default="", metavar="DIR", help="of this directory, here")
    parser.add_argument("--no-headers", action="store_true", help="only the rows")
    forms.add_to(parser, (*forms.DATA, "name"))


def run(args: argparse.Namespace) -> int:
    if args.dir:
        _show({"": local(args.dir)}, args)
        return 0
    return session.run(args, _list)


async def _list(api: Api, args: argparse.Namespace) -> int:
    nodes = [targets.node_name(word) for word in args.nodes]
    if not nodes:
        found = await api.items("/api/v1/nodes")
        nodes = [raw.text(node, "metadata", "name") for node in found]
    archives: dict[str, Sequence[Archive]] = {}

    async def ask(node: str) -> None:
        archives[node] = await of_node(api, node)

    code = await changes.each(nodes, ask)
    _show(archives, args)
    return code


async def of_node(api: Api, node: str) -> list[Archive]:
    """The archives an agent tells: `name`, `size` in bytes, `created`, and whose they are."""
    try:
        return raw.records(await api.read(targets.node_path(node, _PAGE)), "items")
    except ApiError as error:
        if error.code not in (404, 405) or error.name:
            raise
        raise CommandFailed(
            f"the agent of {node} does not tell its archives: run 'orchctl checkpoint list --dir "
            "/var/lib/nodeagent/checkpoints' on the node"
        ) from None


def local(directory: str) -> list[Archive]:
    """The archives of a directory, the oldest first; CommandFailed when it cannot be read."""
    try:
        files = [path for path in Path(directory).iterdir() if _NAME.fullmatch(path.name)]
        return sorted(map(_read, files), key=lambda archive: str(archive["created"]))
    except OSError as error:
        raise CommandFailed(f"cannot read {directory}: {error.strerror}") from None


def _read(path: Path) -> Archive:
    """An archive and what the manifest beside it says."""
    status = path.stat()
    written = times.format_time(datetime.fromtimestamp(status.st_mtime, UTC))
    beside = path.with_name(f"{path.name}.json")
    try:
        manifest = json.loads(beside.read_text())
    except (OSError, ValueError):
        manifest = {}  # then only the name tells whose it is
    told = manifest if isinstance(manifest, dict) else {}
    pinned = path.with_name(f"{path.name}.keep").exists()
    return {"created": written, **told, "name": path.name, "size": status.st_size, "pinned": pinned}


def _show(archives: Mapping[str, Sequence[Archive]], args: argparse.Namespace) -> None:
    listed = [(node, one) for node, found in archives.items() for one in found]
    if args.output.name == "name":
        for node, one in listed:
            print(f"{node}:{raw.text(one, 'name')}".removeprefix(":"))
    elif args.output:
        forms.show(args.output, [{"node": node, **one} for node, one in listed])
    elif listed:
        header = [] if args.no_headers else [_HEADER]
        rows = [_row(node, one) for node, one in listed]
        print("\n".join(printing.columns([*header, *rows])))
    elif archives:
        printing.note("No checkpoints found")


def _row(node: str, archive: Archive) -> tuple[str, ...]:
    pod = f"{raw.text(archive, 'namespace')}/{raw.text(archive, 'pod')}".strip("/")
    return (
        node or NONE,
        pod or NONE,
        raw.text(archive, "container") or NONE,
        usage.shown_size(raw.number(archive, "size")),
        since(raw.text(archive, "created"), utc_now()),
        "yes" if archive.get("pinned") is True else "no",
        raw.text(archive, "name"),
    )
