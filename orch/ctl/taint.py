"""`orchctl taint`: `key=value:Effect` repels pods from a node, `key[:Effect]-` stops that."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from orch.ctl import changes, choosing, session
from orch.ctl.api import PATCH_TYPES, Api
from orch.ctl.choosing import Chosen
from orch.ctl.discovery import Discovery
from orch.ctl.failures import CommandFailed, WrongUsage, did_you_mean
from orch.wire import raw

EXAMPLES = """
orchctl taint node worker-1 dedicated=database:NoSchedule
orchctl taint nodes -l disk=hdd slow:PreferNoSchedule --overwrite
orchctl taint node worker-1 dedicated:NoSchedule- slow-
"""
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_Taint = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """One taint to set, or with `removes` the taints of a key (and an effect, if any) to remove."""

    key: str
    value: str
    effect: str
    removes: bool

    def concerns(self, taint: _Taint) -> bool:
        effect = raw.text(taint, "effect")
        return raw.text(taint, "key") == self.key and (not self.effect or effect == self.effect)

    def record(self) -> dict[str, str]:
        fields = {"key": self.key, "value": self.value, "effect": self.effect}
        return {name: text for name, text in fields.items() if text}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    choosing.add_arguments(parser, "taint: nodes, then key=value:Effect or key-", nargs="+")
    parser.add_argument("--overwrite", action="store_true", help="change taints that are set")
    changes.add_dry_run(parser)
    changes.add_output(parser)
    changes.add_field_manager(parser, "cli-taint")


def run(args: argparse.Namespace) -> int:
    first = next((n for n, w in enumerate(args.words) if n and _is_change(w)), len(args.words))
    named, wanted = args.words[:first], [read(word) for word in args.words[first:]]
    if not wanted:
        raise WrongUsage("say which taints: key=value:Effect, or key- to remove")
    return session.run(args, partial(_taint_all, named, wanted))


def _is_change(word: str) -> bool:
    return "=" in word or ":" in word or word.endswith("-")


def read(word: str) -> Change:
    """`key=value:Effect`, `key:Effect`, `key:Effect-` or `key-`; WrongUsage names what is wrong."""
    removes = word.endswith("-")
    key_value, colon, effect = word.removesuffix("-").partition(":")
    key, _, value = key_value.partition("=")
    if not key or not (colon or removes):
        raise WrongUsage(f"{word!r} is no taint: write key=value:Effect, or key- to remove")
    if effect not in _EFFECTS and (effect or not removes):
        hint = did_you_mean(effect, _EFFECTS)
        raise WrongUsage(f"{word!r}: {effect!r} is no effect{hint}; use {', '.join(_EFFECTS)}")
    return Change(key, value, effect, removes)


async def _taint_all(
    named: Sequence[str], wanted: Sequence[Change], api: Api, args: argparse.Namespace
) -> int:
    async def change(chosen: Chosen) -> None:
        if chosen.resource.kind != "Node":
            raise CommandFailed(f"{chosen.shown} has no taints: only nodes have")
        await _taint(chosen, wanted, api, args)

    return await changes.each(await choosing.choose(api, Discovery(api), args, named), change)


async def _taint(
    chosen: Chosen, wanted: Sequence[Change], api: Api, args: argparse.Namespace
) -> None:
    before = await api.read(chosen.path)
    present = raw.records(before, "spec", "taints")
    taints = changed(present, wanted, shown=chosen.shown, overwrite=args.overwrite)
    after: dict[str, Any] = {**before, "spec": {**raw.mapping(before, "spec"), "taints": taints}}
    if args.dry_run != "client":
        # The list is sent whole: only the node it was computed from may be changed by it.
        metadata = {"resourceVersion": raw.text(before, "metadata", "resourceVersion")}
        after = await api.send(
            "PATCH", chosen.path, {"metadata": metadata, "spec": {"taints": taints or None}},
            params=changes.parameters(args, strict=True), content_type=PATCH_TYPES["merge"],
        )  # fmt: skip
    word = "untainted" if all(change.removes for change in wanted) else "tainted"
    changes.show(after, chosen.resource, "modified" if args.overwrite else word, args)


def changed(
    present: Sequence[_Taint], wanted: Sequence[Change], *, shown: str, overwrite: bool
) -> list[_Taint]:
    """The taints afterwards; CommandFailed for one to remove that is not there, or is set."""
    taints = list(present)
    for change in wanted:
        concerned = [taint for taint in taints if change.concerns(taint)]
        effect = f":{change.effect}" if change.effect else ""
        if change.removes and not concerned:
            raise CommandFailed(f"{shown} has no taint {change.key}{effect} to remove")
        if concerned and not change.removes and not overwrite:
            raise CommandFailed(
                f"{shown} has a taint {change.key}{effect} already: confirm by --overwrite"
            )
        taints = [taint for taint in taints if not change.concerns(taint)]
        taints += [] if change.removes else [change.record()]
    return taints
