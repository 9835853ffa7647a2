"""`orchctl delete`: remove objects by name, label or file, and wait until they are gone."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial

from orch.ctl import changes, choosing, deletion, session
from orch.ctl.api import Api
from orch.ctl.choosing import Chosen
from orch.ctl.discovery import Discovery
from orch.ctl.failures import WrongUsage, visible
from orch.ctl.manifests import Manifest
from orch.ctl.options import seconds
from orch.wire.errors import ApiError

EXAMPLES = """
orchctl delete pod web
orchctl delete -f pod.yaml --ignore-not-found
orchctl delete pods -l app=web --wait=false
orchctl delete pod stuck --force --grace-period=0
"""
_PROPAGATION = {"background": "Background", "foreground": "Foreground", "orphan": "Orphan"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    choosing.add_arguments(parser, "delete")
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="of every namespace")
    parser.add_argument(
        "--grace-period",
        type=int,
        metavar="SECONDS",
        help="time pods get to stop; 0 is 1 without --force, below 0 their own",
    )
    parser.add_argument("--now", action="store_true", help="the same as --grace-period=1")
    parser.add_argument("--force", action="store_true", help="let --grace-period be 0")
    parser.add_argument(
        "--cascade", choices=_PROPAGATION, default="background", help="what of the objects it owns"
    )
    parser.add_argument("--ignore-not-found", action="store_true", help="missing is no failure")
    parser.add_argument(
        "--wait", choices=("true", "false"), default="true", nargs="?", const="true",
        help="wait until they are gone",
    )  # fmt: skip
    parser.add_argument("--timeout", type=seconds, default=0.0, help="longest wait; 0 is for ever")
    parser.add_argument(
        "-o", "--output", choices=("name",), default="", help="only what was deleted"
    )
    changes.add_dry_run(parser)


def run(args: argparse.Namespace) -> int:
    found = choosing.require(args, args.words)
    if args.now and args.grace_period is not None and args.grace_period >= 0:
        raise WrongUsage("--now and --grace-period exclude each other: give one of them")
    return session.run(args, partial(_delete_all, found))


async def _delete_all(found: Sequence[Manifest], api: Api, args: argparse.Namespace) -> int:
    async def delete(victim: Chosen) -> None:
        await _delete(api, victim, args)

    victims = await choosing.choose(api, Discovery(api), args, args.words, found)
    if not victims:
        print("No resources found")
    return await changes.each(victims, delete)


async def _delete(api: Api, victim: Chosen, args: argparse.Namespace) -> None:
    try:
        uid = await _request(api, victim, args)
    except ApiError as error:
        if error.code == 404 and args.ignore_not_found:
            return
        if error.code == 404 and args.dry_run != "client":
            error.message += await api.near(victim.path, victim.name)
        raise
    word = "force deleted" if args.force else "deleted"
    shown = victim.resource.shown("").rstrip("/")
    told = f'{shown} "{victim.name}" {changes.done(word, args)}'
    print(visible(victim.shown if args.output == "name" else told))
    if uid and args.wait == "true" and args.dry_run == "none":
        await deletion.wait_gone(api, victim.path, uid, victim.shown, timeout_s=args.timeout)


async def _request(api: Api, victim: Chosen, args: argparse.Namespace) -> str:
    """Ask for the deletion; the uid to wait for, "" when only shown."""
    if args.dry_run == "client":
        await api.read(victim.path)
        return ""
    return await deletion.ask(
        api, victim.path, grace_s=_grace_s(args), propagation=_PROPAGATION[args.cascade],
        server_dry_run=args.dry_run == "server",
    )  # fmt: skip


def _grace_s(args: argparse.Namespace) -> int | None:
    """None leaves it to each object, as a negative --grace-period does."""
    if args.now or (args.grace_period == 0 and not args.force):
        return 1  # as kubectl does: containers are left behind only by --force
    if args.grace_period is not None and args.grace_period >= 0:
        return int(args.grace_period)
    return 0 if args.force else None
