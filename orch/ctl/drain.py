"""`orchctl drain`: cordon nodes, then evict their pods and wait until these are gone.

Pods that nobody would start elsewhere, or whose data would be lost, are left alone unless told
otherwise; when there are any, nothing is evicted at all. Mirror pods belong to their node.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping
from typing import Any

from orch.ctl import changes, cordon, deletion, evictions, printing, session, targets
from orch.ctl.api import Api, given
from orch.ctl.evictions import Verdict
from orch.ctl.failures import CommandFailed, visible
from orch.ctl.options import seconds
from orch.wire import raw
from orch.wire.errors import ApiError

EXAMPLES = """
orchctl drain worker-1
orchctl drain worker-1 --ignore-daemonsets --delete-emptydir-data --timeout 5m
orchctl drain worker-1 --force --dry-run=server
"""
_RETRY_S = 5.0  # while a disruption budget does not allow the eviction


def add_arguments(parser: argparse.ArgumentParser) -> None:
    targets.add_nodes(parser)
    for name, text in _SWITCHES.items():
        parser.add_argument(name, action="store_true", help=text)
    parser.add_argument("--pod-selector", default="", help="only pods with these labels")
    parser.add_argument(
        "--grace-period", type=int, default=-1, metavar="SECONDS",
        help="time pods get to stop; below 0 it is each pod's own",
    )  # fmt: skip
    parser.add_argument("--timeout", type=seconds, default=0.0, help="longest wait; 0 is for ever")
    changes.add_dry_run(parser)
    changes.add_field_manager(parser, "cli-drain")


_SWITCHES = {
    "--ignore-daemonsets": "leave pods of daemon sets where they are",
    "--delete-emptydir-data": "evict pods with emptyDir volumes too: their data is lost",
    "--force": "evict pods without a controller too: nobody starts them elsewhere",
    "--disable-eviction": "delete the pods instead of evicting them: no budget is asked",
}


def run(args: argparse.Namespace) -> int:
    targets.require_nodes(args)
    return session.run(args, _drain_all)


async def _drain_all(api: Api, args: argparse.Namespace) -> int:
    nodes = await targets.node_names(api, args)
    if code := await cordon.set_unschedulable(api, args, nodes, wanted=True):
        return code

    async def drain(node: str) -> None:
        try:
            async with asyncio.timeout(args.timeout or None):
                await _drain(api, node, args)
        except TimeoutError:
            raise CommandFailed(
                f"node/{node} is not drained after {args.timeout:g} s: 'orchctl get pods -A "
                f"--field-selector spec.nodeName={node}' shows what is left"
            ) from None
        print(visible(f"node/{node} {changes.done('drained', args)}"))

    return await changes.each(nodes, drain)


async def _drain(api: Api, node: str, args: argparse.Namespace) -> None:
    selectors = given(fieldSelector=f"spec.nodeName={node}", labelSelector=args.pod_selector)
    pods = await api.items("/api/v1/pods", selectors)
    judged = [(pod, evictions.judge(pod, _permits(args))) for pod in pods]
    refused = [f"{_shown(pod)} ({v.why})" for pod, v in judged if v.verdict is Verdict.REFUSE]
    if refused:
        cordoned = ", cordoned" if args.dry_run == "none" else ""
        raise CommandFailed(f"node/{node} stays as it is{cordoned}: {'; '.join(refused)}")
    for pod, verdict in judged:
        if verdict.why:
            printing.note(visible(f"Warning: {_shown(pod)} {verdict.why}"))
    leaving = [pod for pod, verdict in judged if verdict.verdict is Verdict.EVICT]
    outcomes = await asyncio.gather(
        *(_evict(api, pod, args) for pod in leaving), return_exceptions=True
    )
    for failure in filter(None, outcomes):
        raise failure  # the first, when all have been tried


def _permits(args: argparse.Namespace) -> evictions.Permits:
    return evictions.Permits(
        daemon_sets=args.ignore_daemonsets,
        empty_dirs=args.delete_emptydir_data,
        unmanaged=args.force,
    )


def _shown(pod: Mapping[str, Any]) -> str:
    return f"{raw.text(pod, 'metadata', 'namespace')}/{raw.text(pod, 'metadata', 'name')}"


async def _evict(api: Api, pod: Mapping[str, Any], args: argparse.Namespace) -> None:
    shown, name = _shown(pod), raw.text(pod, "metadata", "name")
    print(visible(f"evicting pod {shown}{changes.done('', args)}"), flush=True)
    if args.dry_run == "client":
        return
    path = targets.pod_path(raw.text(pod, "metadata", "namespace"), name)
    grace_s = args.grace_period if args.grace_period >= 0 else None
    try:
        if args.disable_eviction:
            await deletion.ask(api, path, grace_s=grace_s, server_dry_run=args.dry_run == "server")
        else:
            await _ask_eviction(api, path, pod, grace_s, server_dry_run=args.dry_run == "server")
    except ApiError as error:
        if error.code != 404:
            raise
    if args.dry_run == "none":
        uid = raw.text(pod, "metadata", "uid")
        await deletion.wait_gone(api, path, uid, f"pod/{name}", timeout_s=0)
        print(visible(f"pod/{name} evicted"), flush=True)


async def _ask_eviction(
    api: Api, path: str, pod: Mapping[str, Any], grace_s: int | None, *, server_dry_run: bool
) -> None:
    """Ask until it is allowed: a budget that is used up now may not be so in a while."""
    metadata = {key: raw.text(pod, "metadata", key) for key in ("name", "namespace")}
    options: dict[str, Any] = {} if grace_s is None else {"gracePeriodSeconds": grace_s}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata,
            "deleteOptions": options}  # fmt: skip
    params = {"dryRun": "All"} if server_dry_run else None
    while True:
        try:
            await api.send("POST", f"{path}/eviction", body, params=params)
        except ApiError as error:
            if error.code != 429:
                raise
            await asyncio.sleep(error.retry_after_s or _RETRY_S)
        else:
            return
