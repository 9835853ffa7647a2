"""`orchctl api-resources`: the resource types the server has, with their short names."""

from __future__ import annotations

import argparse

from orch.ctl import printing, session
from orch.ctl.api import Api
from orch.ctl.discovery import Discovery, Resource

EXAMPLES = """
orchctl api-resources
orchctl api-resources -o wide
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", choices=("wide", "name"), default="", help="form")
    parser.add_argument("--no-headers", action="store_true", help="only the rows")


def run(args: argparse.Namespace) -> int:
    return session.run(args, _list)


async def _list(api: Api, args: argparse.Namespace) -> int:
    resources = [resource async for resource in Discovery(api).resources()]
    resources.sort(key=lambda resource: (resource.group, resource.plural))
    if args.output == "name":
        print("\n".join(resource.full_name for resource in resources))
        return 0
    header = ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"]
    rows = [_row(resource) for resource in resources]
    if args.output == "wide":
        header.append("VERBS")
        rows = [[*row, ",".join(r.verbs)] for row, r in zip(rows, resources, strict=True)]
    print("\n".join(printing.columns(rows if args.no_headers else [header, *rows])))
    return 0


def _row(resource: Resource) -> list[str]:
    return [
        resource.plural,
        ",".join(resource.short_names),
        resource.api_version,
        str(resource.namespaced).lower(),
        resource.kind,
    ]
