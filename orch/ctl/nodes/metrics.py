"""`orchctl metrics`: the promised metric names, their tiers, and which program exposes them.

Asks no server: it prints the catalogue of the release that this command belongs to.
"""

from __future__ import annotations

import argparse
import dataclasses

from orch.ctl.output import formats, printing
from orch.wire import metric_catalogue

EXAMPLES = """
orchctl metrics --tier stable --served
orchctl metrics --owner nodeagent -o json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    tiers = ("STABLE", "BETA", "ALPHA")
    parser.add_argument("--tier", choices=tiers, type=str.upper, default="", help="only this tier")
    parser.add_argument("--owner", default="", help="only metrics of this program")
    parser.add_argument("--served", action="store_true", help="only metrics that are exposed")
    formats.add_to(parser, formats.DATA)


def run(args: argparse.Namespace) -> int:
    wanted = [
        entry
        for entry in metric_catalogue.entries()
        if args.tier in ("", entry.tier) and args.owner in ("", entry.owner)
        if entry.served or not args.served
    ]
    if args.output:
        formats.show(args.output, [dataclasses.asdict(entry) for entry in wanted])
        return 0
    rows = [(e.name, e.tier, "yes" if e.served else "no", e.owner, e.reason) for e in wanted]
    print("\n".join(printing.columns([("NAME", "TIER", "SERVED", "OWNER", "WHY NOT"), *rows])))
    return 0
