"""Watching objects: a list, then every change, until interrupted; and `orchctl get -w`.

A watch that ends is resumed where it stopped; one that fell too far behind starts with a new list.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

from orch.client.json_api import JSON, PAGE
from orch.client.transport import given
from orch.component.process.clock import utc_now
from orch.component.terminal import visible
from orch.ctl.api import TABLE, Api
from orch.ctl.output import formats, printing
from orch.ctl.selection import Selected
from orch.wire import raw
from orch.wire.errors import ApiError
from orch.wire.tables.tables import table_of

PAUSE_S = 1.0  # at least, between two requests for the same watch


async def run(api: Api, target: Selected, args: argparse.Namespace) -> int:
    """Print changes until --request-timeout is over; without it, until interrupted or refused.

    The list at the start may take that long by itself; after that it is an error.
    """
    printer = _Printer(target, args)
    accept = TABLE if args.output.is_table else JSON
    if target.name and not args.ignore_not_found:
        await api.read(target.path())  # otherwise a misspelt name would wait in silence
    watched = changes(
        api, target, accept=accept, label_selector=args.selector, field_selector=args.field_selector
    )
    async with contextlib.aclosing(watched):
        _, listed = await anext(watched)
        if not args.watch_only:
            printer.show_list(listed)
        with contextlib.suppress(TimeoutError):  # the time asked for is over
            async with asyncio.timeout(args.request_timeout or None):
                async for kind, record in watched:
                    if kind != "LIST":
                        printer.show(kind, record)
    return 0


async def changes(
    api: Api,
    target: Selected,
    *,
    accept: str = JSON,
    label_selector: str = "",
    field_selector: str = "",
) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
    """("LIST", list), then (ADDED, MODIFIED or DELETED, object); LIST again after falling behind.

    With `accept` TABLE lists and objects are Tables where the server makes them.
    """
    collection = target.resource.path(target.namespace)
    if target.name:
        field_selector = f"metadata.name={target.name}"
    selectors = given(labelSelector=label_selector, fieldSelector=field_selector)
    columns: list[Any] = []
    while True:
        listed = await api.pages(collection, {**selectors, "limit": PAGE}, accept=accept)
        columns = raw.value(listed, "columnDefinitions") or columns
        yield "LIST", listed
        revision = raw.text(listed, "metadata", "resourceVersion")
        try:
            async for kind, record in _resumed(api, collection, selectors, revision, accept):
                if record.get("kind") == "Table":
                    columns = record.get("columnDefinitions") or columns
                    record["columnDefinitions"] = columns
                yield kind, record
        except ApiError as error:
            if error.code != 410:
                raise


async def _resumed(
    api: Api, path: str, selectors: Mapping[str, str], revision: str, accept: str
) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    loop = asyncio.get_running_loop()
    while True:
        begin_s = loop.time()
        params = {**selectors, "resourceVersion": revision}
        async with contextlib.aclosing(api.watch(path, params, accept=accept)) as events:
            async for kind, record in events:
                revision = _revision(record) or revision
                if kind != "BOOKMARK":
                    yield kind, record
        await asyncio.sleep(max(0.0, PAUSE_S - (loop.time() - begin_s)))


def _revision(record: Mapping[str, Any]) -> str:
    """The object's own; of a Table, that of its last row."""
    rows = raw.records(record, "rows")
    own = raw.text(rows[-1], "object", "metadata", "resourceVersion") if rows else ""
    return own or raw.text(record, "metadata", "resourceVersion")


class _Printer:
    """Prints objects one by one in a format; the rows of a table stay aligned."""

    def __init__(self, target: Selected, args: argparse.Namespace) -> None:
        self._every = replace(target, name="")
        self._resource = target.resource
        self._args = args
        self._format = args.output
        self._widths: list[int] = []
        self._headers = not args.no_headers

    def show_list(self, listed: Mapping[str, Any]) -> None:
        if self._format.is_table:
            table = printing.as_table(listed, self._every)
            if table["rows"]:
                self._print_rows("ADDED", table)
            return
        for item in printing.items_of(listed, self._every):
            self.show("ADDED", item)

    def show(self, event: str, record: Mapping[str, Any]) -> None:
        if self._format.is_table:
            is_table = record.get("kind") == "Table"
            made = record if is_table else table_of(self._resource.kind, [record], utc_now())
            self._print_rows(event, made)
        elif self._format.name == "name":
            label = self._resource.label(raw.text(record, "metadata", "name"))
            print(visible(label), flush=True)
        elif self._format.name == "custom-columns":
            rows = formats.column_rows(self._format, [record], headers=self._headers)
            self._print_aligned(rows)
        else:
            shown = printing.shown(record, self._args)
            if self._format.name == "yaml":
                print("---")
            wrapped = {"type": event, "object": shown}
            formats.show(self._format, wrapped if self._args.output_watch_events else shown)
            print(end="", flush=True)

    def _print_rows(self, event: str, table: Mapping[str, Any]) -> None:
        """The rows, below the header unless it was printed before."""
        options = printing.table_options(self._resource, self._args, several=False)
        options = replace(options, headers=self._headers)
        rows = printing.table_rows(table, options)
        if self._args.output_watch_events:
            head = 1 if self._headers else 0
            rows = [["EVENT" if n < head else event, *row] for n, row in enumerate(rows)]
        self._print_aligned(rows)

    def _print_aligned(self, rows: list[list[str]]) -> None:
        self._headers = False
        print("\n".join(printing.columns(rows, self._widths)), flush=True)
