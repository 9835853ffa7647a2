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
    parser.add_argument("--api-group", metavar="GROUP", help="only of this group ('': the core)")
    parser.add_argument("--verbs", default="", metavar="VERB,…", help="only with all these verbs")
    parser.add_argument("--categories", default="", metavar="NAME,…", help="only in all of these")
    parser.add_argument("--sort-by", choices=("name", "kind"), default="", help="order by this")
    parser.add_argument(
        "--namespaced", choices=("true", "false"), default="", nargs="?", const="true",
        help="only those in namespaces, or only those that are not",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    return session.run(args, _list)


async def _list(api: Api, args: argparse.Namespace) -> int:
    resources = [r async for r in Discovery(api).resources() if _is_wanted(r, args)]
    orders = {"name": lambda r: r.plural, "kind": lambda r: r.kind}
    resources.sort(key=lambda resource: (resource.group, resource.plural))
    if args.sort_by:
        resources.sort(key=orders[args.sort_by])
    if args.output == "name":
        print("\n".join(resource.full_name for resource in resources))
        return 0
    header = ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"]
    rows = [_row(resource) for resource in resources]
    if args.output == "wide":
        header += ["VERBS", "CATEGORIES"]
        rows = [
            [*row, ",".join(r.verbs), ",".join(r.categories)]
            for row, r in zip(rows, resources, strict=True)
        ]
    print("\n".join(printing.columns(rows if args.no_headers else [header, *rows])))
    return 0


def _is_wanted(resource: Resource, args: argparse.Namespace) -> bool:
    verbs, categories = ({one for one in text.split(",") if one} for text in
                         (args.verbs, args.categories))  # fmt: skip
    return (
        args.api_group in (None, resource.group)
        and verbs <= set(resource.verbs)
        and categories <= set(resource.categories)
        and args.namespaced in ("", str(resource.namespaced).lower())
    )


def _row(resource: Resource) -> list[str]:
    return [
        resource.plural,
        ",".join(resource.short_names),
        resource.api_version,
        str(resource.namespaced).lower(),
        resource.kind,
    ]
