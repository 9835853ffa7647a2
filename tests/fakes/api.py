"""FakeApi: the API server in memory, with ApiClient's methods, for tests of everything above it.

It has the rules that callers lean on: resourceVersion conflicts, AlreadyExists and NotFound, the
status subresource, writes that change nothing, graceful pod deletion, watches resumed from a
version (410 when it was compacted). Several FakeApi may share one FakeStore: several clients of
one server, each with faults of its own.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any, NamedTuple

from orch.client.resources import ListResult, WatchEvent
from orch.wire import errors, times
from orch.wire.errors import ApiError
from orch.wire.patch import merge_keys, strategic_patch
from orch.wire.records.authentication import (
    TokenRequest,
    TokenRequestSpec,
    TokenRequestStatus,
)
from orch.wire.records.configuration import ServiceAccount
from orch.wire.records.kinds import resource_of
from orch.wire.records.meta import ApiObject
from orch.wire.records.pods import Pod
from tests.fakes.apistore import FakeStore, key_of
from tests.fakes.faults import Fault, Faults

SERVER_OWNED = ("uid", "creationTimestamp", "resourceVersion", "deletionTimestamp")
MODIFIED = "the object has been modified; please apply your changes to the latest version"


class Call(NamedTuple):
    """One request as it arrived; `body` is JSON data or None."""

    verb: str
    plural: str
    key: str
    subresource: str
    body: Any


class FakeTransport:
    """Stands where ApiClient has its transport; counts the connections thrown away."""

    resets = 0
    closed = False

    async def reset(self) -> None:
        self.resets += 1

    async def close(self) -> None:
        self.closed = True


class FakeApi:
    """`store` is the server's side; `calls` are this client's requests, failed ones included."""

    def __init__(self, store: FakeStore | None = None) -> None:
        self.store = store or FakeStore()
        self.transport = FakeTransport()
        self.calls: list[Call] = []
        self._faults = Faults()

    # --- what tests do to it ---------------------------------------------------------------

    def fail(
        self,
        error: BaseException,
        *,
        verb: str = "",
        plural: str = "",
        times: float = 1,
        applied: bool = False,
    ) -> None:
        """The next `times` matching calls raise `error`; with `applied`, after taking effect.

        The verb "watching" breaks a watch that is under way.
        """
        self._faults.orders.append(Fault(verb, plural, error, times, applied))
        self.store.nudge()

    def hang(self, *, verb: str = "", plural: str = "") -> asyncio.Event:
        """Matching calls wait until the returned event is set, or `heal` is called."""
        gate = asyncio.Event()
        self._faults.orders.append(Fault(verb, plural, None, float("inf"), False, gate))
        return gate

    def heal(self) -> None:
        self._faults.heal()

    def made(self, verb: str = "", plural: str = "") -> list[Call]:
        """The calls so far, of one verb or kind if named."""
        return [c for c in self.calls if verb in ("", c.verb) and plural in ("", c.plural)]

    # --- ApiClient's methods ---------------------------------------------------------------

    async def get(self, model: type[Any], name: str, namespace: str = "") -> Any:
        await self._arrive("get", model, key_of(namespace, name))
        return _read(model, self._current(model, name, namespace))

    async def find(self, model: type[Any], name: str, namespace: str = "") -> Any:
        try:
            return await self.get(model, name, namespace)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    async def list(
        self,
        model: type[Any],
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str = "",
    ) -> ListResult[Any]:
        await self._arrive("list", model, namespace)
        items = [
            item
            for item in self.store.all(model)
            if _selected(item.to_wire(), namespace, label_selector, field_selector)
        ]
        return ListResult(items, str(self.store.version))

    async def create(self, obj: Any, *, subresource: str = "") -> Any:
        model, data = type(obj), obj.to_wire()
        meta = data.setdefault("metadata", {})
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = meta["generateName"] + self.store.new_uid()
        key = key_of(meta.get("namespace") or "", meta["name"])
        lost = await self._arrive("create", model, key, subresource, copy.deepcopy(data))
        if (model, key) in self.store.data:
            raise errors.already_exists(_plural(model), meta["name"], resource_of(model).group)
        meta["uid"] = self.store.new_uid()
        meta["creationTimestamp"] = times.format_time(self.store.now())
        return _answer(self.store.save(model, key, data, "ADDED"), lost)

    async def act(
        self, model: type[Any], name: str, subresource: str, record: Any, *, namespace: str = ""
    ) -> None:
        """Bindings of pods only."""
        assert (model, subresource) == (Pod, "binding")
        key = key_of(namespace, name)
        lost = await self._arrive("create", model, key, subresource, copy.deepcopy(record))
        data = copy.deepcopy(self._current(model, name, namespace))
        if data["metadata"]["uid"] != record["metadata"].get("uid", data["metadata"]["uid"]):
            raise errors.conflict(_plural(model), name, "the binding is of another pod")
        if data.get("spec", {}).get("nodeName"):
            raise errors.conflict(_plural(model), name, "the pod is already assigned to a node")
        data["spec"]["nodeName"] = record["target"]["name"]
        status = data.setdefault("status", {})
        others = [c for c in status.get("conditions") or () if c["type"] != "PodScheduled"]
        status["conditions"] = [*others, {"type": "PodScheduled", "status": "True"}]
        _answer(self.store.save(model, key, data, "MODIFIED"), lost)

    async def create_token(self, account: str, namespace: str, spec: TokenRequestSpec) -> Any:
        """A text that names the account and is another every time."""
        body = TokenRequest(spec=spec).to_wire()
        lost = await self._arrive(
            "create", ServiceAccount, key_of(namespace, account), "token", body
        )
        expires = self.store.now() + timedelta(seconds=spec.expirationSeconds or 3600)
        status = TokenRequestStatus(
            token=f"{account}.{spec.audiences[0] if spec.audiences else ''}.{self.store.new_uid()}",
            expirationTimestamp=times.format_time(expires),
        )
        return _answer(TokenRequest(spec=spec, status=status), lost)

    async def update(self, obj: Any, *, subresource: str = "") -> Any:
        model, data, meta = type(obj), obj.to_wire(), obj.metadata
        lost = await self._arrive("update", model, obj.key, subresource, copy.deepcopy(data))
        current = self._current(model, meta.name, meta.namespace or "")
        _check_preconditions(model, current, data["metadata"])
        return _answer(self._write(model, current, data, subresource), lost)

    async def patch(
        self,
        model: type[Any],
        name: str,
        patch: Any,
        *,
        namespace: str = "",
        subresource: str = "",
        kind: str = "merge",
    ) -> Any:
        key = key_of(namespace, name)
        lost = await self._arrive("patch", model, key, subresource, copy.deepcopy(patch))
        current = self._current(model, name, namespace)
        if isinstance(patch, dict):
            _check_preconditions(model, current, patch.get("metadata") or {})
        data = _merged(copy.deepcopy(current), patch)
        if kind == "strategic":
            known = resource_of(model)
            schema = merge_keys.schema_of(known.api_version, known.kind)
            data = strategic_patch.apply_strategic_patch(current, patch, schema)
        return _answer(self._write(model, current, data, subresource), lost)

    async def delete(
        self,
        model: type[Any],
        name: str,
        namespace: str = "",
        *,
        grace_period_s: int | None = None,
        uid: str | None = None,
    ) -> None:
        key = key_of(namespace, name)
        body = {"gracePeriodSeconds": grace_period_s, "uid": uid}
        lost = await self._arrive("delete", model, key, "", body)
        current = self._current(model, name, namespace)
        if uid is not None and uid != current["metadata"]["uid"]:
            why = f"Precondition failed: UID in precondition: {uid}"
            raise errors.conflict(_plural(model), name, why, resource_of(model).group)
        if model is Pod and _terminates(current, grace_period_s):
            marked = self._marked_deleted(current, grace_period_s)
            self.store.save(model, key, marked, "MODIFIED")
        else:
            self.store.drop(model, key)
        _answer(None, lost)

    async def watch(
        self,
        model: type[Any],
        namespace: str = "",
        *,
        resource_version: str,
        field_selector: str = "",
        timeout_s: int = 300,
        silence_s: float = 120.0,  # no connection here can be too silent
    ) -> AsyncGenerator[WatchEvent[Any], None]:
        await self._arrive("watch", model, namespace)
        seen = int(resource_version or self.store.version)
        if seen < self.store.compacted:
            raise errors.expired(f"too old resource version: {seen} ({self.store.compacted})")
        while True:
            news = self.store.news
            await self._faults.meet("watching", _plural(model))
            for change in [c for c in self.store.history if c.version > seen]:
                seen = change.version
                if change.model is model and _selected(change.data, namespace, "", field_selector):
                    yield WatchEvent(change.type, _read(model, change.data))
            await news.wait()

    # --- inside ----------------------------------------------------------------------------

    async def _arrive(
        self, verb: str, model: type[ApiObject], key: str, subresource: str = "", body: Any = None
    ) -> BaseException | None:
        """Count the call and meet its fault; what is returned is raised after it took effect."""
        self.calls.append(Call(verb, _plural(model), key, subresource, body))
        await asyncio.sleep(0)
        return await self._faults.meet(verb, _plural(model))

    def _current(self, model: type[ApiObject], name: str, namespace: str) -> dict[str, Any]:
        data = self.store.data.get((model, key_of(namespace, name)))
        if data is None:
            raise errors.not_found(_plural(model), name, resource_of(model).group)
        return data

    def _write(
        self, model: type[Any], current: dict[str, Any], data: dict[str, Any], subresource: str
    ) -> Any:
        """Keep what the server owns, and status or the rest as the subresource says."""
        meta = {k: v for k, v in data.get("metadata", {}).items() if k not in SERVER_OWNED}
        owned = {k: v for k, v in current["metadata"].items() if k in SERVER_OWNED}
        data = {**copy.deepcopy(data), "metadata": {**meta, **owned}}
        if subresource == "status":
            data = {**copy.deepcopy(current), "status": data.get("status", {})}
        elif "status" in resource_of(model).subresources:
            data["status"] = copy.deepcopy(current.get("status", {}))
        if data == current:
            return _read(model, current)
        key = key_of(meta.get("namespace") or "", meta["name"])
        return self.store.save(model, key, data, "MODIFIED")

    def _marked_deleted(self, current: dict[str, Any], grace_s: int | None) -> dict[str, Any]:
        data = copy.deepcopy(current)
        default = data.get("spec", {}).get("terminationGracePeriodSeconds") or 30
        data["metadata"]["deletionTimestamp"] = times.format_time(self.store.now())
        data["metadata"]["deletionGracePeriodSeconds"] = default if grace_s is None else grace_s
        return data


def _plural(model: type[ApiObject]) -> str:
    return resource_of(model).plural


def _read(model: type[Any], data: dict[str, Any]) -> Any:
    return model.from_wire(copy.deepcopy(data))


def _answer(result: Any, lost: BaseException | None) -> Any:
    if lost is not None:
        raise lost
    return result


def _check_preconditions(
    model: type[ApiObject], current: dict[str, Any], meta: dict[str, Any]
) -> None:
    for name in ("uid", "resourceVersion"):
        if meta.get(name) and meta[name] != current["metadata"][name]:
            named = current["metadata"]["name"]
            raise errors.conflict(_plural(model), named, MODIFIED, resource_of(model).group)


def _terminates(pod: dict[str, Any], grace_s: int | None) -> bool:
    """Whether a delete only marks the pod: it runs on a node and is given time."""
    return bool(pod.get("spec", {}).get("nodeName")) and grace_s != 0


def _selected(data: dict[str, Any], namespace: str, labels: str, fields: str) -> bool:
    meta = data["metadata"]
    if namespace and meta.get("namespace") != namespace:
        return False
    labelled = all((meta.get("labels") or {}).get(k) == v for k, v in _pairs(labels))
    return labelled and all(_at(data, path) == value for path, value in _pairs(fields))


def _pairs(selector: str) -> list[tuple[str, str]]:
    parts = (part.partition("=") for part in selector.split(",") if part)
    return [(key, value.lstrip("=")) for key, _, value in parts]


def _at(data: Any, path: str) -> str:
    for step in path.split("."):
        data = (data or {}).get(step)
    return str(data or "")


def _merged(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value)
    return result
