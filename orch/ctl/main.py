"""`orchctl`: finds the command, imports only what that one needs, and turns errors into lines.

Every command is a module with `add_arguments(parser)` and `run(args) -> int` (the exit code). The
global options may stand before or after the command word.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import NoReturn

from orch.ctl import failures, options

COMMANDS: Mapping[str, tuple[str, str]] = {
    "get": ("get", "show objects"),
    "describe": ("describe", "show a node or a pod in detail, with its events"),
    "create": ("create", "create objects from files"),
    "apply": ("apply", "create objects from files, or change them to what the files say"),
    "delete": ("delete", "delete objects"),
    "patch": ("patch", "change fields of an object"),
    "cordon": ("cordon", "mark nodes as not schedulable"),
    "uncordon": ("uncordon", "mark nodes as schedulable"),
    "checkpoint": ("checkpoint", "write a running container's state to an archive on its node"),
    "node": ("node", "ask a node's agent: its statistics, its health"),
    "api-resources": ("api_resources", "list the resource types the server has"),
    "config": ("config", "show the kubeconfig in use"),
    "metrics": ("metrics", "list the promised metrics, their tiers and who exposes them"),
    "version": ("version", "show the versions of this command and of the server"),
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(failures.USAGE, f"{self.prog}: error: {message}; see '{self.prog} --help'\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the result is the exit code: 0, 1 for a failure (2, by exit, for usage)."""
    args, command = _parse(list(sys.argv[1:] if argv is None else argv))
    try:
        code = int(command.run(args))
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has gone; nothing is left to say, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return failures.FAILED
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        line = failures.explain(error)
        if line is None:
            raise
        print(f"error: {line}", file=sys.stderr)
        return failures.USAGE if isinstance(error, failures.WrongUsage) else failures.FAILED
    return code


def _parse(argv: list[str]) -> tuple[argparse.Namespace, ModuleType]:
    outer = _Parser(
        prog="orchctl",
        usage="orchctl COMMAND … [options]",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Ask and change a cluster through its API server.\n\ncommands:\n"
        + "\n".join(f"  {name:14} {text}" for name, (_, text) in COMMANDS.items()),
        epilog="Exit codes: 0 done, 1 failed (one line on standard error says why), 2 usage.",
    )
    options.add_to(outer, defaults=True)
    outer.add_argument("command", choices=COMMANDS, metavar="COMMAND")
    outer.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    args = outer.parse_args(argv)
    name, text = COMMANDS[args.command]
    module = importlib.import_module(f"orch.ctl.{name}")
    inner = _Parser(prog=f"orchctl {args.command}", allow_abbrev=False, description=text)
    module.add_arguments(inner)
    inner.usage = f"{inner.format_usage().removeprefix('usage: ').strip()} [options]"
    options.add_to(inner, defaults=False)
    return inner.parse_intermixed_args(args.rest, args), module


if __name__ == "__main__":
    sys.exit(main())
