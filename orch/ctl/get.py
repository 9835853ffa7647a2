"""`orchctl get`: objects as the server's own tables, or as YAML, JSON, names and templates."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from orch.component.process.clock import utc_now
from orch.ctl import choosing, failures, forms, manifests, ordering, printing, session, targets
from orch.ctl.api import JSON, TABLE, Api, given
from orch.ctl.discovery import Discovery, Resource
from orch.ctl.failures import WrongUsage
from orch.ctl.printing import TableOptions
from orch.ctl.targets import Target
from orch.wire import raw
from orch.wire.errors import ApiError
from orch.wire.tables.tables import table_of

EXAMPLES = """
orchctl get nodes
orchctl get pods -A -o wide --sort-by .metadata.creationTimestamp
orchctl get pods -l app=web -w
orchctl get node/worker-1 pod/web -o yaml
orchctl get pods -o jsonpath='{range .items[*]}{.metadata.name}{end}'
orchctl get pods -o custom-columns=NAME:.metadata.name,NODE:.spec.nodeName
orchctl get --raw /readyz?verbose
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="TYPE[/NAME] [NAME]", help="what to show")
    manifests.add_filename(parser)
    forms.add_to(parser, forms.OF_OBJECTS)
    choosing.add_selectors(parser)
    for names, text in _SWITCHES.items():
        parser.add_argument(*names.split(), action="store_true", help=text)
    parser.add_argument(
        "-L", "--label-columns", action="append", default=[], metavar="KEY,…",
        help="labels to show as columns",
    )  # fmt: skip
    parser.add_argument("--sort-by", default="", metavar="PATH", help="order by this field")
    parser.add_argument("--chunk-size", type=int, default=500, help="objects asked for at a time")
    parser.add_argument("--subresource", default="", help="show this part: status, scale, …")
    parser.add_argument("--raw", default="", metavar="PATH", help="what the server has at a path")


_SWITCHES = {
    "-A --all-namespaces": "of every namespace",
    "-w --watch": "go on with what changes",
    "--watch-only": "only what changes",
    "--output-watch-events": "say whether an object came, changed or went",
    "--no-headers": "only the rows",
    "--show-labels": "all labels as the last column",
    "--show-kind": "the type before each name",
    "--ignore-not-found": "missing is no failure",
    "--show-managed-fields": "show who set what",
}


def run(args: argparse.Namespace) -> int:
    if args.raw:
        return session.run(args, _raw)
    if bool(args.filename) == bool(args.words):
        raise WrongUsage("say what to show: either TYPE [NAME] or -f FILE")
    if args.output_watch_events and not (args.watch or args.watch_only):
        raise WrongUsage("--output-watch-events says what changes: give -w or --watch-only too")
    if args.watch or args.watch_only:
        from orch.ctl import watching

        return session.run(args, watching.run)
    return session.run(args, _get)


async def _raw(api: Api, args: argparse.Namespace) -> int:
    if not args.raw.startswith("/"):
        raise WrongUsage(f"--raw {args.raw!r} is no path: it begins with /")
    async with api.stream(args.raw, accept="application/json, */*") as stream:
        async for chunk in stream.chunks():
            sys.stdout.buffer.write(chunk)
    return 0


async def _get(api: Api, args: argparse.Namespace) -> int:
    found = await wanted(api, args)
    reader = _Reader(api, args)
    show = _show_tables if args.output.is_table else _show_objects
    await show(reader, found, args)
    return failures.FAILED if reader.failed else 0


async def wanted(api: Api, args: argparse.Namespace) -> list[Target]:
    """The types and objects that words or files name; WrongUsage if selectors do not go with it."""
    discovery = Discovery(api)
    found = await targets.find(discovery, args.words) if args.words else []
    for manifest in manifests.named(args):
        resource = await manifests.resource_of(manifest, discovery)
        found.append(Target(resource, manifest.name, manifest.namespace))
    narrowed = args.selector or args.field_selector or args.all_namespaces
    if narrowed and any(target.name for target in found):
        raise WrongUsage("names do not go with selectors or -A: leave one of them out")
    return found


