"""Which objects the words of a command name: `TYPE NAME…`, `TYPE/NAME …`, `TYPE,TYPE`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orch.ctl.discovery import Discovery, Resource
from orch.ctl.failures import WrongUsage


@dataclass(frozen=True, slots=True)
class Target:
    """One object of a type, or with an empty name all of them."""

    resource: Resource
    name: str = ""

    def path(self, namespace: str, subresource: str = "") -> str:
        return self.resource.path(namespace, self.name, subresource)


async def find(discovery: Discovery, words: Sequence[str]) -> list[Target]:
    """The targets in the order given; WrongUsage for words that do not fit together."""
    if not words:
        raise WrongUsage("name a resource type: 'orchctl api-resources' lists them")
    if any("/" in word for word in words):
        return [await _typed_name(discovery, word) for word in words]
    types = [word for word in words[0].split(",") if word]
    resources = [await discovery.resolve(word) for word in types]
    return [Target(r, name) for r in resources for name in words[1:] or [""]]


async def find_named(discovery: Discovery, words: Sequence[str]) -> list[Target]:
    """Like `find`, for commands that never mean all objects of a type."""
    targets = await find(discovery, words)
    if not all(target.name for target in targets):
        raise WrongUsage(f"name the object as well: {words[0]}/NAME or {words[0]} NAME")
    return targets


async def _typed_name(discovery: Discovery, word: str) -> Target:
    kind, slash, name = word.partition("/")
    if not slash or not kind or not name or "/" in name:
        raise WrongUsage(f"{word!r} is not TYPE/NAME: use one form for all of them")
    return Target(await discovery.resolve(kind), name)
