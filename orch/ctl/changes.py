"""What the commands that write have in common: dry runs, the manager's name, repeated failures."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

from orch.component.process.clock import utc_now
from orch.ctl import failures, forms, manifests, printing
from orch.ctl.api import Api
from orch.ctl.discovery import Discovery, Resource
from orch.ctl.failures import CommandFailed, visible
from orch.ctl.manifests import Manifest
from orch.wire import raw
from orch.wire.errors import ApiError
from orch.wire.tables.tables import table_of

T = TypeVar("T")

_VALIDATION = {
    "strict": "Strict", "warn": "Warn", "ignore": "Ignore", "true": "Strict", "false": "Ignore",
}  # fmt: skip
_NOTES = {"client": " (dry run)", "server": " (server dry run)"}


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dry-run", choices=("none", "client", "server"), default="none",
        help="only show what would be done: as this command sees it, or as the server does",
    )  # fmt: skip


def add_output(parser: argparse.ArgumentParser) -> None:
    forms.add_to(parser, forms.OF_CHANGES)
    parser.add_argument("--show-managed-fields", action="store_true", help="show who set what")


def add_validate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--validate", choices=_VALIDATION, default="strict", nargs="?", const="strict",
        help="unknown fields are refused, only warned of, or ignored",
    )  # fmt: skip


def add_field_manager(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument("--field-manager", default=default, help="who the change is recorded for")


def done(word: str, args: argparse.Namespace) -> str:
    """`created`, `created (dry run)`."""
    return word + _NOTES.get(args.dry_run, "")


def parameters(args: argparse.Namespace, *, strict: bool = False) -> dict[str, str]:
    """The query parameters of a write."""
    params = {"fieldManager": args.field_manager}
    if strict:
        params["fieldValidation"] = _VALIDATION[getattr(args, "validate", "strict")]
    if args.dry_run == "server":
        params["dryRun"] = "All"
    return params


async def each_manifest(
    found: Iterable[Manifest],
    write: Callable[[Manifest, Resource], Awaitable[tuple[dict[str, Any], str]]],
    api: Api,
    args: argparse.Namespace,
) -> int:
    """Write the objects of files; `write` gives what is stored now and the word for it."""
    discovery = Discovery(api)

    async def one(manifest: Manifest) -> None:
        resource = await manifests.resource_of(manifest, discovery)
        placed = manifests.placed(manifest, resource, api.namespace, asked=args.namespace)
        record, word = await write(placed, resource)
        show(record, resource, word, args)

    return await each(found, one)


async def each(items: Iterable[T], change: Callable[[T], Awaitable[None]]) -> int:
    """Change one after the other; a refused one is reported and the rest still tried."""
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
    """A changed object in the form asked for; without a form, `kind/name word`."""
    form = args.output
    shown = resource.shown(raw.text(record, "metadata", "name"))
    if not form:
        print(visible(f"{shown} {done(word, args)}"))
    elif form.name == "name":
        print(visible(shown))
    elif form.name == "wide":
        table = table_of(resource.kind, [record], utc_now())
        rows = printing.table_rows(table, printing.TableOptions(wide=True))
        print("\n".join(printing.columns(rows)))
    else:
        managed = getattr(args, "show_managed_fields", False)
        forms.show(form, record if managed else printing.unmanaged(record))
