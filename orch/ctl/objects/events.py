"""`orchctl events`: recent events, the latest last; with -w also new ones as they happen."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from orch.component.process.clock import utc_now
from orch.ctl import api, selection
from orch.ctl.api import Api, segment
from orch.ctl.discovery import Discovery
from orch.ctl.failures import WrongUsage, did_you_mean
from orch.ctl.objects import watch
from orch.ctl.output import formats, printing
from orch.ctl.selection import Selected
from orch.wire import raw
from orch.wire.tables.layout import NONE, last_seen, seen

EXAMPLES = """
orchctl events
orchctl events --for pod/web -w
orchctl events -A --types Warning
"""
_TYPES = ("Normal", "Warning")
_HEADER = ("NAMESPACE", "LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE")

Event = Mapping[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    selection.add_all_namespaces(parser)
    parser.add_argument("--for", dest="about", default="", metavar="TYPE/NAME", help="about this")
    parser.add_argument("--types", type=_types, default=(), metavar="TYPE,…", help="of this type")
    parser.add_argument("-w", "--watch", action="store_true", help="then print new events")
    parser.add_argument("--no-headers", action="store_true", help="only the rows")
    formats.add_to(parser, formats.DATA)


def _types(text: str) -> tuple[str, ...]:
    chosen = tuple(word.capitalize() for word in text.split(",") if word)
    for word in set(chosen) - set(_TYPES):
        hint = did_you_mean(word, _TYPES)
        raise argparse.ArgumentTypeError(f"{word!r} is not a type of event{hint}")
    return chosen


def run(args: argparse.Namespace) -> int:
    return api.run(args, _events)


async def _events(api: Api, args: argparse.Namespace) -> int:
    namespace = "" if args.all_namespaces else api.namespace
    fields: Mapping[str, str] = {}
    if args.about:
        fields, namespace = await _about(api, args, namespace)
    printer = _Printer(args)
    if args.watch:
        await _follow(api, namespace, fields, printer)
        return 0
    found = await api.items(path(namespace), fieldSelector=selector(fields))
    listed = printer.fresh(found)
    if listed and args.output:
        formats.show(args.output, printing.list_of(listed))
    elif listed:
        printer.show(listed)
    else:
        printing.note(f"No events found{f' in {namespace} namespace' if namespace else ''}.")
    return 0


async def _about(api: Api, args: argparse.Namespace, namespace: str) -> tuple[dict[str, str], str]:
    """The fields of an event about `--for`, and the namespace to look in."""
    if "/" not in args.about:
        raise WrongUsage(f"--for {args.about!r} is not an object: write TYPE/NAME")
    (target,) = await selection.find(api, Discovery(api), [args.about])
    fields = {
        "involvedObject.kind": target.resource.kind,
        "involvedObject.apiVersion": target.resource.api_version,
        "involvedObject.name": target.name,
    }
    everywhere = not target.resource.namespaced and not args.namespace
    return fields, "" if everywhere else namespace


async def _follow(api: Api, namespace: str, fields: Mapping[str, str], printer: _Printer) -> None:
    every = Selected(await Discovery(api).of_kind("v1", "Event"), namespace)
    async for kind, record in watch.changes(api, every, field_selector=selector(fields)):
        if kind != "DELETED":
            events = raw.records(record, "items") if kind == "LIST" else [record]
            printer.show(printer.fresh(events))


class _Printer:
    """Prints events, the latest last; each state of an event once."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._first = 0 if args.all_namespaces else 1  # the namespace is the first column
        self._widths: list[int] = []
        self._headers = [] if args.no_headers else [_HEADER]
        self._revisions: dict[str, str] = {}

    def fresh(self, events: Iterable[Event]) -> list[Event]:
        """Those of the wanted types that were not printed before, in order."""
        wanted = []
        for event in sorted(events, key=last_seen):
            uid, revision = (raw.text(event, "metadata", n) for n in ("uid", "resourceVersion"))
            is_new = not revision or self._revisions.get(uid) != revision
            self._revisions[uid] = revision
            if is_new and (not self._args.types or raw.text(event, "type") in self._args.types):
                wanted.append(event)
        return wanted

    def show(self, events: Sequence[Event]) -> None:
        if self._args.output:
            for event in events:
                formats.show(self._args.output, event)
        elif events:
            rows = [row[self._first :] for row in (*self._headers, *map(_row, events))]
            self._headers = []
            print("\n".join(printing.columns(rows, self._widths)), flush=True)


def _row(event: Event) -> tuple[str, ...]:
    about = raw.mapping(event, "involvedObject")
    return (
        raw.text(event, "metadata", "namespace") or NONE,
        seen(event, utc_now()),
        raw.text(event, "type"),
        raw.text(event, "reason"),
        f"{raw.text(about, 'kind')}/{raw.text(about, 'name')}",
        raw.text(event, "message").strip(),
    )


def path(namespace: str) -> str:
    """The path of the events of a namespace, or with "" of all."""
    return f"/api/v1/namespaces/{segment(namespace)}/events" if namespace else "/api/v1/events"


def selector(fields: Mapping[str, str]) -> str:
    """The field selector for these values; empty ones do not count."""
    return ",".join(f"{key}={value}" for key, value in fields.items() if value)
