"""`orchctl config get-contexts|current-context|use-context|delete-context`."""

from __future__ import annotations

import argparse
from typing import Any

from orch.ctl import config_file, printing
from orch.ctl.commands import Verb
from orch.ctl.failures import CommandFailed, visible
from orch.wire import raw


def _get_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these")
    parser.add_argument("-o", "--output", choices=("name",), default="", help="only the names")
    parser.add_argument("--no-headers", action="store_true", help="only the rows")


def _get(args: argparse.Namespace) -> int:
    data = config_file.read(args)
    names = args.names or sorted(config_file.names(data, "contexts"))
    if args.output:
        print(visible("\n".join(names)) if len(names) == 1 else "\n".join(map(visible, names)))
        return 0
    current = str(data.get("current-context") or "")
    rows = [_row(name, current, config_file.entry(data, "contexts", name)) for name in names]
    header = [] if args.no_headers else [("CURRENT", "NAME", "CLUSTER", "AUTHINFO", "NAMESPACE")]
    print("\n".join(printing.columns([*header, *rows])))
    return 0


def _row(name: str, current: str, context: dict[str, Any]) -> tuple[str, ...]:
    fields = (raw.text(context, key) for key in ("cluster", "user", "namespace"))
    return ("*" if name == current else "", name, *fields)


def _no_arguments(parser: argparse.ArgumentParser) -> None:
    """None beyond the global options."""


def _current(args: argparse.Namespace) -> int:
    name = config_file.read(args).get("current-context")
    if not name:
        raise CommandFailed("no context is in use: choose one with 'orchctl config use-context'")
    print(visible(str(name)))
    return 0


def _name_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the context")


def _use(args: argparse.Namespace) -> int:
    config_file.entry(config_file.read(args), "contexts", args.name)
    path, data = config_file.opened(args)
    config_file.write(path, {**data, "current-context": args.name})
    print(visible(f'Switched to context "{args.name}".'))
    return 0


def _delete(args: argparse.Namespace) -> int:
    config_file.entry(config_file.read(args), "contexts", args.name)
    path, data = config_file.opened(args, "contexts", args.name)
    config_file.drop(data, "contexts", args.name)
    config_file.write(path, data)
    if config_file.read(args).get("current-context") == args.name:
        printing.note("Warning: this was the context in use: choose another with use-context")
    print(visible(f"deleted context {args.name} from {path}"))
    return 0


GET_CONTEXTS = Verb(_get_arguments, _get, "orchctl config get-contexts -o name")
CURRENT_CONTEXT = Verb(_no_arguments, _current, "orchctl config current-context")
USE_CONTEXT = Verb(_name_argument, _use, "orchctl config use-context production")
DELETE_CONTEXT = Verb(_name_argument, _delete, "orchctl config delete-context old")
