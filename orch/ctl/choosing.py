"""Which objects a command is about: words, files (`-f`), selectors (`-l`), or all of a type.

The one way in which commands that act on objects say so; `choose` makes them a list.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from orch.ctl import manifests, targets
from orch.ctl.api import Api, given
from orch.ctl.discovery import Discovery, Resource
from orch.ctl.failures import WrongUsage
from orch.ctl.manifests import Manifest
from orch.ctl.targets import Target
from orch.wire import raw


@dataclass(frozen=True, slots=True)
class Chosen:
    """One object; `record` is what its file says, {} when no file named it."""

    resource: Resource
    namespace: str
    name: str
    record: dict[str, Any] = field(default_factory=dict, hash=False)

    @property
    def path(self) -> str:
        return self.resource.path(self.namespace, self.name)

    @property
    def collection(self) -> str:
        return self.resource.path(self.namespace)

    @property
    def shown(self) -> str:
        """`pod/web`."""
        return self.resource.shown(self.name)


def add_arguments(
    parser: argparse.ArgumentParser, doing: str, *, words: str = "words", nargs: str = "*"
) -> None:
    """Words, -f, -l, --field-selector and --all; `doing` completes "what to …"."""
    parser.add_argument(words, nargs=nargs, metavar="TYPE[/NAME] [NAME]", help=f"what to {doing}")
    manifests.add_filename(parser)
    add_selectors(parser)
    parser.add_argument("--all", action="store_true", help="all objects of the type")


def add_selectors(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-l", "--selector", default="", help="only with these labels: a=b,c!=d")
    parser.add_argument("--field-selector", default="", help="only with these fields: path=value")


def require(args: argparse.Namespace, words: Sequence[str]) -> list[Manifest]:
    """The objects of the files named; WrongUsage unless there are words or files, not both."""
    if bool(words) == bool(args.filename):
        raise WrongUsage("say which objects: either TYPE NAME or -f FILE")
    return manifests.named(args)


async def choose(
    api: Api,
    discovery: Discovery,
    args: argparse.Namespace,
    words: Sequence[str],
    found: Sequence[Manifest] = (),
) -> list[Chosen]:
    """The objects, in the order named; types alone stand for all that the selectors leave."""
    if found:
        return [await _of_file(manifest, discovery, api, args) for manifest in found]
    chosen: list[Chosen] = []
    for target in await targets.find(discovery, words):
        if target.name:
            chosen.append(Chosen(target.resource, _namespace(target.resource, api), target.name))
        else:
            chosen += await _listed(api, target, args)
    return chosen


def _namespace(resource: Resource, api: Api) -> str:
    return api.namespace if resource.namespaced else ""


async def _of_file(
    manifest: Manifest, discovery: Discovery, api: Api, args: argparse.Namespace
) -> Chosen:
    resource = await manifests.resource_of(manifest, discovery)
    placed = manifests.placed(manifest, resource, api.namespace, asked=args.namespace)
    namespace = placed.namespace if resource.namespaced else ""
    return Chosen(resource, namespace, placed.require_name(), placed.record)


async def _listed(api: Api, target: Target, args: argparse.Namespace) -> list[Chosen]:
    """All objects of a type that the selectors leave; of every namespace with -A."""
    if not hasattr(args, "all"):
        plural = target.resource.plural
        raise WrongUsage(f"name the object as well: {plural}/NAME or {plural} NAME")
    fields = args.field_selector
    if not args.all and not args.selector and not fields:
        raise WrongUsage("name the objects, or choose them with --all, -l or --field-selector")
    everywhere = getattr(args, "all_namespaces", False)
    path = target.resource.path("" if everywhere else api.namespace)
    params = given(labelSelector=args.selector, fieldSelector=fields)
    return [
        Chosen(
            target.resource,
            raw.text(record, "metadata", "namespace") or _namespace(target.resource, api),
            raw.text(record, "metadata", "name"),
        )
        for record in await api.items(path, params)
    ]