class _Reader:
    """Reads targets one by one; what is missing is reported and the rest still shown."""

    def __init__(self, api: Api, args: argparse.Namespace) -> None:
        self.failed = False
        self.namespace = "" if args.all_namespaces else api.namespace
        self._api = api
        self._args = args
        self._params = given(
            labelSelector=args.selector,
            fieldSelector=args.field_selector,
            limit="" if args.chunk_size <= 0 or args.sort_by else str(args.chunk_size),
            includeObject="Object" if args.sort_by and args.output.is_table else "",
        )

    async def read(self, target: Target, accept: str) -> dict[str, Any] | None:
        """The object, or the whole list; None when it is missing."""
        path = target.path(self.namespace, self._args.subresource)
        if not target.name:
            return await self._api.pages(path, self._params, accept=accept)
        try:
            return await self._api.read(path, accept=accept)
        except ApiError as error:
            if error.code != 404:
                raise
            if not self._args.ignore_not_found:
                self.failed = True
                print(f"error: {failures.explain(error)}", file=sys.stderr)
            return None


async def _show_tables(reader: _Reader, found: Sequence[Target], args: argparse.Namespace) -> None:
    tables: dict[Resource, dict[str, Any]] = {}
    for target in found:
        answer = await reader.read(target, TABLE)
        table = as_table(answer, target) if answer is not None else {"rows": []}
        known = tables.setdefault(target.resource, table)
        if known is not table:
            tables[target.resource] = {**known, **table, "rows": known["rows"] + table["rows"]}
    blocks = [
        printing.columns(printing.table_rows(_sorted(table, args), options))
        for resource, table in tables.items()
        if table["rows"]
        for options in [table_options(resource, args, several=len(tables) > 1)]
    ]
    if blocks:
        print("\n\n".join("\n".join(lines) for lines in blocks))
    elif not reader.failed and not args.ignore_not_found:
        say_nothing_found(found, reader.namespace)


def _sorted(table: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    if not args.sort_by:
        return table
    rows = ordering.by_path(table["rows"], args.sort_by, record_of=lambda row: row.get("object"))
    return {**table, "rows": rows}


def table_options(resource: Resource, args: argparse.Namespace, *, several: bool) -> TableOptions:
    """How the options of `get` want a table of some kind to look."""
    return TableOptions(
        wide=args.output.name == "wide",
        namespaces=args.all_namespaces and resource.namespaced,
        headers=not args.no_headers,
        prefix=resource.shown("") if several or args.show_kind else "",
        label_columns=tuple(key for text in args.label_columns for key in text.split(",") if key),
        labels=args.show_labels,
    )


def say_nothing_found(found: Sequence[Target], namespace: str) -> None:
    namespaced = any(target.resource.namespaced for target in found)
    where = f" in {namespace} namespace." if namespaced and namespace else ""
    print(f"No resources found{where}", file=sys.stderr)


def as_table(answer: Mapping[str, Any], target: Target) -> dict[str, Any]:
    """The server's Table; one made here when the server gave plain objects."""
    if answer.get("kind") == "Table":
        return {**answer, "rows": answer.get("rows") or []}
    objects = [answer] if target.name else raw.records(answer, "items")
    metadata = raw.mapping(answer, "metadata")
    return table_of(target.resource.kind, objects, utc_now(), list_metadata=metadata)


async def _show_objects(reader: _Reader, found: Sequence[Target], args: argparse.Namespace) -> None:
    named: list[tuple[Target, dict[str, Any]]] = []
    for target in found:
        answer = await reader.read(target, JSON)
        items = _items(answer, target) if answer is not None else []
        kept = items if args.show_managed_fields else map(printing.unmanaged, items)
        named += [(target, item) for item in kept]
    if args.sort_by:
        named = ordering.by_path(named, args.sort_by, record_of=lambda pair: pair[1])
    if args.output.name == "name":
        for target, item in named:
            print(target.resource.shown(raw.text(item, "metadata", "name")))
        return
    records = [item for _, item in named]
    if args.output.name == "custom-columns":
        header = [] if args.no_headers else [[name for name, _ in args.output.columns]]
        rows = [*header, *forms.column_rows(args.output, records)]
        print("\n".join(printing.columns(rows)))
        return
    alone = len(found) == 1 and bool(found[0].name)
    if records or not alone:
        forms.show(args.output, records[0] if alone else printing.list_of(records))


def _items(answer: dict[str, Any], target: Target) -> list[dict[str, Any]]:
    if target.name:
        return [answer]
    kind = {"apiVersion": target.resource.api_version, "kind": target.resource.kind}
    return [{**kind, **item} for item in raw.records(answer, "items")]
