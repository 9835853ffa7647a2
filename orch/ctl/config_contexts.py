"""`orchctl config get-contexts|current-context|use-context|rename-context|delete-context`."""

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
    _choose(args, args.name)
    print(visible(f'Switched to context "{args.name}".'))
    return 0


def _choose(args: argparse.Namespace, name: str) -> None:
    path, data = config_file.opened(args)
    config_file.write(path, {**data, "current-context": name})


def _rename_arguments(parser: argparse.ArgumentParser) -> None:
    _name_argument(parser)
    parser.add_argument("new_name", metavar="NEW_NAME", help="what it is called from now on")


def _rename(args: argparse.Namespace) -> int:
    before = config_file.read(args)
    config_file.entry(before, "contexts", args.name)
    if args.new_name in config_file.names(before, "contexts"):
        raise CommandFailed(f"there is a context {args.new_name!r} already: choose another name")
    path, data = config_file.opened(args, "contexts", args.name)
    for context in data["contexts"]:
        if context.get("name") == args.name:
            context["name"] = args.new_name
    config_file.write(path, data)
    if before.get("current-context") == args.name:
        _choose(args, args.new_name)
    print(visible(f'Context "{args.name}" renamed to "{args.new_name}".'))
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
RENAME_CONTEXT = Verb(_rename_arguments, _rename, "orchctl config rename-context old new")
DELETE_CONTEXT = Verb(_name_argument, _delete, "orchctl config delete-context old")
