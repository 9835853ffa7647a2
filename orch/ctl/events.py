"""`orchctl events`: what happened lately, the latest last; with -w also what happens now."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from orch.component.process.clock import utc_now
from orch.ctl import forms, happenings, printing, session, targets, watching
from orch.ctl.api import Api
from orch.ctl.discovery import Discovery
from orch.ctl.failures import WrongUsage, did_you_mean
from orch.ctl.targets import Target
from orch.wire import raw
from orch.wire.tables.layout import NONE

EXAMPLES = """
orchctl events
orchctl events --for pod/web -w
orchctl events -A --types Warning
"""
_TYPES = ("Normal", "Warning")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="of every namespace")
    parser.add_argument("--for", dest="about", default="", metavar="TYPE/NAME", help="only of this")
    parser.add_argument(
        "--types", type=_types, default=(), metavar="TYPE,…", help="only Normal, or only Warning"
    )
    parser.add_argument("-w", "--watch", action="store_true", help="go on with what happens")
    parser.add_argument("--no-headers", action="store_true", help="only the rows")
    forms.add_to(parser, ("json", "yaml"))


def _types(text: str) -> tuple[str, ...]:
    chosen = tuple(word.capitalize() for word in text.split(",") if word)
    for word in chosen:
        if word not in _TYPES:
            hint = did_you_mean(word, _TYPES)
            raise argparse.ArgumentTypeError(f"{word!r} is no type of event{hint}")
    return chosen


def run(args: argparse.Namespace) -> int:
    return session.run(args, _events)


async def _events(api: Api, args: argparse.Namespace) -> int:
    namespace = "" if args.all_namespaces else api.namespace
    fields: Mapping[str, str] = {}
    if args.about:
        fields, namespace = await _about(api, args, namespace)
    printer = _Printer(args)
    if args.watch:
        await _follow(api, namespace, fields, printer)
        return 0
    listed = printer.wanted(await happenings.about(api, namespace, fields))
    if listed and args.output:
        forms.show(args.output, printing.list_of(listed))
    elif listed:
        printer.show(listed)
    else:
        where = f" in {namespace} namespace" if namespace else ""
        printing.note(f"No events found{where}.")
    return 0


async def _about(api: Api, args: argparse.Namespace, namespace: str) -> tuple[dict[str, str], str]:
    """The fields an event about `--for` has, and the namespace to look in."""
    if "/" not in args.about:
        raise WrongUsage(f"--for {args.about!r} is no object: write TYPE/NAME")
    (target,) = await targets.find(Discovery(api), [args.about])
    fields = {
        "involvedObject.kind": target.resource.kind,
        "involvedObject.apiVersion": target.resource.api_version,
        "involvedObject.name": target.name,
    }
    everywhere = not target.resource.namespaced and not args.namespace
    return fields, "" if everywhere else namespace


async def _follow(api: Api, namespace: str, fields: Mapping[str, str], printer: _Printer) -> None:
    resource = await Discovery(api).of_kind("v1", "Event")
    selector = ",".join(f"{key}={value}" for key, value in fields.items())
    told: dict[str, str] = {}
    async for kind, record in watching.changes(
        api, Target(resource), namespace, field_selector=selector
    ):
        if kind == "DELETED":
            continue
        events = raw.records(record, "items") if kind == "LIST" else [record]
        fresh = [
            event for event in sorted(events, key=happenings.last_seen) if _is_new(event, told)
        ]
        if found := printer.wanted(fresh):
            printer.show(found)


def _is_new(event: Mapping[str, Any], told: dict[str, str]) -> bool:
    """Whether this state of an event was not told before."""
    uid = raw.text(event, "metadata", "uid")
    revision = raw.text(event, "metadata", "resourceVersion")
    new = told.get(uid) != revision
    told[uid] = revision
    return new


class _Printer:
    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._widths: list[int] = []
        self._headers = not args.no_headers

    def wanted(self, events: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        types = self._args.types
        return [event for event in events if not types or raw.text(event, "type") in types]

    def show(self, events: Sequence[Mapping[str, Any]]) -> None:
        if self._args.output:
            for event in events:
                forms.show(self._args.output, event)
            return
        spaced = self._args.all_namespaces
        rows = [_HEADER[0 if spaced else 1 :]] if self._headers else []
        rows += [self._row(event)[0 if spaced else 1 :] for event in events]
        self._headers = False
        print("\n".join(printing.columns(rows, self._widths)), flush=True)

    def _row(self, event: Mapping[str, Any]) -> tuple[str, ...]:
        about = raw.mapping(event, "involvedObject")
        return (
            raw.text(event, "metadata", "namespace") or NONE,
            happenings.seen(event, utc_now()),
            raw.text(event, "type"),
            raw.text(event, "reason"),
            f"{raw.text(about, 'kind')}/{raw.text(about, 'name')}",
            raw.text(event, "message").strip(),
        )


_HEADER = ("NAMESPACE", "LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE")
