"""`orchctl metrics`: the promised metric names, their tiers, and which program exposes them.

Asks no server: this is the catalogue of the release that this command belongs to.
"""

from __future__ import annotations

import argparse
import dataclasses

from orch.ctl import printing
from orch.wire import metric_catalogue
from orch.wire.metric_catalogue import Entry

EXAMPLES = """
orchctl metrics --tier stable --served
orchctl metrics --owner nodeagent -o json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tier", choices=("STABLE", "BETA", "ALPHA"), type=str.upper, default="")
    parser.add_argument("--owner", default="", help="only names of this program")
    parser.add_argument("--served", action="store_true", help="only names that are exposed")
    parser.add_argument("-o", "--output", choices=("json", "yaml"), default="", help="form")


def run(args: argparse.Namespace) -> int:
    wanted = [entry for entry in metric_catalogue.entries() if _matches(entry, args)]
    if args.output:
        records = [dataclasses.asdict(entry) for entry in wanted]
        print(printing.as_json(records) if args.output == "json" else printing.as_yaml(records))
        return 0
    rows = [(entry.name, entry.tier, _served(entry), entry.owner) for entry in wanted]
    print("\n".join(printing.columns([("NAME", "TIER", "SERVED", "OWNER"), *rows])))
    return 0


def _matches(entry: Entry, args: argparse.Namespace) -> bool:
    return (
        (not args.tier or entry.tier == args.tier)
        and (not args.owner or entry.owner == args.owner)
        and (entry.served or not args.served)
    )


def _served(entry: Entry) -> str:
    return "yes" if entry.served else "no"
