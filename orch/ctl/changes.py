"""What the commands that write have in common: dry runs, the manager's name, repeated failures."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from orch.ctl import failures
from orch.ctl.failures import CommandFailed
from orch.wire.errors import ApiError

T = TypeVar("T")

_NOTES = {"client": " (dry run)", "server": " (server dry run)"}


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dry-run", choices=("none", "client", "server"), default="none",
        help="only show what would be done: as this command sees it, or as the server does",
    )  # fmt: skip


def add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", choices=("json", "yaml", "name"), default="", help="form")


def add_field_manager(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument("--field-manager", default=default, help="who the change is recorded for")


def done(word: str, args: argparse.Namespace) -> str:
    """`created`, `created (dry run)`."""
    return word + _NOTES.get(args.dry_run, "")


def parameters(args: argparse.Namespace, *, strict: bool = False) -> dict[str, str]:
    """The query parameters of a write."""
    params = {"fieldManager": args.field_manager}
    if strict:
        params["fieldValidation"] = "Strict"
    if args.dry_run == "server":
        params["dryRun"] = "All"
    return params


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
