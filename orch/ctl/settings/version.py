"""`orchctl version`: this command's version, and the server's unless `--client` is given."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from orch.component.terminal import one_line
from orch.wire.names import MAJOR, MINOR, VERSION

if TYPE_CHECKING:
    from orch.ctl.api import Api

EXAMPLES = """
orchctl version
orchctl version --client
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--client", action="store_true", help="only this command's version")
    parser.add_argument("-o", "--output", choices=("json", "yaml"), default="", help="format")


def run(args: argparse.Namespace) -> int:
    if not args.output:
        print(f"Client Version: {VERSION}")
    versions: dict[str, Any] = {"clientVersion": _own()}
    code = 0
    if not args.client:
        from orch.ctl import api  # here, so that --client loads no network code

        async def ask(api: Api, args: argparse.Namespace) -> int:
            versions["serverVersion"] = await api.get("/version")
            return 0

        code = api.run(args, ask)
    if args.output:
        from orch.ctl.output import printing

        print(printing.as_json(versions) if args.output == "json" else printing.as_yaml(versions))
    elif "serverVersion" in versions:
        version = versions["serverVersion"].get("gitVersion", "unknown")
        print(one_line(f"Server Version: {version}"))
    return code


def _own() -> dict[str, str]:
    """The members that the server's version has, without importing the slow `platform`."""
    return {
        "major": MAJOR,
        "minor": MINOR,
        "gitVersion": VERSION,
        "goVersion": f"python{'.'.join(map(str, sys.version_info[:3]))}",
        "compiler": sys.implementation.name,
        "platform": f"{sys.platform}/{os.uname().machine}",
    }
