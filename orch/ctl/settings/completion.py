"""`orchctl completion SHELL`, and the answers to a press of Tab in a shell that has its script.

argcomplete reads commands and options from the parsers. Types and names of objects are asked from
the server, within a second; without a server there are just none.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import argcomplete
from argcomplete.shell_integration import shellcode

from orch.component.process.daemon import SetupError
from orch.ctl import api, command_table, failures, parsing
from orch.ctl.api import Api
from orch.ctl.command_table import COMMANDS
from orch.ctl.discovery import Discovery
from orch.ctl.failures import CommandFailed
from orch.ctl.output import formats
from orch.ctl.parsing import Parser
from orch.ctl.settings import config
from orch.wire import raw

EXAMPLES = """
orchctl completion bash > /etc/bash_completion.d/orchctl
orchctl completion zsh > "${fpath[1]}/_orchctl"
orchctl completion fish > ~/.config/fish/completions/orchctl.fish
"""
TIMEOUT_S = 1.0

Completer = Callable[..., Iterable[str]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")


def run(args: argparse.Namespace) -> int:
    print(shellcode(["orchctl"], shell=args.shell))
    return 0


def answer_shell() -> None:
    """Complete the line that the shell has left in the environment, and exit."""
    line = os.environ["COMP_LINE"][: int(os.environ["COMP_POINT"])]
    before, _, typed = line.rpartition(" ")
    parser, words = parser_of(before.split()[1:])
    shortened = " ".join(("orchctl", *words, typed))
    os.environ.update(COMP_LINE=shortened, COMP_POINT=str(len(shortened)))
    argcomplete.autocomplete(parser, always_complete_options=False, exit_method=sys.exit)


def parser_of(words: Sequence[str]) -> tuple[Parser, list[str]]:
    """The parser of the command that words begin with, its completers, and the words left for it.

    Options come first in the result, because argcomplete completes no positional argument once an
    option stands between two; an option that still needs its value stays last.
    """
    table, name = COMMANDS, ""
    parser = parsing.group_parser("", table, "")
    while True:
        flags, plain = _separated(parser, words)
        word = command_table.ALIASES.get(plain[0], plain[0]) if plain else ""
        if word not in table:
            break
        at = words.index(plain[0])  # other options keep their places: their values are unknown yet
        words = [*words[:at], *words[at + 1 :]]
        entry, name = table[word], f"{name} {word}".strip()
        table = entry.below
        parser = (
            parsing.command_parser(name, entry, entry.load())
            if entry.module
            else parsing.group_parser(name, table, "")
        )
    _add_completers(parser, {} if plain else {word: e.text for word, e in table.items()})
    if flags and parser.needs_value(flags[-1]):
        return parser, [*flags[:-1], *plain, flags[-1]]
    return parser, [*flags, *plain]


def _separated(parser: Parser, words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The options with their values, and the other words."""
    flags: list[str] = []
    plain: list[str] = []
    for word in words:
        is_value = bool(flags) and parser.needs_value(flags[-1])
        (flags if is_value or word.startswith("-") else plain).append(word)
    return flags, plain


def _add_completers(parser: Parser, commands: Mapping[str, str]) -> None:
    """Set the completers that argcomplete looks for; `commands` go with the first positional."""
    for action in parser.actions:
        completer = _COMPLETERS.get((action.option_strings or [str(action.metavar)])[-1])
        if isinstance(action.type, formats.Reader):
            completer = partial(_given, action.type.spellings)
        elif commands and not action.option_strings:
            own = completer or partial(_given, ())
            completer, commands = partial(_with_commands, commands, own), {}
        if completer:
            action.completer = completer  # type: ignore[attr-defined]


def _given(words: Iterable[str], **_: Any) -> Iterable[str]:
    return words


def _with_commands(
    commands: Mapping[str, str], completer: Completer, **place: Any
) -> Mapping[str, str]:
    return {**commands, **dict.fromkeys(completer(**place), "")}


def _entries(section: str, *, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    try:
        return config.names(config.read(_connection(parsed_args)), section)
    except (CommandFailed, SetupError):
        return []


def _objects(
    *, prefix: str, action: argparse.Action, parsed_args: argparse.Namespace, **_: Any
) -> list[str]:
    """`TYPE`, then `NAME` of that type; or `TYPE/NAME`. The verb of `auth can-i` stands before."""
    words = list(getattr(parsed_args, "words", None) or ())
    if str(action.metavar).startswith("VERB"):
        words = words[1:]
    kind, slash, _name = prefix.partition("/")
    if slash:
        return [f"{kind}/{name}" for name in _names(kind, parsed_args=parsed_args)]
    return _names(words[0], parsed_args=parsed_args) if words else _types(parsed_args)


def _types(parsed_args: argparse.Namespace) -> list[str]:
    async def ask(api: Api) -> list[str]:
        return [r.plural async for r in Discovery(api).resources() if "list" in r.verbs]

    return _asked(parsed_args, ask)


def _names(kind: str, *, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    async def ask(api: Api) -> list[str]:
        resource = await Discovery(api).resolve(kind)
        items = await api.items(resource.path(api.namespace))
        return [raw.text(item, "metadata", "name") for item in items]

    return _asked(parsed_args, ask)


def _asked(
    parsed_args: argparse.Namespace, ask: Callable[[Api], Awaitable[list[str]]]
) -> list[str]:
    """Ask the server, for a second in all; whatever goes wrong, there is nothing to offer."""
    import aiohttp  # noqa: F401 - loaded before the second begins, which is the server's

    found: list[str] = []

    async def briefly(api: Api, args: argparse.Namespace) -> int:
        async with asyncio.timeout(TIMEOUT_S):
            found.extend(await ask(api))
        return 0

    try:
        api.run(_connection(parsed_args), briefly)
    except TimeoutError:
        return []
    except Exception as error:
        if failures.explain(error) is None:
            raise
    return found


def _connection(parsed_args: argparse.Namespace) -> argparse.Namespace:
    """The options of every command so far, with a short time to wait and no log."""
    args = parsing.default_options()
    for name in vars(args).keys() & vars(parsed_args).keys():
        setattr(args, name, getattr(parsed_args, name))
    args.request_timeout, args.verbosity = TIMEOUT_S, 0
    return args


_COMPLETERS: Mapping[str, Completer] = {  # by option, or by the placeholder of a positional
    "--context": partial(_entries, "contexts"),
    "--cluster": partial(_entries, "clusters"),
    "--user": partial(_entries, "users"),
    "--namespace": partial(_names, "namespaces"),
    "CONTEXT": partial(_entries, "contexts"),
    "NODE": partial(_names, "nodes"),
    "POD [CONTAINER]": partial(_names, "pods"),
    "[NAMESPACE/]POD": partial(_names, "pods"),
    "TYPE[/NAME] [NAME]": _objects,
    "VERB TYPE[/NAME]|PATH": _objects,
}
