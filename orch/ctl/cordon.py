"""`orchctl cordon`: no new pods for a node; those that run there stay."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from orch.ctl import changes, session, targets
from orch.ctl.api import PATCH_TYPES, Api
from orch.ctl.failures import visible
from orch.wire import raw

EXAMPLES = """
orchctl cordon worker-1 worker-2
orchctl cordon -l rack=7
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    targets.add_nodes(parser)
    changes.add_dry_run(parser)
    changes.add_field_manager(parser, "cli-cordon")


def run(args: argparse.Namespace) -> int:
    targets.require_nodes(args)
    return session.run(args, _cordon)


async def _cordon(api: Api, args: argparse.Namespace) -> int:
    return await set_unschedulable(api, args, await targets.node_names(api, args), wanted=True)


async def set_unschedulable(
    api: Api, args: argparse.Namespace, nodes: Sequence[str], *, wanted: bool
) -> int:
    """Set or clear `spec.unschedulable` on every node; says what was already so."""
    word = "cordoned" if wanted else "uncordoned"

    async def change(node: str) -> None:
        path = targets.node_path(node)
        record = await api.read(path)
        if (raw.value(record, "spec", "unschedulable") is True) == wanted:
            print(visible(f"node/{node} {changes.done(f'already {word}', args)}"))
            return
        if args.dry_run != "client":
            patch = {"spec": {"unschedulable": True if wanted else None}}
            params, content_type = changes.parameters(args), PATCH_TYPES["strategic"]
            await api.send("PATCH", path, patch, params=params, content_type=content_type)
        print(visible(f"node/{node} {changes.done(word, args)}"))

    return await changes.each(nodes, change)
