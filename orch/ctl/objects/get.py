"""`orchctl get`: objects as the server's own tables, or as YAML, JSON, names and templates."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from orch.client.json_api import JSON
from orch.component.terminal import visible
from orch.ctl import api, failures, manifests, selection
from orch.ctl.api import TABLE, Api
from orch.ctl.discovery import Discovery, Resource
from orch.ctl.failures import WrongUsage
from orch.ctl.objects import watch
from orch.ctl.output import formats, printing
from orch.ctl.selection import Selected
from orch.wire import raw
from orch.wire.errors import ApiError

EXAMPLES = """
orchctl get nodes
orchctl get pods -A -o wide --sort-by .metadata.creationTimestamp
orchctl get pods -l app=web -w
orchctl get node/worker-1 pod/web -o yaml
orchctl get pods -o jsonpath='{range .items[*]}{.metadata.name}{end}'
orchctl get pods -o custom-columns=NAME:.metadata.name,NODE:.spec.nodeName
orchctl get --raw /readyz?verbose
"""

Answers = Sequence[tuple[Selected, dict[str, Any] | None]]
_FLAGS = {
    "-w --watch": "then print changes as they happen",
    "--watch-only": "print only changes",
    "--output-watch-events": "say whether an object was added, modified or deleted",
    "--no-headers": "only the rows",
    "--show-labels": "all labels as the last column",
    "--show-kind": "the type before each name",
    "--ignore-not-found": "a missing object is not a failure",
    "--show-managed-fields": "show who set what",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    selection.add_words(parser, "show")
    formats.add_to(parser, formats.OF_OBJECTS)
    selection.add_selectors(parser)
    selection.add_all_namespaces(parser)
    for names, text in _FLAGS.items():
        parser.add_argument(*names.split(), action="store_true", help=text)
    parser.add_argument(
        "-L", "--label-columns", action="append", default=[], metavar="KEY,…",
        help="labels to show as columns",
    )  # fmt: skip
    parser.add_argument("--sort-by", default="", metavar="PATH", help="sort by this field")
    parser.add_argument("--chunk-size", type=int, default=500, help="objects per request")
    parser.add_argument("--subresource", default="", help="show this part: status, scale, …")
    parser.add_argument("--raw", default="", metavar="PATH", help="what the server has at a path")


def run(args: argparse.Namespace) -> int:
    if args.raw:
        return api.run(args, _raw)
    if bool(args.filename) == bool(args.words):
        raise WrongUsage("say what to show: either TYPE [NAME] or -f FILE")
    if args.output_watch_events and not (args.watch or args.watch_only):
        raise WrongUsage("--output-watch-events needs -w or --watch-only")
    return api.run(args, _get)


async def _raw(api: Api, args: argparse.Namespace) -> int:
    if not args.raw.startswith("/"):
        raise WrongUsage(f"--raw {args.raw!r} is not a path: it begins with /")
    async with api.stream(args.raw, accept="application/json, */*") as stream:
        async for chunk in stream.chunks():
            sys.stdout.buffer.write(chunk)
    return 0


async def _get(api: Api, args: argparse.Namespace) -> int:
    found = await _wanted(api, args)
    if args.watch or args.watch_only:
        if len(found) != 1:
            raise WrongUsage("-w watches one type, or one object: name one")
        return await watch.run(api, found[0], args)
    answers = [(target, await _read(api, target, args)) for target in found]
    (_show_tables if args.output.is_table else _show_objects)(answers, args)
    missing = any(answer is None for _, answer in answers) and not args.ignore_not_found
    return failures.FAILED if missing else 0


async def _wanted(api: Api, args: argparse.Namespace) -> list[Selected]:
    """The types and objects that words or files name; WrongUsage if selectors contradict them."""
    discovery = Discovery(api)
    everywhere = args.all_namespaces
    if args.words:
        found = await selection.find(api, discovery, args.words, everywhere=everywhere)
    else:
        files = manifests.named(args)
        found = [await selection.of_file(api, discovery, args, manifest) for manifest in files]
    narrowed = args.selector or args.field_selector or everywhere
    if narrowed and any(target.name for target in found):
        raise WrongUsage("names do not go with selectors or -A: leave one of them out")
    return found


async def _read(api: Api, target: Selected, args: argparse.Namespace) -> dict[str, Any] | None:
    """The object, or the whole list; None when it is missing, which is reported."""
    accept = TABLE if args.output.is_table else JSON
    path = target.path(args.subresource)
    if not target.name:
        params = {
            "labelSelector": args.selector,
            "fieldSelector": args.field_selector,
            "limit": "" if args.chunk_size <= 0 or args.sort_by else str(args.chunk_size),
            "includeObject": "Object" if args.sort_by and args.output.is_table else "",
        }
        return await api.pages(path, params, accept=accept)
    try:
        return await api.read(path, accept=accept)
    except ApiError as error:
        if error.code != 404:
            raise
        if not args.ignore_not_found:
            print(f"error: {failures.explain(error)}", file=sys.stderr)
        return None


def _show_tables(answers: Answers, args: argparse.Namespace) -> None:
    by_type: dict[Resource, dict[str, Any]] = {}
    for target, answer in answers:
        table = printing.as_table(answer, target) if answer is not None else {"rows": []}
        known = by_type.setdefault(target.resource, table)
        if known is not table:
            by_type[target.resource] = {**known, **table, "rows": known["rows"] + table["rows"]}
    if args.sort_by:
        for table in by_type.values():
            table["rows"] = printing.sort_by_path(
                table["rows"], args.sort_by, record_of=lambda row: row.get("object")
            )
    blocks = [
        printing.columns(printing.table_rows(table, options))
        for resource, table in by_type.items()
        if table["rows"]
        for options in [printing.table_options(resource, args, several=len(by_type) > 1)]
    ]
    if blocks:
        print("\n\n".join("\n".join(lines) for lines in blocks))
    elif not args.ignore_not_found and all(answer is not None for _, answer in answers):
        printing.report_nothing([target for target, _ in answers])


def _show_objects(answers: Answers, args: argparse.Namespace) -> None:
    named: list[tuple[Selected, dict[str, Any]]] = []
    for target, answer in answers:
        items = printing.items_of(answer, target) if answer is not None else []
        named += [(target, printing.shown(item, args)) for item in items]
    if args.sort_by:
        named = printing.sort_by_path(named, args.sort_by, record_of=lambda pair: pair[1])
    if args.output.name == "name":
        for target, item in named:
            print(visible(target.resource.label(raw.text(item, "metadata", "name"))))
        return
    records = [item for _, item in named]
    if args.output.name == "custom-columns":
        rows = formats.column_rows(args.output, records, headers=not args.no_headers)
        print("\n".join(printing.columns(rows)))
        return
    alone = len(answers) == 1 and bool(answers[0][0].name)
    if records or not alone:
        formats.show(args.output, records[0] if alone else printing.list_of(records))
