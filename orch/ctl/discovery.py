"""Which resource a word on the command line means: asked from the server, as little as needed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from orch.ctl.api import Api, segment
from orch.ctl.failures import CommandFailed, did_you_mean
from orch.wire import raw
from orch.wire.errors import ApiError


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind as the server serves it; `group` is "" for the core group."""

    group: str
    version: str
    plural: str
    singular: str
    kind: str
    namespaced: bool = False
    short_names: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def label(self, name: str = "") -> str:
        """`pod/web`, `lease.coordination.orch.io/n1`; without a name, the type alone."""
        kind = f"{self.singular}.{self.group}" if self.group else self.singular
        return f"{kind}/{name}" if name else kind

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", segment(namespace)]
        parts += [part for part in (self.plural, segment(name), subresource) if part]
        return "/".join(parts)

    def answers_to(self, word: str) -> bool:
        """Whether a word names this resource: plural, singular, short, kind, or with its group."""
        name, _, group = word.lower().partition(".")
        if group and group not in (self.group, f"{self.version}.{self.group}"):
            return False
        return name in (self.plural, self.singular, self.kind.lower(), *self.short_names)


class Discovery:
    """The resources of one server; each answer is kept."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._known: dict[str, list[Resource]] = {}

    async def resolve(self, word: str) -> Resource:
        """The resource a word means, the core group's before others; CommandFailed if none."""
        known: list[str] = []
        async for resource in self.resources():
            if resource.answers_to(word):
                return resource
            known += (resource.plural, resource.singular, *resource.short_names)
        for resource in await self._of_group(word.lower().partition(".")[2]):
            if resource.answers_to(word):
                return resource
        hint = did_you_mean(word.lower().partition(".")[0], known)
        raise CommandFailed(f"the server has no resource type {word!r}{hint}")

    async def resolve_all(self, word: str) -> list[Resource]:
        """The resource of that name, else those of the category (`all`); CommandFailed if none."""
        try:
            return [await self.resolve(word)]
        except CommandFailed:
            found = [r async for r in self.resources() if word in r.categories]
            if not found:
                raise
            return found

    async def of_kind(self, api_version: str, kind: str) -> Resource:
        """The resource of an object's apiVersion and kind; CommandFailed if the server has none."""
        served = await self._of_version(api_version)
        if found := next((resource for resource in served if resource.kind == kind), None):
            return found
        hint = did_you_mean(kind, [resource.kind for resource in served])
        raise CommandFailed(f"the server has no kind {kind!r} in {api_version!r}{hint}")

    async def resources(self) -> AsyncIterator[Resource]:
        """Every resource, the core group first, each group in its preferred version."""
        for resource in await self._of_version("v1"):
            yield resource
        groups = await self._api.get("/apis")
        for group in raw.records(groups, "groups"):
            version = raw.text(group, "preferredVersion", "groupVersion")
            for resource in await self._of_version(version):
                yield resource

    async def _of_group(self, group: str) -> list[Resource]:
        """Of a group that is served and not listed: another name of one that is."""
        try:
            described = await self._api.get(f"/apis/{segment(group)}") if group else {}
        except ApiError as error:
            if error.code not in (403, 404):
                raise
            return []
        version = raw.text(described, "preferredVersion", "groupVersion")
        return await self._of_version(version) if version else []

    async def _of_version(self, api_version: str) -> list[Resource]:
        if api_version in self._known:
            return self._known[api_version]
        group, slash, version = api_version.rpartition("/")
        path = f"/apis/{segment(group)}/{segment(version)}" if slash else f"/api/{segment(version)}"
        try:
            served = raw.records(await self._api.get(path), "resources")
        except ApiError as error:
            if error.code != 404:
                raise
            served = []
        found = [_resource(group, version, r) for r in served if "/" not in raw.text(r, "name")]
        self._known[api_version] = found
        return found


def _resource(group: str, version: str, record: Any) -> Resource:
    kind = raw.text(record, "kind")
    return Resource(
        group,
        version,
        plural=raw.text(record, "name"),
        singular=raw.text(record, "singularName") or kind.lower(),
        kind=kind,
        namespaced=record.get("namespaced") is True,
        short_names=raw.texts(record, "shortNames"),
        verbs=raw.texts(record, "verbs"),
        categories=raw.texts(record, "categories"),
    )
