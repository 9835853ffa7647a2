"""The offline commands of `nodeagent`: `nodeagent <command> …` instead of the daemon's flags.

A command is a module with `add_arguments(parser)` and `run(args) -> int` (the exit code); only the
chosen module is imported.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Mapping, Sequence

from nodeagent.config.layers import ConfigError
from orch.component.flags.program_flags import USAGE, Parser
from orch.component.process.daemon import SetupError

# Command → module, description.
COMMANDS: Mapping[str, tuple[str, str]] = {
    "checkpoint": ("checkpoint", "create checkpoints, and list, verify, pin or prune them"),
    "config": ("config", "show or check the configuration"),
    "debug": ("debug", "collect the files for a support case"),
    "doctor": ("doctor", "check whether this host can run the agent, and what is missing"),
    "image": ("image", "import images from files into the runtime, and list what it has"),
    "join": ("join", "make this machine a node of a cluster"),
    "leave": ("leave", "undo a join"),
    "reset": ("reset", "remove what the agent made on this host: pods, mounts, cgroups, files"),
    "seccomp": ("seccomp", "check seccomp profiles, and show which one each container gets"),
}


def dispatch(argv: Sequence[str]) -> int | None:
    """Run the named command; None when the first argument is a flag or missing (the daemon).

    SystemExit 2 for wrong usage, including unknown commands.
    """
    if not argv or argv[0].startswith("-"):
        return None
    word, *rest = argv
    if word not in COMMANDS:
        known = ", ".join(COMMANDS)
        sys.stderr.write(f"nodeagent: error: unknown command {word!r}; the commands are {known}\n")
        raise SystemExit(USAGE)
    name, text = COMMANDS[word]
    module = importlib.import_module(f"nodeagent.commands.{name}")
    parser = Parser(prog=f"nodeagent {word}", description=text, allow_abbrev=False)
    module.add_arguments(parser)
    return _run(module.run, parser.parse_args(rest), parser.prog)


def _run(run: object, args: argparse.Namespace, name: str) -> int:
    assert callable(run)  # noqa: S101 — every command module has it
    try:
        code = int(run(args))
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    except (ConfigError, SetupError) as error:
        for line in str(error).splitlines():
            sys.stderr.write(f"{name}: error: {line}\n")
        return 1
    return code
