"""The manual page and the shell completions of every program, made from its parsers.

hatch_build.py puts them into a wheel, and the packages take them from there.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Mapping

import shtab
from argcomplete.shell_integration import shellcode
from argparse_manpage.manpage import Manpage

from nodeagent.commands.dispatch import COMMANDS
from nodeagent.config import options as agent_options
from nodeagent.pods.volumes import mount_helper
from orch.ctl import command_table, options, parsing
from orch.lifecycle import options as controller_options
from orch.server import authority, doctor
from orch.server import flags as apiserver_flags
from orch.up import main as up
from orch.wire.names import VERSION

_CLIENT = "orchctl"
_SHORT = {
    "nodeagent": "runs a host's pods, measures them, reports the node",
    "nodeagent-mounts": "mounts volumes for a node agent that may not",
    "orch-apiserver": "the API server of a cluster",
    "orch-controller-manager": "judges nodes by their heartbeats",
    "orch-up": "a whole cluster on one machine, in the foreground",
    _CLIENT: "ask and change a cluster",
}
_COMPLETIONS = {
    "bash": "share/bash-completion/completions/{}",
    "zsh": "share/zsh/vendor-completions/_{}",
    "fish": "share/fish/vendor_completions.d/{}.fish",
}


def files() -> dict[str, str]:
    """Every page and script by its path below the prefix, such as `share/man/man8/nodeagent.8`."""
    made = {f"share/man/man1/{_CLIENT}.1": page(_CLIENT, client())}
    for shell, path in _COMPLETIONS.items():
        made[path.format(_CLIENT)] = shellcode([_CLIENT], shell=shell)
    for name, parser in daemons().items():
        section = 1 if name == "orch-up" else 8
        made[f"share/man/man{section}/{name}.{section}"] = page(name, parser, section)
        for shell in ("bash", "zsh"):
            made[_COMPLETIONS[shell].format(name)] = shtab.complete(parser, shell)
    return made


def page(name: str, parser: argparse.ArgumentParser, section: int = 1) -> str:
    """One page in roff: the options of the program, then each command with its own."""
    parser.man_short_description = _SHORT[name]  # type: ignore[attr-defined]
    manual = Manpage(parser, format="single-commands-section")
    manual.source, manual.section = f"{name} {VERSION}", section
    manual.manual = "User commands" if section == 1 else "System administration"
    return str(manual)


def daemons() -> Mapping[str, argparse.ArgumentParser]:
    """The parser of every program but the client's, with the commands it has."""
    agent = agent_options.parser()
    commands = agent.add_subparsers(title="commands")
    for word, (module, text) in COMMANDS.items():
        child = commands.add_parser(word, help=text, description=text, allow_abbrev=False)
        importlib.import_module(f"nodeagent.commands.{module}").add_arguments(child)
    server = apiserver_flags.parser()
    of_server = server.add_subparsers(title="commands")
    for word, room in (("init", authority), ("doctor", doctor)):
        text = room.DESCRIPTION
        child = of_server.add_parser(word, help=text, description=text, allow_abbrev=False)
        room.add_arguments(child)
    return {
        "nodeagent": agent,
        "nodeagent-mounts": mount_helper.parser(),
        "orch-apiserver": server,
        "orch-controller-manager": controller_options.parser(),
        "orch-up": up.parser(),
    }


def client() -> argparse.ArgumentParser:
    """The parser of all of the client's commands at once."""
    parser = argparse.ArgumentParser(
        _CLIENT,
        description="Ask and change a cluster through its API server.",
        epilog=parsing.EXIT_CODES,
    )
    for names, text, settings in options.OPTIONS:
        parser.add_argument(*names, help=text, **settings)
    commands = parser.add_subparsers()
    for words, entry in command_table.walk():
        command = entry.load()
        child = commands.add_parser(
            " ".join(words), help=entry.text,
            description=f"{entry.text}\n\nexamples:\n\n{command.EXAMPLES.strip()}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        command.add_arguments(child)
    return parser
