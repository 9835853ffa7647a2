"""Shared by the commands that write: dry runs, field managers, errors per object, deletion."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

from orch.component.process.clock import utc_now
from orch.component.terminal import visible
from orch.ctl import failures, manifests
from orch.ctl.api import Api
from orch.ctl.discovery import Discovery, Resource
from orch.ctl.failures import CommandFailed
from orch.ctl.manifests import Manifest
from orch.ctl.output import formats, printing
from orch.wire import raw
from orch.wire.errors import ApiError
from orch.wire.tables.tables import table_of

T = TypeVar("T")
Write = Callable[[Manifest, Resource], Awaitable[tuple[dict[str, Any], str]]]

_VALIDATION = {
    "strict": "Strict", "warn": "Warn", "ignore": "Ignore", "true": "Strict", "false": "Ignore",
}  # fmt: skip
_NOTES = {"client": " (dry run)", "server": " (server dry run)"}
_POLL_S = 0.2


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dry-run", choices=("none", "client", "server"), default="none",
        help="only show what would happen: computed here, or by the server",
    )  # fmt: skip


def add_write(parser: argparse.ArgumentParser, manager: str) -> None:
    """The options of every write: --dry-run and --field-manager."""
    add_dry_run(parser)
    parser.add_argument("--field-manager", default=manager, help="name to record the change under")


def add_output(parser: argparse.ArgumentParser) -> None:
    formats.add_to(parser, formats.OF_CHANGES)
    parser.add_argument("--show-managed-fields", action="store_true", help="show who set what")


def add_validate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--validate", choices=_VALIDATION, default="strict", nargs="?", const="strict",
        help="refuse unknown fields, warn about them, or ignore them",
    )  # fmt: skip


def done(word: str, args: argparse.Namespace) -> str:
    """`created`, `created (dry run)`."""
    return word + _NOTES.get(args.dry_run, "")


def parameters(args: argparse.Namespace) -> dict[str, str]:
    """The query parameters of a write."""
    params = {"fieldManager": args.field_manager}
    if "validate" in args:
        params["fieldValidation"] = _VALIDATION[args.validate]
    if args.dry_run == "server":
        params["dryRun"] = "All"
    return params


async def each_manifest(
    found: Iterable[Manifest], write: Write, api: Api, args: argparse.Namespace
) -> int:
    """Write the objects of files; `write` returns the stored record and the word to report."""
    discovery = Discovery(api)

    async def write_one(manifest: Manifest) -> None:
        resource = await manifests.resource_of(manifest, discovery)
        placed = manifests.placed(manifest, resource, api.namespace, asked=args.namespace)
        record, word = await write(placed, resource)
        show(record, resource, word, args)

    return await each(found, write_one)


async def each(items: Iterable[T], change: Callable[[T], Awaitable[None]]) -> int:
    """Change one item after the other; a failure is reported and the rest still tried."""
    code = 0
    for item in items:
        try:
            await change(item)
        except (ApiError, CommandFailed) as error:
            code = failures.FAILED
            print(f"error: {failures.explain(error)}", file=sys.stderr)
    return code


def show(
    record: Mapping[str, Any], resource: Resource, word: str, args: argparse.Namespace
) -> None:
    """A changed object in the requested format; by default `kind/name word`."""
    wanted = args.output
    label = resource.label(raw.text(record, "metadata", "name"))
    if not wanted:
        print(visible(f"{label} {done(word, args)}"))
    elif wanted.name == "name":
        print(visible(label))
    elif wanted.name == "wide":
        table = table_of(resource.kind, [record], utc_now())
        rows = printing.table_rows(table, printing.TableOptions(wide=True))
        print("\n".join(printing.columns(rows)))
    else:
        formats.show(wanted, printing.shown(record, args))


async def delete(
    api: Api, path: str, *, grace_s: int | None, propagation: str = "Background", dry_run: str
) -> str:
    """Ask for the deletion of the object at a path; the uid to wait for."""
    body: dict[str, object] = {"propagationPolicy": propagation}
    if grace_s is not None:
        body["gracePeriodSeconds"] = grace_s
    params = {"dryRun": "All"} if dry_run == "server" else None
    answer = await api.send("DELETE", path, body, params=params)
    return raw.text(answer, "details", "uid") or raw.text(answer, "metadata", "uid")


async def wait_gone(api: Api, path: str, uid: str, label: str, *, timeout_s: float) -> None:
    """Until the object with this uid is gone; CommandFailed after a time (0 waits forever)."""
    try:
        async with asyncio.timeout(timeout_s or None):
            while (found := await api.find(path)) is not None:
                if raw.text(found, "metadata", "uid") != uid:
                    return
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        raise CommandFailed(
            f"{label} is still there after {timeout_s:g} s, waiting for its containers or its "
            "finalizers: see 'orchctl get -o yaml'"
        ) from None
