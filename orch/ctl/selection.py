"""Which objects a command is about: words, files (`-f`), selectors (`-l`), or all of a type.

Also the names and paths of nodes and pods, for the commands that take nothing else.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from orch.client.transport import given
from orch.ctl import manifests
from orch.ctl.api import Api, segment
from orch.ctl.discovery import Discovery, Resource
from orch.ctl.failures import WrongUsage
from orch.ctl.manifests import Manifest
from orch.wire import raw


@dataclass(frozen=True, slots=True)
class Selected:
    """One object, or with an empty name every object of its type.

    `namespace` is "" for all namespaces and for cluster-scoped types.
    """

    resource: Resource
    namespace: str = ""
    name: str = ""

    def path(self, subresource: str = "") -> str:
        return self.resource.path(self.namespace, self.name, subresource)

    @property
    def label(self) -> str:
        """`pod/web`."""
        return self.resource.label(self.name)


def add_arguments(parser: argparse.ArgumentParser, doing: str) -> None:
    """Words, -f, -l, --field-selector and --all; `doing` completes "what to …"."""
    add_words(parser, doing)
    add_selectors(parser)
    parser.add_argument("--all", action="store_true", help="all objects of the type")
    add_all_namespaces(parser)


def add_words(parser: argparse.ArgumentParser, doing: str) -> None:
    parser.add_argument("words", nargs="*", metavar="TYPE[/NAME] [NAME]", help=f"what to {doing}")
    manifests.add_filename(parser)


def add_selectors(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-l", "--selector", default="", help="only with these labels: a=b,c!=d")
    parser.add_argument("--field-selector", default="", help="only with these fields: path=value")


def add_all_namespaces(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="in every namespace")


def require(args: argparse.Namespace) -> list[Manifest]:
    """The objects of the files named; WrongUsage unless there are either words or files."""
    if bool(args.words) == bool(args.filename):
        raise WrongUsage("name the objects: either TYPE NAME or -f FILE")
    return manifests.named(args)


async def select(
    api: Api, discovery: Discovery, args: argparse.Namespace, found: Sequence[Manifest]
) -> list[Selected]:
    """The objects in the order named; a type alone stands for all that the selectors match."""
    if found:
        return [await of_file(api, discovery, args, manifest) for manifest in found]
    selected: list[Selected] = []
    for target in await find(api, discovery, args.words):
        selected += [target] if target.name else await _listed(api, target, args)
    return selected


async def find(
    api: Api, discovery: Discovery, words: Sequence[str], *, everywhere: bool = False
) -> list[Selected]:
    """What `TYPE NAME…`, `TYPE/NAME …` or `TYPE,TYPE` name, in that order; WrongUsage."""
    if not words:
        raise WrongUsage("name a resource type: pods, nodes, …")
    if any("/" in word for word in words):
        pairs = [await _typed_name(discovery, word) for word in words]
    else:
        types = [word for word in words[0].split(",") if word]
        resources = [r for word in types for r in await discovery.resolve_all(word)]
        pairs = [(r, name) for r in resources for name in words[1:] or [""]]
    namespace = "" if everywhere else api.namespace
    return [Selected(r, namespace if r.namespaced else "", name) for r, name in pairs]


async def _typed_name(discovery: Discovery, word: str) -> tuple[Resource, str]:
    kind, slash, name = word.partition("/")
    if not slash or not kind or not name or "/" in name:
        raise WrongUsage(f"{word!r} is not TYPE/NAME: write all of them that way")
    return await discovery.resolve(kind), name


async def of_file(
    api: Api, discovery: Discovery, args: argparse.Namespace, manifest: Manifest
) -> Selected:
    """The object on the server that has the name of one of a file."""
    resource = await manifests.resource_of(manifest, discovery)
    placed = manifests.placed(manifest, resource, api.namespace, asked=args.namespace)
    return Selected(
        resource, placed.namespace if resource.namespaced else "", placed.require_name()
    )


async def _listed(api: Api, every: Selected, args: argparse.Namespace) -> list[Selected]:
    """The objects of a type that the selectors match; in every namespace with -A."""
    resource = every.resource
    if not hasattr(args, "all"):
        plural = resource.plural
        raise WrongUsage(f"name the object as well: {plural}/NAME or {plural} NAME")
    selectors = given(labelSelector=args.selector, fieldSelector=args.field_selector)
    if not args.all and not selectors:
        raise WrongUsage("name the objects, or select them with --all, -l or --field-selector")
    path = resource.path("" if args.all_namespaces else every.namespace)
    return [
        Selected(
            resource,
            raw.text(record, "metadata", "namespace") or every.namespace,
            raw.text(record, "metadata", "name"),
        )
        for record in await api.items(path, **selectors)
    ]


def add_nodes(parser: argparse.ArgumentParser) -> None:
    """The arguments that `node_names` reads."""
    parser.add_argument("nodes", nargs="*", metavar="NODE", help="names of nodes")
    parser.add_argument("-l", "--selector", default="", help="the nodes with these labels: a=b")


def require_nodes(args: argparse.Namespace) -> None:
    """WrongUsage unless there are either names of nodes or a selector."""
    if bool(args.nodes) == bool(args.selector):
        raise WrongUsage("name the nodes: either NODE or -l SELECTOR")
    for word in args.nodes:
        node_name(word)


async def node_names(api: Api, args: argparse.Namespace) -> list[str]:
    """The nodes named, else those that the selector, if any, matches."""
    if args.nodes:
        return [node_name(word) for word in args.nodes]
    found = await api.items("/api/v1/nodes", labelSelector=getattr(args, "selector", ""))
    return [raw.text(node, "metadata", "name") for node in found]


def node_name(word: str) -> str:
    """`worker-1` of `worker-1`, `node/worker-1` and `nodes/worker-1`; WrongUsage for others."""
    name = word.removeprefix("node/").removeprefix("nodes/")
    if "/" in name:
        raise WrongUsage(f"{word!r} is not a node: name nodes only")
    return name


def node_path(node: str, page: str = "") -> str:
    """The path of a node, or of a page of its agent through the node proxy."""
    path = f"/api/v1/nodes/{segment(node)}"
    return f"{path}/proxy/{page}" if page else path


def pod_path(namespace: str, name: str = "") -> str:
    """The path of a pod, or without a name of all pods of a namespace."""
    path = f"/api/v1/namespaces/{segment(namespace)}/pods"
    return f"{path}/{segment(name)}" if name else path
