"""`orchctl uncordon`: a node takes new pods again."""

from __future__ import annotations

import argparse

from orch.ctl import changes, cordon, session, targets
from orch.ctl.api import Api

EXAMPLES = """
orchctl uncordon worker-1
orchctl uncordon -l rack=7
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    targets.add_nodes(parser)
    changes.add_dry_run(parser)
    changes.add_field_manager(parser, "cli-uncordon")


def run(args: argparse.Namespace) -> int:
    targets.require_nodes(args)
    return session.run(args, _uncordon)


async def _uncordon(api: Api, args: argparse.Namespace) -> int:
    nodes = await targets.node_names(api, args)
    return await cordon.set_unschedulable(api, args, nodes, wanted=False)
