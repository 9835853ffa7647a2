"""`orchctl cordon`, `uncordon` and `drain`: nodes without new pods, or without any.

A drain cordons nodes, evicts their pods and waits until they are gone.

Pods that nothing would restart elsewhere, or whose data would be lost, need an option each; while
one of them is there without it, nothing is evicted at all. The rules are those of `kubectl drain`.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from orch.client.transport import PATCH_TYPES, given
from orch.component.terminal import visible
from orch.ctl import api, changes, selection
from orch.ctl.api import Api
from orch.ctl.command_table import Verb
from orch.ctl.failures import CommandFailed
from orch.ctl.options import seconds
from orch.ctl.output import printing
from orch.wire import raw
from orch.wire.errors import ApiError
from orch.wire.names import ANNOTATION_CONFIG_MIRROR

_FLAGS = {
    "--ignore-daemonsets": "leave pods of daemon sets where they are",
    "--delete-emptydir-data": "evict pods with emptyDir volumes too: their data is lost",
    "--force": "evict pods without a controller too: nothing restarts them elsewhere",
    "--disable-eviction": "delete the pods instead of evicting them: ignores disruption budgets",
}
RETRY_S = 5.0  # while a disruption budget does not allow the eviction
_ENDED = ("Succeeded", "Failed")

Pod = Mapping[str, Any]


class Decision(NamedTuple):
    """`why` is a warning to print, or the reason to refuse."""

    outcome: Literal["evict", "leave", "refuse"]
    why: str = ""


def _verb(word: str, *, wanted: bool) -> Verb:
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        selection.add_nodes(parser)
        changes.add_write(parser, f"cli-{word}")

    def run(args: argparse.Namespace) -> int:
        selection.require_nodes(args)
        return api.run(args, partial(_mark, wanted))

    return Verb(add_arguments, run, f"orchctl {word} worker-1 worker-2\norchctl {word} -l rack=7")


async def _mark(wanted: bool, api: Api, args: argparse.Namespace) -> int:
    nodes = await selection.node_names(api, args)
    return await _set_unschedulable(api, args, nodes, wanted=wanted)


async def _set_unschedulable(
    api: Api, args: argparse.Namespace, nodes: Sequence[str], *, wanted: bool
) -> int:
    """Set or clear `spec.unschedulable` of every node; reports nodes that need no change."""
    word = "cordoned" if wanted else "uncordoned"

    async def change(node: str) -> None:
        path = selection.node_path(node)
        record = await api.read(path)
        already = (raw.value(record, "spec", "unschedulable") is True) == wanted
        if not already and args.dry_run != "client":
            patch = {"spec": {"unschedulable": True if wanted else None}}
            params, content_type = changes.parameters(args), PATCH_TYPES["strategic"]
            await api.send("PATCH", path, patch, params=params, content_type=content_type)
        outcome = changes.done(f"already {word}" if already else word, args)
        print(visible(f"node/{node} {outcome}"))

    return await changes.each(nodes, change)


def _add_drain(parser: argparse.ArgumentParser) -> None:
    selection.add_nodes(parser)
    for name, text in _FLAGS.items():
        parser.add_argument(name, action="store_true", help=text)
    parser.add_argument("--pod-selector", default="", help="only pods with these labels")
    parser.add_argument(
        "--grace-period", type=int, default=-1, metavar="SECONDS",
        help="time pods get to stop; below 0 each pod's own",
    )  # fmt: skip
    parser.add_argument("--timeout", type=seconds, default=0.0, help="longest wait; 0 is forever")
    changes.add_write(parser, "cli-drain")


def _run_drain(args: argparse.Namespace) -> int:
    selection.require_nodes(args)
    return api.run(args, _drain_all)


async def _drain_all(api: Api, args: argparse.Namespace) -> int:
    nodes = await selection.node_names(api, args)
    if code := await _set_unschedulable(api, args, nodes, wanted=True):
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
    pods = await api.items("/api/v1/pods", **selectors)
    decided = [(pod, decide(pod, args)) for pod in pods]
    refused = [f"{_name(pod)} ({d.why})" for pod, d in decided if d.outcome == "refuse"]
    if refused:
        cordoned = ", cordoned" if args.dry_run == "none" else ""
        raise CommandFailed(f"node/{node} stays as it is{cordoned}: {'; '.join(refused)}")
    for pod, decision in decided:
        if decision.why:
            printing.note(f"Warning: {_name(pod)} {decision.why}")
    leaving = [pod for pod, decision in decided if decision.outcome == "evict"]
    results = await asyncio.gather(
        *(_evict(api, pod, args) for pod in leaving), return_exceptions=True
    )
    for failure in filter(None, results):
        raise failure  # the first, once all have been tried


def decide(pod: Pod, allowed: argparse.Namespace) -> Decision:
    """What to do with a pod; `allowed` has a boolean for each option of the command. Pure."""
    if ANNOTATION_CONFIG_MIRROR in raw.mapping(pod, "metadata", "annotations"):
        return Decision("leave")
    if raw.text(pod, "status", "phase") in _ENDED:
        return Decision("evict")
    controller = _controller(pod)
    if controller == "DaemonSet":
        if allowed.ignore_daemonsets:
            return Decision("leave", "stays: its daemon set would recreate it at once")
        return Decision("refuse", "belongs to a daemon set: --ignore-daemonsets leaves it")
    if not controller and not allowed.force:
        return Decision("refuse", "has no controller: --force deletes it for good")
    has_data = any("emptyDir" in volume for volume in raw.records(pod, "spec", "volumes"))
    if has_data and not allowed.delete_emptydir_data:
        return Decision("refuse", "has emptyDir volumes: --delete-emptydir-data discards them")
    return Decision("evict", "" if controller else "has no controller: it is gone for good")


def _controller(pod: Pod) -> str:
    """The kind of the object that would recreate the pod; "" when there is none."""
    owners = raw.records(pod, "metadata", "ownerReferences")
    return next((raw.text(o, "kind") for o in owners if o.get("controller") is True), "")


def _name(pod: Pod) -> str:
    return f"{raw.text(pod, 'metadata', 'namespace')}/{raw.text(pod, 'metadata', 'name')}"


async def _evict(api: Api, pod: Pod, args: argparse.Namespace) -> None:
    print(visible(f"evicting pod {_name(pod)}{changes.done('', args)}"), flush=True)
    if args.dry_run == "client":
        return
    name = raw.text(pod, "metadata", "name")
    path = selection.pod_path(raw.text(pod, "metadata", "namespace"), name)
    grace_s = args.grace_period if args.grace_period >= 0 else None
    try:
        if args.disable_eviction:
            await changes.delete(api, path, grace_s=grace_s, dry_run=args.dry_run)
        else:
            await _ask_eviction(api, path, pod, grace_s, dry_run=args.dry_run)
    except ApiError as error:
        if error.code != 404:
            raise
    if args.dry_run == "none":
        uid = raw.text(pod, "metadata", "uid")
        await changes.wait_gone(api, path, uid, f"pod/{name}", timeout_s=0)
        print(visible(f"pod/{name} evicted"), flush=True)


async def _ask_eviction(
    api: Api, path: str, pod: Pod, grace_s: int | None, *, dry_run: str
) -> None:
    """Ask until it is allowed: a disruption budget may be exhausted for a while."""
    metadata = {key: raw.text(pod, "metadata", key) for key in ("name", "namespace")}
    options: dict[str, Any] = {} if grace_s is None else {"gracePeriodSeconds": grace_s}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata,
            "deleteOptions": options}  # fmt: skip
    params = {"dryRun": "All"} if dry_run == "server" else None
    while True:
        try:
            await api.send("POST", f"{path}/eviction", body, params=params)
            return
        except ApiError as error:
            if error.code != 429:
                raise
            await asyncio.sleep(error.retry_after_s or RETRY_S)


CORDON = _verb("cordon", wanted=True)
UNCORDON = _verb("uncordon", wanted=False)
DRAIN = Verb(
    _add_drain, _run_drain,
    "orchctl drain worker-1\n"
    "orchctl drain worker-1 --ignore-daemonsets --delete-emptydir-data --timeout 5m\n"
    "orchctl drain worker-1 --force --dry-run=server",
)  # fmt: skip
