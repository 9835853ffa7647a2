"""`orchctl uncordon`: a node takes new pods again."""

from __future__ import annotations

import argparse

from orch.ctl import changes, cordon, session
from orch.ctl.api import Api

EXAMPLES = """
orchctl uncordon worker-1
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("nodes", nargs="+", metavar="NODE", help="names of nodes")
    changes.add_dry_run(parser)
    changes.add_field_manager(parser, "cli-uncordon")


def run(args: argparse.Namespace) -> int:
    return session.run(args, _uncordon)


async def _uncordon(api: Api, args: argparse.Namespace) -> int:
    return await cordon.set_unschedulable(api, args, wanted=False)
