"""`orchctl delete`: remove objects by name, label or file, and wait until they are gone."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial

from orch.component.terminal import visible
from orch.ctl import api, changes, selection
from orch.ctl.api import Api
from orch.ctl.discovery import Discovery
from orch.ctl.failures import WrongUsage
from orch.ctl.manifests import Manifest
from orch.ctl.options import seconds
from orch.ctl.selection import Selected
from orch.wire.errors import ApiError

EXAMPLES = """
orchctl delete pod web
orchctl delete -f pod.yaml --ignore-not-found
orchctl delete pods -l app=web --wait=false
orchctl delete pod stuck --force --grace-period=0
"""
_PROPAGATION = {"background": "Background", "foreground": "Foreground", "orphan": "Orphan"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    selection.add_arguments(parser, "delete")
    parser.add_argument(
        "--grace-period", type=int, default=-1, metavar="SECONDS",
        help="time pods get to stop; without --force at least 1, below 0 each pod's own",
    )  # fmt: skip
    parser.add_argument("--now", action="store_true", help="the same as --grace-period=1")
    parser.add_argument("--force", action="store_true", help="allow --grace-period=0")
    parser.add_argument(
        "--cascade", choices=_PROPAGATION, default="background", help="what happens to dependents"
    )
    parser.add_argument("--ignore-not-found", action="store_true", help="accept missing objects")
    parser.add_argument(
        "--wait", choices=("true", "false"), default="true", nargs="?", const="true",
        help="wait until they are gone",
    )  # fmt: skip
    parser.add_argument("--timeout", type=seconds, default=0.0, help="longest wait; 0 is forever")
    parser.add_argument("-o", "--output", choices=("name",), default="", help="only the names")
    changes.add_dry_run(parser)


def run(args: argparse.Namespace) -> int:
    found = selection.require(args)
    if args.now and args.grace_period >= 0:
        raise WrongUsage("--now and --grace-period exclude each other: give one of them")
    return api.run(args, partial(_delete_all, found))


async def _delete_all(found: Sequence[Manifest], api: Api, args: argparse.Namespace) -> int:
    selected = await selection.select(api, Discovery(api), args, found)
    if not selected:
        print("No resources found")
    return await changes.each(selected, lambda target: _delete(api, target, args))


async def _delete(api: Api, target: Selected, args: argparse.Namespace) -> None:
    path = target.path()
    try:
        uid = await _request(api, path, args)
    except ApiError as error:
        if error.code == 404 and args.ignore_not_found:
            return
        if error.code == 404 and args.dry_run != "client":
            error.message += await api.similar(path, target.name)
        raise
    place = f" from {target.namespace} namespace" if target.namespace else ""
    outcome = changes.done(("force deleted" if args.force else "deleted") + place, args)
    line = target.label if args.output else f'{target.resource.label()} "{target.name}" {outcome}'
    print(visible(line), flush=True)
    if uid and args.wait == "true" and args.dry_run == "none":
        await changes.wait_gone(api, path, uid, target.label, timeout_s=args.timeout)


async def _request(api: Api, path: str, args: argparse.Namespace) -> str:
    """Ask for the deletion; the uid to wait for, "" when it is only shown."""
    if args.dry_run == "client":
        await api.read(path)
        return ""
    return await changes.delete(
        api, path, grace_s=_grace_s(args), propagation=_PROPAGATION[args.cascade],
        dry_run=args.dry_run,
    )  # fmt: skip


def _grace_s(args: argparse.Namespace) -> int | None:
    """None leaves it to each object, as a negative --grace-period does."""
    if args.now or (args.grace_period == 0 and not args.force):
        return 1  # as in kubectl: only --force leaves containers behind
    if args.grace_period >= 0:
        return int(args.grace_period)
    return 0 if args.force else None
