"""`orchctl get -w`: a list, then every change as the server tells it, until interrupted.

A watch that ends is taken up again where it stopped; one that fell behind begins anew.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

import orjson

from orch.component.process.clock import utc_now
from orch.ctl import forms, get, printing
from orch.ctl.api import JSON, TABLE, Api, given
from orch.ctl.failures import WrongUsage
from orch.ctl.targets import Target
from orch.wire import raw
from orch.wire.errors import ApiError
from orch.wire.tables.tables import table_of

_PAUSE_S = 1.0  # before a watch that ended at once is taken up again


async def run(api: Api, args: argparse.Namespace) -> int:
    """Until --request-timeout is over; without it, until it is interrupted or cannot go on.

    The list that it begins with has that time of its own: an error when it takes longer.
    """
    found = await get.wanted(api, args)
    if len(found) != 1:
        raise WrongUsage("-w watches one type, or one object: name one")
    (target,) = found
    printer = _Printer(target, args)
    accept = TABLE if args.output.is_table else JSON
    namespace = "" if args.all_namespaces else api.namespace
    if target.name and not args.ignore_not_found:
        await api.read(target.path(namespace))  # else a wrong name would be waited for in silence
    told = changes(
        api, target, namespace, accept=accept, label_selector=args.selector,
        field_selector=args.field_selector,
    )  # fmt: skip
    async with contextlib.aclosing(told):
        _, listed = await anext(told)
        if not args.watch_only:
            printer.show_list(listed)
        with contextlib.suppress(TimeoutError):  # as long as was asked for
            async with asyncio.timeout(args.request_timeout or None):
                await printer.follow(told)
    return 0


async def changes(
    api: Api,
    target: Target,
    namespace: str,
    *,
    accept: str = JSON,
    label_selector: str = "",
    field_selector: str = "",
) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
    """("LIST", list), then (ADDED, MODIFIED or DELETED, object); LIST again after falling behind.

    With `accept` TABLE lists and objects are Tables where the server makes them.
    """
    collection = Target(target.resource, "", target.namespace).path(namespace)
    if target.name:
        field_selector = f"metadata.name={target.name}"
    selectors = given(labelSelector=label_selector, fieldSelector=field_selector)
    columns: list[Any] = []
    while True:
        listed = await api.pages(collection, {**selectors, "limit": "500"}, accept=accept)
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
        params = {**selectors, "watch": "true", "allowWatchBookmarks": "true"}
        async with api.stream(
            path, {**params, "resourceVersion": revision}, accept=accept
        ) as lines:
            async for line in lines:
                if not line.strip():
                    continue
                event = orjson.loads(line)
                kind, record = event["type"], event["object"]
                if kind == "ERROR":
                    raise ApiError.from_status(record, code=500)
                revision = _revision(record) or revision
                if kind != "BOOKMARK":
                    yield kind, record
        await asyncio.sleep(max(0.0, _PAUSE_S - (loop.time() - begin_s)))


def _revision(record: Mapping[str, Any]) -> str:
    """The object's own; of a Table, that of its last row."""
    rows = raw.records(record, "rows")
    own = raw.text(rows[-1], "object", "metadata", "resourceVersion") if rows else ""
    return own or raw.text(record, "metadata", "resourceVersion")


class _Printer:
    """Shows objects one by one in a form; rows of a table stay aligned."""

    def __init__(self, target: Target, args: argparse.Namespace) -> None:
        self._target = target
        self._args = args
        self._form = args.output
        self._widths: list[int] = []
        self._headers = not args.no_headers

    def show_list(self, listed: Mapping[str, Any]) -> None:
        if self._form.is_table:
            table = get.as_table(listed, Target(self._target.resource))
            if table["rows"]:
                self._rows("ADDED", table)
            return
        for item in raw.records(listed, "items"):
            kind = {"apiVersion": self._target.resource.api_version,
                    "kind": self._target.resource.kind}  # fmt: skip
            self.show("ADDED", {**kind, **item})

    async def follow(self, told: AsyncIterator[tuple[str, dict[str, Any]]]) -> None:
        """Show what changes; of a list that is told again only what follows it."""
        async for kind, record in told:
            if kind != "LIST":
                self.show(kind, record)

    def show(self, event: str, record: Mapping[str, Any]) -> None:
        if self._form.is_table:
            is_table = record.get("kind") == "Table"
            kind = self._target.resource.kind
            self._rows(event, record if is_table else table_of(kind, [record], utc_now()))
        elif self._form.name == "name":
            self._line(self._target.resource.shown(raw.text(record, "metadata", "name")))
        elif self._form.name == "custom-columns":
            header = [[name for name, _ in self._form.columns]] if self._headers else []
            self._headers = False
            rows = [*header, *forms.column_rows(self._form, [record])]
            self._line("\n".join(printing.columns(rows, self._widths)))
        else:
            managed = self._args.show_managed_fields
            shown = record if managed else printing.unmanaged(record)
            if self._form.name == "yaml":
                self._line("---")
            wrapped = {"type": event, "object": shown}
            forms.show(self._form, wrapped if self._args.output_watch_events else shown)
            self._line("", end="")

    def _rows(self, event: str, table: Mapping[str, Any]) -> None:
        """Rows, below the header if it was not shown before."""
        options = get.table_options(self._target.resource, self._args, several=False)
        rows = printing.table_rows(table, options)
        if not self._headers and options.headers:
            rows = rows[1:]
        if self._args.output_watch_events:
            titled = self._headers and options.headers
            rows = [["EVENT" if titled and not n else event, *row] for n, row in enumerate(rows)]
        self._headers = False
        self._line("\n".join(printing.columns(rows, self._widths)))

    def _line(self, text: str, end: str = "\n") -> None:
        print(text, end=end, flush=True)
