"""`orchctl delete`: remove objects by name, label or file, and wait until they are gone."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial

from orch.ctl import changes, manifests, session, targets
from orch.ctl.api import Api, given
from orch.ctl.discovery import Discovery, Resource
from orch.ctl.failures import CommandFailed, WrongUsage, visible
from orch.ctl.manifests import Manifest
from orch.ctl.options import seconds
from orch.wire import raw
from orch.wire.errors import ApiError

_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class _Victim:
    resource: Resource
    namespace: str
    name: str

    @property
    def path(self) -> str:
        return self.resource.path(self.namespace, self.name)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="TYPE[/NAME] [NAME]", help="what to delete")
    parser.add_argument("-f", "--filename", action="append", default=[], help="objects of files")
    parser.add_argument("-l", "--selector", default="", help="only with these labels: a=b,c!=d")
    parser.add_argument("--all", action="store_true", help="all objects of the type")
    parser.add_argument(
        "--grace-period", type=int, metavar="SECONDS", help="time pods get to stop; 0 with --force"
    )
    parser.add_argument("--now", action="store_true", help="the same as --grace-period=1")
    parser.add_argument("--force", action="store_true", help="let --grace-period be 0")
    parser.add_argument("--ignore-not-found", action="store_true", help="missing is no failure")
    parser.add_argument(
        "--wait", choices=("true", "false"), default="true", nargs="?", const="true",
        help="wait until they are gone",
    )  # fmt: skip
    parser.add_argument("--timeout", type=seconds, default=0.0, help="longest wait; 0 is for ever")
    changes.add_dry_run(parser)
    changes.add_field_manager(parser, "cli-delete")


def run(args: argparse.Namespace) -> int:
    if bool(args.words) == bool(args.filename):
        raise WrongUsage("say what to delete: either TYPE NAME or -f FILE")
    if args.grace_period == 0 and not args.force:
        raise WrongUsage("--grace-period=0 leaves running containers behind: confirm by --force")
    found = manifests.read(args.filename) if args.filename else []
    return session.run(args, partial(_delete_all, found))


async def _delete_all(found: Sequence[Manifest], api: Api, args: argparse.Namespace) -> int:
    async def delete(victim: _Victim) -> None:
        await _delete(api, victim, args)

    discovery = Discovery(api)
    victims = [await _victim(manifest, discovery, api, args) for manifest in found]
    if args.words:
        victims = [victim async for victim in _chosen(discovery, api, args)]
    return await changes.each(victims, delete)


async def _victim(
    manifest: Manifest, discovery: Discovery, api: Api, args: argparse.Namespace
) -> _Victim:
    resource = await manifests.resource_of(manifest, discovery)
    placed = manifests.placed(manifest, resource, api.namespace, asked=args.namespace)
    namespace = raw.text(placed.record, "metadata", "namespace") if resource.namespaced else ""
    return _Victim(resource, namespace, placed.name)


async def _chosen(
    discovery: Discovery, api: Api, args: argparse.Namespace
) -> AsyncIterator[_Victim]:
    """The objects that words and selectors name."""
    for target in await targets.find(discovery, args.words):
        if target.name:
            yield _Victim(target.resource, api.namespace, target.name)
            continue
        if not args.all and not args.selector:
            raise WrongUsage("name the objects, or choose them with --all or -l")
        path = target.resource.path(api.namespace)
        listed = await api.get(path, given(labelSelector=args.selector))
        for record in raw.records(listed, "items"):
            yield _Victim(target.resource, api.namespace, raw.text(record, "metadata", "name"))


async def _delete(api: Api, victim: _Victim, args: argparse.Namespace) -> None:
    if not victim.name:
        raise CommandFailed(f"an object of kind {victim.resource.kind} has no name: give it one")
    try:
        uid = await _request(api, victim, args)
    except ApiError as error:
        if error.code == 404 and args.ignore_not_found:
            return
        raise
    word = "force deleted" if args.force else "deleted"
    shown = victim.resource.shown("").rstrip("/")
    print(visible(f'{shown} "{victim.name}" {changes.done(word, args)}'))
    if uid and args.wait == "true" and args.dry_run == "none":
        await _wait(api, victim, uid, args.timeout)


async def _request(api: Api, victim: _Victim, args: argparse.Namespace) -> str:
    """Ask for the deletion; the uid to wait for, "" when only shown."""
    if args.dry_run == "client":
        await api.get(victim.path)
        return ""
    body: dict[str, object] = {"propagationPolicy": "Background"}
    grace_s = 1 if args.now else 0 if args.force and not args.grace_period else args.grace_period
    if grace_s is not None:
        body["gracePeriodSeconds"] = grace_s
    params = {"dryRun": "All"} if args.dry_run == "server" else None
    answer = await api.send("DELETE", victim.path, body, params=params)
    return raw.text(answer, "details", "uid") or raw.text(answer, "metadata", "uid")


async def _wait(api: Api, victim: _Victim, uid: str, timeout_s: float) -> None:
    """Until the object of this uid is gone."""
    try:
        async with asyncio.timeout(timeout_s or None):
            while True:
                if await _uid(api, victim) != uid:
                    return
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        raise CommandFailed(
            f"{victim.resource.shown(victim.name)} is still there after {timeout_s:g} s: it waits "
            "for its containers or its finalizers, 'orchctl get -o yaml' shows which"
        ) from None


async def _uid(api: Api, victim: _Victim) -> str:
    try:
        return raw.text(await api.get(victim.path), "metadata", "uid")
    except ApiError as error:
        if error.code == 404:
            return ""
        raise
