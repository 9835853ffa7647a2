"""What may stand at the cursor: commands, options, their values, types and names of objects.

Names are asked from the server, within a second; without a server there are just none.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from orch.ctl import commands, config_file, forms, parsing
from orch.ctl.commands import Entry

if TYPE_CHECKING:
    from orch.ctl.api import Api
    from orch.ctl.session import Action

_TIMEOUT_S = 1.0
_OF_TYPES = ("TYPE[/NAME] [NAME]", "VERB TYPE[/NAME]|PATH")
_OF_NODES = ("NODE",)
_OF_PODS = ("POD [CONTAINER]", "[NAMESPACE/]POD")
_SECTIONS = {"--context": "contexts", "--cluster": "clusters", "--user": "users"}

Candidate = tuple[str, str]  # the word, and what it is


def main(words: Sequence[str]) -> int:
    """Print the candidates for the last of the words, each with a tab and what it is."""
    for word, text in complete(list(words) or [""]):
        print(f"{word}\t{text}")
    return 0


def complete(words: list[str]) -> list[Candidate]:
    """The candidates for the last word, which may be empty or begun."""
    *before, typed = words
    found, rest = _command(before)
    if isinstance(found, Entry):
        command = found.load()
        parser = parsing.command_parser(" ".join(before), found.text, command)
        listed = _of_command(parser, found.below, before, rest, typed)
    else:
        option = _value_option(parsing.words_parser("orchctl", found, "", ""), before, typed)
        listed = option if option is not None else _words(found, typed)
    return sorted({one for one in listed if one[0].startswith(typed)})


def _command(before: Sequence[str]) -> tuple[Entry | Mapping[str, Entry], list[str]]:
    """The command the words name and those after it; or the table its next word is from."""
    table: Mapping[str, Entry] = commands.COMMANDS
    at, entry = 0, None
    for number, word in enumerate(before):
        if word in table and not word.startswith("-"):
            entry, at = table[word], number + 1
            table = entry.below
            if not table:
                break
    if entry is None or (not entry.module and not any(e is entry for _, e in commands.walk())):
        return (entry.below if entry else commands.COMMANDS), []
    return entry, list(before[at:])


def _words(table: Mapping[str, Entry], typed: str) -> Iterable[Candidate]:
    if typed.startswith("-"):
        return _options(parsing.words_parser("orchctl", table, "", ""))
    return [(word, entry.text) for word, entry in table.items()]


def _options(parser: argparse.ArgumentParser) -> list[Candidate]:
    return [
        (name, action.help or "")
        for action in parser._actions
        if action.help != argparse.SUPPRESS
        for name in action.option_strings
        if name.startswith("--") or len(action.option_strings) == 1
    ]


def _of_command(
    parser: parsing.Parser,
    below: Mapping[str, Entry],
    before: Sequence[str],
    rest: list[str],
    typed: str,
) -> Iterable[Candidate]:
    values = _value_option(parser, before, typed)
    if values is not None:
        return values
    if typed.startswith("-"):
        return _options(parser)
    plain = parsing.plain_words(parser, rest)
    listed = [] if plain else list(_words(below, typed))
    positional = next((a for a in parser._actions if not a.option_strings), None)
    if positional is None:
        return listed
    if positional.choices:
        return [*listed, *((str(choice), "") for choice in positional.choices)]
    return [*listed, *_of_place(str(positional.metavar), plain, before, typed)]


def _value_option(
    parser: argparse.ArgumentParser, before: Sequence[str], typed: str
) -> Iterable[Candidate] | None:
    """The values of the option that the cursor stands behind; None when it stands behind none."""
    option, equals, _ = typed.partition("=")
    prefix = f"{option}=" if equals and option.startswith("--") else ""
    name = option if prefix else before[-1] if before else ""
    action = parser._option_string_actions.get(name) if name.startswith("-") else None
    if action is None or action.nargs == 0:
        return None
    if action.choices:
        return [(f"{prefix}{choice}", "") for choice in action.choices]
    before = before if prefix else before[:-1]
    if isinstance(action.type, forms.Reader):
        return [(f"{prefix}{form}", "") for form in _forms(action.type.names)]
    if name in _SECTIONS:
        return [(f"{prefix}{n}", "") for n in _entries(before, _SECTIONS[name])]
    if name in ("-n", "--namespace"):
        return [(f"{prefix}{n}", "") for n in _names(before, "namespaces")]
    return []


def _forms(names: Iterable[str]) -> list[str]:
    return [f"{name}=" if forms.takes_template(name) else name for name in names]


def _of_place(
    metavar: str, plain: Sequence[str], before: Sequence[str], typed: str
) -> Iterable[Candidate]:
    if metavar in _OF_NODES:
        return [(name, "node") for name in _names(before, "nodes")]
    if metavar in _OF_PODS:
        return [(name, "pod") for name in _names(before, "pods")] if not plain else []
    if metavar == "COMMAND":
        found, _ = _command(plain)
        return _words(found.below if isinstance(found, Entry) else found, "")
    if metavar == "NAME":
        return [(name, "context") for name in _entries(before, "contexts")]
    if metavar not in _OF_TYPES:
        return []
    kind, slash, _ = typed.partition("/")
    if slash:
        return [(f"{kind}/{name}", kind) for name in _names(before, kind)]
    if plain:
        return [(name, plain[0]) for name in _names(before, plain[0])]
    return _types(before)


def _entries(before: Sequence[str], section: str) -> list[str]:
    from orch.component.process.daemon import SetupError
    from orch.ctl.failures import CommandFailed

    try:
        return config_file.names(config_file.read(_connection(before)), section)
    except (CommandFailed, SetupError):
        return []


def _connection(before: Sequence[str]) -> argparse.Namespace:
    """The global options among the words, with a short time to wait."""
    from orch.ctl import options

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    options.add_to(parser, defaults=True)
    try:
        args, _ = parser.parse_known_args(list(before))
    except (argparse.ArgumentError, SystemExit):
        args = parsing.defaults()
    args.request_timeout = _TIMEOUT_S
    args.verbosity = 0
    return args


def _types(before: Sequence[str]) -> list[Candidate]:
    from orch.ctl.discovery import Discovery

    found: list[Candidate] = []

    async def ask(api: Api, args: argparse.Namespace) -> int:
        found.extend(
            [(r.plural, r.kind) async for r in Discovery(api).resources() if "list" in r.verbs]
        )
        return 0

    _asked(before, ask)
    return found


def _names(before: Sequence[str], kind: str) -> list[str]:
    from orch.ctl.discovery import Discovery
    from orch.wire import raw

    found: list[str] = []

    async def ask(api: Api, args: argparse.Namespace) -> int:
        resource = await Discovery(api).resolve(kind)
        items = await api.items(resource.path(api.namespace))
        found.extend(raw.text(item, "metadata", "name") for item in items)
        return 0

    _asked(before, ask)
    return found


def _asked(before: Sequence[str], ask: Action) -> None:
    """Ask the server, all in all for a second; whatever goes wrong, there is nothing to offer."""
    import asyncio

    import aiohttp  # noqa: F401 — loading it takes a part of the second that is the server's

    from orch.ctl import failures, session

    async def briefly(api: Api, args: argparse.Namespace) -> int:
        async with asyncio.timeout(_TIMEOUT_S):
            return await ask(api, args)

    try:
        session.run(_connection(before), briefly)
    except TimeoutError:
        return
    except Exception as error:
        if failures.explain(error) is None:
            raise
