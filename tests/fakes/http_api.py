"""HttpApi: an API server on a loopback port, for tests of what speaks HTTP to one.

Holds objects as JSON by their path; lists, tables, patches and deletions work, nothing is
validated. `answers` overrides any request, `sockets` takes those of a path over; `requests` are all
that arrived.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple

from aiohttp import web

from orch.wire import errors
from orch.wire.patch.json_patch import apply_json_patch
from orch.wire.patch.merge_keys import schema_of
from orch.wire.patch.patch import apply_merge_patch
from orch.wire.patch.strategic_patch import apply_strategic_patch
from orch.wire.selectors import parse_label_selector
from orch.wire.tables.tables import table_of

NOW = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
GROUP = "coordination.orch.io"
RESOURCES: dict[str, list[dict[str, Any]]] = {
    "/api/v1": [
        {"name": "events", "singularName": "event", "kind": "Event", "namespaced": True},
        {"name": "namespaces", "singularName": "namespace", "kind": "Namespace",
         "namespaced": False, "shortNames": ["ns"]},
        {"name": "nodes", "singularName": "node", "kind": "Node", "namespaced": False,
         "shortNames": ["no"]},
        {"name": "nodes/status", "singularName": "", "kind": "Node", "namespaced": False},
        {"name": "pods", "singularName": "pod", "kind": "Pod", "namespaced": True,
         "shortNames": ["po"], "verbs": ["get", "list"], "categories": ["all"]},
    ],
    f"/apis/{GROUP}/v1": [
        {"name": "leases", "singularName": "lease", "kind": "Lease", "namespaced": True},
    ],
}  # fmt: skip
KINDS = {r["name"]: r["kind"] for listed in RESOURCES.values() for r in listed}


class Request(NamedTuple):
    """A request as it arrived; `body` is JSON data, or None without one."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


class Answer(NamedTuple):
    """What to answer instead: JSON data, text as it is, or what makes an iterator of bytes."""

    body: Any
    status: int = 200
    headers: dict[str, str] | None = None

    def response(self) -> web.Response:
        if isinstance(self.body, str):
            return web.Response(text=self.body, status=self.status, headers=self.headers)
        if callable(self.body):
            return web.Response(body=self.body(), status=self.status, headers=self.headers)
        return web.json_response(self.body, status=self.status, headers=self.headers)


class HttpApi:
    def __init__(self) -> None:
        self.url = ""
        self.objects: dict[str, dict[str, Any]] = {}
        self.requests: list[Request] = []
        self.answers: dict[tuple[str, str], Answer | list[Answer]] = {}
        self.sockets: dict[str, Callable[[web.Request], Awaitable[web.StreamResponse]]] = {}
        self.makes_tables = True
        self._revision = 0

    def put(self, path: str, record: dict[str, Any]) -> dict[str, Any]:
        """Store an object as if it had been there; gives it a uid and a revision."""
        self._revision += 1
        metadata = {"uid": f"uid-{self._revision}", **record.get("metadata", {})}
        metadata["resourceVersion"] = str(self._revision)
        kind = KINDS.get(path.split("/")[-2], "Other")
        self.objects[path] = {"kind": kind, **record, "metadata": metadata}
        return self.objects[path]

    def sent(self, method: str) -> list[Request]:
        return [request for request in self.requests if request.method == method]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        body = json.loads(raw) if raw else None
        self.requests.append(
            Request(request.method, request.path, dict(request.query), dict(request.headers), body)
        )
        if (talk := self.sockets.get(request.path)) is not None:
            return await talk(request)
        answer = self.answers.get((request.method, request.path))
        if isinstance(answer, list):
            answer = answer.pop(0) if answer else None
        if answer is not None:
            return answer.response()
        try:
            return web.json_response(self._answer(request, body))
        except errors.ApiError as error:
            return web.json_response(error.to_status(), status=error.code)

    def _answer(self, request: web.Request, body: Any) -> dict[str, Any]:
        if request.path in RESOURCES:
            return {"kind": "APIResourceList", "resources": RESOURCES[request.path]}
        if request.path == "/apis":
            preferred = {"groupVersion": f"{GROUP}/v1", "version": "v1"}
            return {"groups": [{"name": GROUP, "preferredVersion": preferred}]}
        if request.method == "POST":
            return self._create(request.path, body)
        plural = request.path.split("/")[-1]
        if request.method == "GET" and plural in KINDS:
            return self._list(request, plural)
        return self._one(request, body)

    def _create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        name = body["metadata"]["name"]
        if f"{path}/{name}" in self.objects:
            raise errors.already_exists(path.split("/")[-1], name)
        return self.put(f"{path}/{name}", body)

    def _one(self, request: web.Request, body: Any) -> dict[str, Any]:
        path = request.path.removesuffix("/status")
        record = self.objects.get(path)
        plural, name = path.split("/")[-2:]
        if record is None:
            raise errors.not_found(plural, name)
        if request.method == "DELETE":
            del self.objects[path]
            return {"kind": "Status", "details": {"uid": record["metadata"]["uid"]}}
        if request.method == "PATCH":
            after = _patched(record, body, request.content_type)
            return record if after == record else self.put(path, after)
        return self._shown(request, plural, [record]) or record

    def _list(self, request: web.Request, plural: str) -> dict[str, Any]:
        selector = parse_label_selector(request.query.get("labelSelector", ""))
        listed = [
            record
            for path, record in sorted(self.objects.items())
            if path.split("/")[-2] == plural
            and (path.startswith(request.path) or "/namespaces/" not in request.path)
            and selector.matches(record["metadata"].get("labels", {}))
        ]
        return self._shown(request, plural, listed) or {"kind": "List", "items": listed}

    def _shown(
        self, request: web.Request, plural: str, records: list[dict[str, Any]]
    ) -> dict[str, Any] | None:
        if "as=Table" not in request.headers.get("Accept", "") or not self.makes_tables:
            return None
        return table_of(KINDS[plural], records, NOW)


def _patched(record: dict[str, Any], patch: Any, content_type: str) -> Any:
    match content_type:
        case "application/json-patch+json":
            return apply_json_patch(record, patch)
        case "application/merge-patch+json":
            wanted = patch.get("metadata", {}).get("resourceVersion")
            if wanted not in (None, record["metadata"]["resourceVersion"]):
                raise errors.conflict("objects", record["metadata"]["name"], "it was modified")
            return apply_merge_patch(record, patch)
        case "application/strategic-merge-patch+json":
            schema = schema_of(record.get("apiVersion", ""), record.get("kind", ""))
            return apply_strategic_patch(record, patch, schema)
    raise errors.ApiError(415, "UnsupportedMediaType", f"cannot read {content_type}")


@asynccontextmanager
async def http_api() -> AsyncIterator[HttpApi]:
    """A running server; `url` is its address."""
    api = HttpApi()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", api.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    api.url = f"http://{host}:{port}"
    try:
        yield api
    finally:
        await runner.cleanup()
