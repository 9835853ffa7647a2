"""`orchctl get`: objects as the server's own tables, or as YAML, JSON and names."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from orch.component.clock import utc_now
from orch.ctl import failures, printing, session, targets
from orch.ctl.api import JSON, TABLE, Api, given
from orch.ctl.discovery import Discovery, Resource
from orch.ctl.targets import Target
from orch.wire import raw
from orch.wire.errors import ApiError
from orch.wire.tables import table_of

_PAGE = "500"  # objects per answer, as other clients ask


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="+", metavar="TYPE[/NAME] [NAME]", help="what to show")
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="of every namespace")
    parser.add_argument("-o", "--output", choices=printing.FORMATS, default="", help="form")
    parser.add_argument("-l", "--selector", default="", help="only with these labels: a=b,c!=d")
    parser.add_argument("--field-selector", default="", help="only with these fields: path=value")
    parser.add_argument("--ignore-not-found", action="store_true", help="missing is no failure")
    parser.add_argument("--show-managed-fields", action="store_true", help="show who set what")


def run(args: argparse.Namespace) -> int:
    return session.run(args, _get)


async def _get(api: Api, args: argparse.Namespace) -> int:
    found = await targets.find(Discovery(api), args.words)
    if any(t.name for t in found) and (args.selector or args.field_selector or args.all_namespaces):
        raise failures.WrongUsage("names do not go with selectors or -A: leave one of them out")
    reader = _Reader(api, args)
    show = _show_tables if args.output in ("", "wide") else _show_objects
    await show(reader, found, args)
    return failures.FAILED if reader.failed else 0


class _Reader:
    """Reads targets one by one; what is missing is reported and the rest still shown."""

    def __init__(self, api: Api, args: argparse.Namespace) -> None:
        self.failed = False
        self.namespace = "" if args.all_namespaces else api.namespace
        self._api = api
        self._ignores_missing = args.ignore_not_found
        self._selectors = given(labelSelector=args.selector, fieldSelector=args.field_selector)

    async def read(self, target: Target, accept: str) -> dict[str, Any] | None:
        """The object, or the whole list; None when it is missing."""
        path = target.path(self.namespace)
        if not target.name:
            return await self._read_pages(path, accept)
        try:
            return await self._api.get(path, accept=accept)
        except ApiError as error:
            if error.code != 404:
                raise
            if not self._ignores_missing:
                self.failed = True
                print(f"error: {failures.explain(error)}", file=sys.stderr)
            return None

    async def _read_pages(self, path: str, accept: str) -> dict[str, Any]:
        params = {**self._selectors, "limit": _PAGE}
        whole = page = await self._api.get(path, params, accept=accept)
        while token := raw.text(page, "metadata", "continue"):
            page = await self._api.get(path, {**params, "continue": token}, accept=accept)
            for member in ("rows", "items"):
                whole[member] = (whole.get(member) or []) + (page.get(member) or [])
        return whole


async def _show_tables(reader: _Reader, found: Sequence[Target], args: argparse.Namespace) -> None:
    tables: dict[Resource, dict[str, Any]] = {}
    for target in found:
        answer = await reader.read(target, TABLE)
        table = _as_table(answer, target) if answer is not None else {"rows": []}
        known = tables.setdefault(target.resource, table)
        if known is not table:
            tables[target.resource] = {**known, **table, "rows": known["rows"] + table["rows"]}
    blocks = [
        printing.table_lines(
            table,
            wide=args.output == "wide",
            namespaces=args.all_namespaces and resource.namespaced,
            prefix=resource.shown("") if len(tables) > 1 else "",
        )
        for resource, table in tables.items()
        if table["rows"]
    ]
    if blocks:
        print("\n\n".join("\n".join(lines) for lines in blocks))
    elif not reader.failed and not args.ignore_not_found:
        namespaced = any(target.resource.namespaced for target in found)
        where = f" in {reader.namespace} namespace" if namespaced and reader.namespace else ""
        print(f"No resources found{where}", file=sys.stderr)


def _as_table(answer: Mapping[str, Any], target: Target) -> dict[str, Any]:
    """The server's Table; one made here when the server gave plain objects."""
    if answer.get("kind") == "Table":
        return {**answer, "rows": answer.get("rows") or []}
    objects = [answer] if target.name else raw.records(answer, "items")
    return table_of(target.resource.kind, objects, utc_now())


async def _show_objects(reader: _Reader, found: Sequence[Target], args: argparse.Namespace) -> None:
    records: list[dict[str, Any]] = []
    for target in found:
        answer = await reader.read(target, JSON)
        items = _items(answer, target) if answer is not None else []
        if args.output == "name":
            for item in items:
                print(target.resource.shown(raw.text(item, "metadata", "name")))
        records += items if args.show_managed_fields else map(printing.unmanaged, items)
    alone = len(found) == 1 and bool(found[0].name)
    if args.output == "name" or (alone and not records):
        return
    value = records[0] if alone else printing.list_of(records)
    print(printing.as_json(value) if args.output == "json" else printing.as_yaml(value))


def _items(answer: dict[str, Any], target: Target) -> list[dict[str, Any]]:
    if target.name:
        return [answer]
    kind = {"apiVersion": target.resource.api_version, "kind": target.resource.kind}
    return [{**kind, **item} for item in raw.records(answer, "items")]
