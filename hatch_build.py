"""Puts the manual page of `orchctl` into a wheel, made from the definitions of its commands."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_PAGE = "build/man/orchctl.1"


class ManualPage(BuildHookInterface):  # type: ignore[type-arg]
    """Runs for real wheels only: an editable install has no place for manual pages."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        path = Path(self.root, _PAGE)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page(), encoding="utf-8")
        build_data["shared_data"][str(path)] = "share/man/man1/orchctl.1"


def page() -> str:
    """The page in roff: the options of every command, then each command with its own."""
    from argparse_manpage.manpage import Manpage

    from orch.ctl import command_table, options, parsing
    from orch.wire.names import VERSION

    parser = argparse.ArgumentParser(
        "orchctl",
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
    parser.man_short_description = "ask and change a cluster"  # type: ignore[attr-defined]
    manual = Manpage(parser, format="single-commands-section")
    manual.source, manual.manual = f"orchctl {VERSION}", "User commands"
    return str(manual)
