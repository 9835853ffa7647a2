"""Which objects the words of a command name: `TYPE NAME…`, `TYPE/NAME …`, `TYPE,TYPE`, `all`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from orch.ctl.api import Api, segment
from orch.ctl.discovery import Discovery, Resource
from orch.ctl.failures import WrongUsage
from orch.wire import raw


@dataclass(frozen=True, slots=True)
class Target:
    """One object of a type, or with an empty name all of them; `namespace` is its own, if any."""

    resource: Resource
    name: str = ""
    namespace: str = ""

    def path(self, namespace: str, subresource: str = "") -> str:
        return self.resource.path(self.namespace or namespace, self.name, subresource)


async def find(discovery: Discovery, words: Sequence[str]) -> list[Target]:
    """The targets in the order given; WrongUsage for words that do not fit together."""
    if not words:
        raise WrongUsage("name a resource type: 'orchctl api-resources' lists them")
    if any("/" in word for word in words):
        return [await _typed_name(discovery, word) for word in words]
    types = [word for word in words[0].split(",") if word]
    resources = [r for word in types for r in await discovery.resolve_all(word)]
    return [Target(r, name) for r in resources for name in words[1:] or [""]]


def pod_path(namespace: str, name: str = "") -> str:
    """The path of a pod, or without a name of all pods of a namespace."""
    path = f"/api/v1/namespaces/{segment(namespace)}/pods"
    return f"{path}/{segment(name)}" if name else path


def add_nodes(parser: argparse.ArgumentParser) -> None:
    """The arguments that `node_names` reads."""
    parser.add_argument("nodes", nargs="*", metavar="NODE", help="names of nodes")
    parser.add_argument("-l", "--selector", default="", help="the nodes with these labels: a=b")


def require_nodes(args: argparse.Namespace) -> None:
    """WrongUsage unless there are words for nodes, or a selector, not both."""
    if bool(args.nodes) == bool(args.selector):
        raise WrongUsage("say which nodes: either NODE or -l SELECTOR")
    for word in args.nodes:
        node_name(word)


async def node_names(api: Api, args: argparse.Namespace) -> list[str]:
    """The nodes that words name, or that the selector leaves."""
    if not args.selector:
        return [node_name(word) for word in args.nodes]
    found = await api.items("/api/v1/nodes", {"labelSelector": args.selector})
    return [raw.text(node, "metadata", "name") for node in found]


def node_name(word: str) -> str:
    """`worker-1` of `worker-1`, `node/worker-1` and `nodes/worker-1`; WrongUsage for others."""
    name = word.removeprefix("node/").removeprefix("nodes/")
    if "/" in name:
        raise WrongUsage(f"{word!r} is no node: name nodes only")
    return name


def node_path(node: str, page: str = "") -> str:
    """The path of a node, or of a page of its agent through the node proxy."""
    path = f"/api/v1/nodes/{segment(node)}"
    return f"{path}/proxy/{page}" if page else path


async def _typed_name(discovery: Discovery, word: str) -> Target:
    kind, slash, name = word.partition("/")
    if not slash or not kind or not name or "/" in name:
        raise WrongUsage(f"{word!r} is not TYPE/NAME: use one form for all of them")
    return Target(await discovery.resolve(kind), name)
