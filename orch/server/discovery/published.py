"""The documents about the kinds that are served now: discovery and OpenAPI.

Kinds come and go; a document is made anew, in a thread, when somebody asks for it after that. Until
then everybody is given the same one.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from orch.server import turns
from orch.server.discovery import openapi
from orch.server.discovery.discovery import Discovery
from orch.server.strategy.table import ServedKinds
from orch.wire.records.kinds import Resource

Made = TypeVar("Made")
_VERSION = re.compile(r"v([0-9]+)(?:(alpha|beta)([0-9]+))?")
_STAGES = {None: 0, "beta": 1, "alpha": 2}


@dataclass(frozen=True, slots=True)
class Document:
    """A document of OpenAPI, with its ETag."""

    body: bytes
    etag: str


class Published:
    """`fixed` are the kinds that are always served, under all their names; `address` and `unlisted`
    are for `Discovery`.
    """

    def __init__(
        self,
        kinds: ServedKinds,
        fixed: tuple[Resource, ...],
        address: str,
        unlisted: Collection[str] = (),
    ) -> None:
        self._kinds = kinds
        self._fixed = fixed
        self._address = address
        self._unlisted = unlisted
        self._made: dict[str, tuple[int, Any]] = {}  # what was made when the kinds were these
        self._making: dict[str, asyncio.Lock] = {}

    async def discovery(self) -> Discovery:
        return await self._current("discovery", self._discovery)

    async def v2_json(self) -> Document:
        return await self._current("v2 JSON", lambda more: self._hashed(openapi.v2_json, more))

    async def v2_protobuf(self) -> Document:
        return await self._current("v2 protobuf", lambda more: self._hashed(_protobuf, more))

    async def v3(self) -> Mapping[str, Document]:
        """The index and the document of each version of a group, by path."""
        return await self._current("v3", self._v3)

    async def _current(self, name: str, make: Callable[[tuple[Resource, ...]], Made]) -> Made:
        made: tuple[int, Made] | None = self._made.get(name)
        if made is not None and made[0] == self._kinds.changes:
            return made[1]
        async with self._making.setdefault(name, asyncio.Lock()):
            changes = self._kinds.changes
            made = self._made.get(name)
            if made is None or made[0] != changes:
                served = (s.resource for some in self._kinds.more.values() for s in some)
                more = tuple(sorted(served, key=_rank))
                made = (changes, await turns.aside(partial(make, more)))
                self._made[name] = made
        return made[1]

    def _discovery(self, more: tuple[Resource, ...]) -> Discovery:
        return Discovery((*self._fixed, *more), self._address, self._unlisted)

    def _hashed(
        self,
        make: Callable[[tuple[Resource, ...], tuple[Resource, ...]], bytes],
        more: tuple[Resource, ...],
    ) -> Document:
        body = make(self._fixed, more)
        return Document(body, openapi.etag_of(body))

    def _v3(self, more: tuple[Resource, ...]) -> Mapping[str, Document]:
        found = openapi.documents(self._fixed, more)
        return {path: Document(body, openapi.etag_of(body)) for path, body in found.items()}


def _protobuf(fixed: tuple[Resource, ...], more: tuple[Resource, ...]) -> bytes:
    return openapi.v2_protobuf((*fixed, *more))


def _rank(resource: Resource) -> tuple[Any, ...]:
    """By group; there the version that clients are to prefer first: v2, v1, v2beta1, v1alpha1."""
    found = _VERSION.fullmatch(resource.version)
    if found is None:
        return resource.group, 3, 0, 0, resource.version
    major, stage, minor = found.groups()
    return resource.group, _STAGES[stage], -int(major), -int(minor or 0), resource.version
