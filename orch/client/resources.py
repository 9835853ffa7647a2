"""Typed access to an API server's objects: one method per verb, records in and out.

Paths come from the table of kinds. A refusal of the server is an ApiError, a missing or unusable
response a TransportError; nothing is retried.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import orjson
import pydantic

from orch.client.answers import AnswerTooLarge
from orch.client.json_api import JSON, SILENCE_S, JsonApi
from orch.client.transport import PATCH_TYPES, Transport, TransportError
from orch.wire import raw
from orch.wire.errors import ApiError
from orch.wire.records import kinds
from orch.wire.records.authentication import TokenRequest, TokenRequestSpec
from orch.wire.records.configuration import ServiceAccount
from orch.wire.records.meta import ApiObject, ObjectMeta

_END_OF_LIST = "k8s.io/initial-events-end"  # as watches of all servers say it
T = TypeVar("T", bound=ApiObject)


@dataclass(frozen=True, slots=True)
class ListResult(Generic[T]):
    items: Sequence[T]
    resource_version: str


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[T]):
    """ADDED, MODIFIED, DELETED, or BOOKMARK, where only the revision of `object` counts."""

    type: str
    object: T


class ApiClient:
    """The verbs of the API on the kinds of `orch.wire.records.kinds`."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self._json = JsonApi(transport)

    async def get(self, model: type[T], name: str, namespace: str = "") -> T:
        data = await self._json.get(_path(model, namespace, name))
        return self._record(model, data, name, namespace)

    async def find(self, model: type[T], name: str, namespace: str = "") -> T | None:
        """The object; None when there is none, as only a refusal that names it can say."""
        try:
            return await self.get(model, name, namespace)
        except ApiError as error:
            if error.code == 404 and error.name == name:
                return None
            raise

    async def list(
        self,
        model: type[T],
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str = "",
    ) -> ListResult[T]:
        """All objects, of every namespace when none is given, and the revision they are from.

        What is too large for one answer comes one by one.
        """
        params = {
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
            "resourceVersion": resource_version,
        }
        try:
            data = await self._json.pages(_path(model, namespace), params)
        except AnswerTooLarge:
            return await self._one_by_one(model, namespace, params)
        with self._reading(f"a list of {model.__name__}"):
            _require_kind(model, data.get("apiVersion"), data.get("kind"), "List")
            items = data["items"]
            for index, item in enumerate(items):  # in its place: both take many times their bytes
                items[index] = record = model.from_wire(item)
                _require_kind(model, record.apiVersion, record.kind)
                _require_identity(record)
            return ListResult(tuple(items), _revision(data))

    async def _one_by_one(
        self, model: type[T], namespace: str, params: Mapping[str, str]
    ) -> ListResult[T]:
        """A list as the events that a watch begins with."""
        path, found = _path(model, namespace), dict[str, T]()
        wanted = {**params, "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        events = self._json.watch(path, wanted, silence_s=SILENCE_S)
        async with contextlib.aclosing(events):
            async for kind, record in events:
                with self._reading(f"a list of {model.__name__}"):
                    _require_kind(model, record.get("apiVersion"), record.get("kind"))
                    if kind == "BOOKMARK":
                        revision = _revision(record)
                        if raw.text(record, "metadata", "annotations", _END_OF_LIST) == "true":
                            return ListResult(tuple(found.values()), revision)
                        continue
                    item = model.from_wire(record)
                    _require_identity(item)
                    found[item.key] = item
                    if kind == "DELETED":
                        del found[item.key]
        raise TransportError(f"{self.transport.config.server} did not end the list of {path}")

    async def create(self, obj: T, *, subresource: str = "") -> T:
        """The stored object; a subresource (`token`) is created under the object's name."""
        name = obj.metadata.name if subresource else ""
        path = _path(type(obj), obj.metadata.namespace or "", name, subresource)
        return self._record(type(obj), await self._json.send("POST", path, obj.to_wire()))

    async def act(
        self, model: type[T], name: str, subresource: str, record: Any, *, namespace: str = ""
    ) -> None:
        """Send a record to a subresource that takes one of its own kind, such as `binding`."""
        path = _path(model, namespace, name, subresource)
        answer = await self._json.send("POST", path, record)
        if (answer.get("kind"), answer.get("status")) != ("Status", "Success"):
            server = self.transport.config.server
            raise TransportError(f"{server} did not say whether the {subresource} was done")

    async def create_token(
        self, account: str, namespace: str, spec: TokenRequestSpec
    ) -> TokenRequest:
        """A token of a service account, as it was asked for."""
        path = _path(ServiceAccount, namespace, account, "token")
        asked = TokenRequest(metadata=ObjectMeta(name=account, namespace=namespace), spec=spec)
        data = await self._json.send("POST", path, asked.to_wire())
        with self._reading("a TokenRequest"):
            found = (data.get("apiVersion"), data.get("kind"))
            if found != (TokenRequest().apiVersion, TokenRequest().kind):
                raise ValueError(f"its kind is {found[1]!r} of {found[0]!r}")
            return TokenRequest.from_wire(data)

    async def update(self, obj: T, *, subresource: str = "") -> T:
        """Replace; 409 Conflict when `metadata.resourceVersion` is not the stored one."""
        meta = obj.metadata
        path = _path(type(obj), meta.namespace or "", meta.name, subresource)
        data = await self._json.send("PUT", path, obj.to_wire())
        return self._record(type(obj), data, meta.name, meta.namespace or "")

    async def patch(
        self,
        model: type[T],
        name: str,
        patch: Any,
        *,
        namespace: str = "",
        subresource: str = "",
        kind: str = "merge",
    ) -> T:
        """Apply a merge or strategic merge patch, which is JSON data."""
        path = _path(model, namespace, name, subresource)
        data = await self._json.send("PATCH", path, patch, content_type=PATCH_TYPES[kind])
        return self._record(model, data, name, namespace)

    async def delete(
        self,
        model: type[ApiObject],
        name: str,
        namespace: str = "",
        *,
        grace_period_s: int | None = None,
        uid: str | None = None,
    ) -> None:
        """Delete; with `uid`, only the object with that UID (409 Conflict otherwise)."""
        options: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if grace_period_s is not None:
            options["gracePeriodSeconds"] = grace_period_s
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        path = _path(model, namespace, name)
        await self._json.call("DELETE", path, body=orjson.dumps(options), content_type=JSON)

    async def watch(
        self,
        model: type[T],
        namespace: str = "",
        *,
        resource_version: str,
        field_selector: str = "",
        timeout_s: int = 300,
        silence_s: float = SILENCE_S,
    ) -> AsyncGenerator[WatchEvent[T], None]:
        """Changes after a revision until the server ends the watch; close it (`aclosing`).

        TransportError after `silence_s` without one or a bookmark. An ERROR event is raised as its
        ApiError; code 410 requires a new list.
        """
        params = {
            "resourceVersion": resource_version,
            "fieldSelector": field_selector,
            "timeoutSeconds": str(timeout_s),
        }
        events = self._json.watch(_path(model, namespace), params, silence_s=silence_s)
        async with contextlib.aclosing(events):
            async for kind, record in events:
                with self._reading(f"a watch event of {model.__name__}"):
                    _require_kind(model, record.get("apiVersion"), record.get("kind"))
                    _revision(record)
                    event = WatchEvent(kind, model.from_wire(record))
                    if kind != "BOOKMARK":
                        _require_identity(event.object)
                yield event

    def _record(
        self, model: type[T], data: dict[str, Any], name: str = "", namespace: str = ""
    ) -> T:
        """The object in an answer; the one of that name if a name was asked for."""
        with self._reading(f"a {model.__name__}"):
            _require_kind(model, data.get("apiVersion"), data.get("kind"))
            record = model.from_wire(data)
            if name:
                _require_identity(record, f"{namespace}/{name}" if namespace else name)
            return record

    @contextlib.contextmanager
    def _reading(self, what: str) -> Iterator[None]:
        try:
            yield
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            server = self.transport.config.server
            cause = _first_problem(error)
            raise TransportError(f"{server} answered what is not {what}: {cause}") from error


def _path(model: type[ApiObject], namespace: str, name: str = "", subresource: str = "") -> str:
    resource = kinds.resource_of(model)
    return resource.path(quote(namespace, safe=""), quote(name, safe=""), subresource)


def _require_kind(model: type[ApiObject], version: Any, kind: Any, suffix: str = "") -> None:
    """ValueError unless the answer says that it is what was asked for."""
    resource = kinds.resource_of(model)
    if (version, kind) != (resource.api_version, f"{resource.kind}{suffix}"):
        raise ValueError(f"its kind is {kind!r} of {version!r}")


def _require_identity(record: ApiObject, key: str = "") -> None:
    """ValueError for what is no stored object, or not the one that was asked for."""
    if not (record.metadata.name and record.metadata.uid):
        raise ValueError("it has no metadata.name or no metadata.uid")
    if key and record.key != key:
        raise ValueError(f"it is {record.key}, not {key}")


def _revision(data: dict[str, Any]) -> str:
    if revision := raw.text(data, "metadata", "resourceVersion"):
        return revision
    raise ValueError("it has no metadata.resourceVersion")


def _first_problem(error: Exception) -> str:
    if isinstance(error, pydantic.ValidationError):
        problem = error.errors()[0]
        return f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}"
    return str(error)
