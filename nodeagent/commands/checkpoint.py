"""`nodeagent checkpoint`: create checkpoints on this node and manage the archives.

`create` calls the running agent's secure port, since the agent knows the pods, suspends probes and
enforces the limits. The other actions use the store's directory, with or without an agent. Exit
codes: 0 success, 1 failure or an archive that does not match its manifest, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from nodeagent.archives import archive_index, bounds
from nodeagent.archives.archive_index import ArchiveIndex
from nodeagent.archives.bounds import Archive, Removal
from nodeagent.archives.folder import StoreError
from nodeagent.commands import config as config_command
from nodeagent.config import options
from orch.component.process import clock
from orch.component.process.daemon import SetupError

_ACTIONS = {
    "create": "checkpoint a running container",
    "list": "show the archives",
    "show": "show everything known about an archive",
    "verify": "compare archives with the digests in their manifests",
    "pin": "exempt archives from removal",
    "unpin": "allow archives to be removed again",
    "prune": "remove archives beyond the limits, as the agent does every minute",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    of = {
        name: actions.add_parser(name, help=text, description=text)
        for name, text in _ACTIONS.items()
    }
    for action in of.values():
        action.add_argument("-o", "--output", choices=("text", "json"), default="text")
    create = of["create"]
    create.add_argument("target", metavar="NAMESPACE/POD", help="the pod")
    create.add_argument("-c", "--container", default="", help="required if the pod has several")
    create.add_argument("--timeout", type=int, default=0, metavar="SECONDS", help="0: the default")
    of["show"].add_argument("archive", metavar="ARCHIVE", help="its name or path")
    of["verify"].add_argument("archives", nargs="*", metavar="ARCHIVE", help="default: all")
    for name in ("pin", "unpin"):
        of[name].add_argument("archives", nargs="+", metavar="ARCHIVE", help="names or paths")
    of["prune"].add_argument("--explain", action="store_true", help="only show what and why")
    for action in of.values():
        options.add_flags(action)


def run(args: argparse.Namespace) -> int:
    if args.action == "create":
        from nodeagent.commands.checkpoint_create import create  # HTTP and TLS

        return create(args)
    index = ArchiveIndex(str(Path(args.root_dir).absolute()))
    try:
        return _RUN[args.action](args, index)
    except (StoreError, OSError) as error:
        raise SetupError(str(error)) from None


def _list(args: argparse.Namespace, index: ArchiveIndex) -> int:
    archives = index.archives()
    if args.output == "json":
        path = str(index.path)
        return _print_json([archive_index.record_of(archive, path) for archive in archives])
    heading = ("NAME", "NAMESPACE", "CONTAINER", "SIZE", "AGE", "PINNED")
    return _print_table([heading, *map(_row, archives)])


def _row(archive: Archive) -> tuple[str, ...]:
    manifest = archive.manifest
    return (
        archive.name,
        (manifest and manifest.namespace) or "?",
        (manifest and manifest.container) or "?",
        _size(archive.size_bytes),
        _age(clock.utc_now() - archive.created),
        "yes" if archive.pinned else "no",
    )


def _show(args: argparse.Namespace, index: ArchiveIndex) -> int:
    record = archive_index.record_of(index.find(args.archive), str(index.path))
    if args.output == "json":
        return _print_json(record)
    shown = {key: value for key, value in record.items() if value not in ("", None)}
    width = max(map(len, shown))
    for key, value in shown.items():
        sys.stdout.write(f"{key:{width}}  {str(value).lower() if value is False else value}\n")
    return 0


def _verify(args: argparse.Namespace, index: ArchiveIndex) -> int:
    archives = [index.find(name) for name in args.archives] or index.archives()
    problems = {archive.name: index.verify(archive) for archive in archives}
    if args.output == "json":
        rows = [{"name": k, "valid": not why, "problem": why} for k, why in problems.items()]
        _print_json(rows)
    else:
        for name, why in problems.items():
            sys.stdout.write(f"{name}: {why or 'intact'}\n")
    return 1 if any(problems.values()) else 0


def _pin(args: argparse.Namespace, index: ArchiveIndex) -> int:
    archives = [index.find(name) for name in args.archives]  # checked before the first change
    for archive in archives:
        (index.pin if args.action == "pin" else index.unpin)(archive)
    if args.output == "json":
        updated = [index.find(archive.name) for archive in archives]
        return _print_json([archive_index.record_of(entry, str(index.path)) for entry in updated])
    for archive in archives:
        sys.stdout.write(f"{archive.name}: {args.action}ned\n")
    return 0


def _prune(args: argparse.Namespace, index: ArchiveIndex) -> int:
    limits = bounds.bounds_of(config_command.load(args).checkpoint)
    selected = bounds.select_removals(index.archives(), limits, index.space(), clock.utc_now())
    for removal in selected if not args.explain else ():
        index.remove(removal.archive)
    if args.output == "json":
        return _print_json([_removal(removal, removed=not args.explain) for removal in selected])
    done = "would remove" if args.explain else "removed"
    for removal in selected:
        sys.stdout.write(f"{done} {removal.archive.name}: {removal.why}\n")
    if not selected:
        sys.stdout.write("nothing exceeds the limits\n")
    return 0


def _removal(removal: Removal, *, removed: bool) -> dict[str, Any]:
    archive = removal.archive
    return {
        "name": archive.name,
        "size": archive.size_bytes,
        "bound": removal.reason,
        "why": removal.why,
        "removed": removed,
    }


def _print_json(value: object) -> int:
    sys.stdout.write(json.dumps(value, indent=2) + "\n")
    return 0


def _print_table(rows: Sequence[tuple[str, ...]]) -> int:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        line = "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True))
        sys.stdout.write(line.rstrip() + "\n")
    return 0


def _size(size_bytes: int) -> str:
    number = float(size_bytes)
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.0f}{unit}"
        number /= 1024
    return f"{number:.1f}GiB"


def _age(age: timedelta) -> str:
    seconds = max(0, int(age.total_seconds()))
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


_RUN: dict[str, Callable[[argparse.Namespace, ArchiveIndex], int]] = {
    "list": _list,
    "show": _show,
    "verify": _verify,
    "pin": _pin,
    "unpin": _pin,
    "prune": _prune,
}
