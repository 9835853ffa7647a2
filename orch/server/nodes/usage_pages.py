"""`metrics.k8s.io`: agents are asked for usage every 15 s, and the results are served.

Selectors are those of nodes and pods themselves. Whatever has no two readings yet is not listed:
clients then report that metrics are not available.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
import orjson
from aiohttp import web

from orch.server import turns
from orch.server.handlers.call import INFO
from orch.server.nodes import usage
from orch.server.nodes.proxy import NodeProxy
from orch.server.nodes.usage import NODE, Reading, Usage
from orch.server.objects import list_watch, options
from orch.server.objects.backend import Backend
from orch.server.objects.document import Document, decode, prefix_of
from orch.server.objects.selection import parse_selection
from orch.server.request import media
from orch.server.request.attributes import RequestInfo
from orch.server.request.media import Form
from orch.server.storage.base import Stored
from orch.server.strategy import nodes, pods
from orch.server.strategy.base import Strategy
from orch.wire.errors import ApiError, not_found
from orch.wire.records.kinds import NODES
from orch.wire.records.usage import API_VERSION, GROUP, VERSION
from orch.wire.tables import tables

log = logging.getLogger(__name__)

INTERVAL_S = 15.0
_TIMEOUT_S = 10.0
_AT_ONCE = 16
_ROOT = f"/apis/{GROUP}/{VERSION}"


class UsagePages:
    """`refresh` is the step of a loop; `routes` are the pages."""

    def __init__(self, backend: Backend, proxy: NodeProxy) -> None:
        self._backend = backend
        self._proxy = proxy
        self._readings: dict[str, Reading] = {}
        self._usages: dict[str, Mapping[usage.Place, Usage]] = {}

    async def refresh(self) -> None:
        """Ask every agent once; the usage of an agent that does not answer is dropped."""
        names = [
            s.key.rpartition("/")[2] for s in self._backend.storage.list(prefix_of(NODES)).items
        ]
        for gone in self._readings.keys() - set(names):
            del self._readings[gone]
            self._usages.pop(gone, None)
        turns = asyncio.Semaphore(_AT_ONCE)

        async def ask(name: str) -> None:
            async with turns:
                await self._read(name)

        await asyncio.gather(*(ask(name) for name in names))

    async def _read(self, node: str) -> None:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                async with await self._proxy.ask(node, "/metrics/resource") as answer:
                    answer.raise_for_status()
                    text = (await answer.read()).decode(errors="replace")
        except (ApiError, aiohttp.ClientError, OSError, TimeoutError) as error:
            log.debug("no usage from node %s: %s", node, error)
            self._usages.pop(node, None)
            return
        now = usage.parse_page(text)
        self._usages[node] = usage.usages(self._readings.get(node, Reading()), now)
        self._readings[node] = now

    def routes(self) -> list[web.RouteDef]:
        paths = (
            "nodes",
            "nodes/{name}",
            "pods",
            "namespaces/{ns}/pods",
            "namespaces/{ns}/pods/{name}",
        )
        return [web.get(f"{_ROOT}/{path}", self._handle) for path in paths]

    async def _handle(self, request: web.Request) -> web.Response:
        info = request[INFO]
        if info.verb not in ("get", "list"):
            raise web.HTTPMethodNotAllowed(request.method, ("GET",))
        kind, strategy = _KINDS[info.resource]
        selected = await self._selected(strategy, info)
        found = [self._record(decode(stored)) async for stored in turns.in_turns(selected)]
        records = [record for record in found if record]
        if info.verb == "get" and not records:
            raise not_found(info.resource, info.name, GROUP)
        form = media.negotiate(request.headers.get("Accept", ""))
        body: Any
        if form.form is Form.TABLE:
            now = self._backend.now()
            body = tables.table_of(kind, [], now)
            body["rows"] = [
                tables.table_of(kind, [record], now, with_columns=False)["rows"][0]
                async for record in turns.in_turns(records)
            ]
        elif info.verb == "list":
            body = {
                "kind": f"{kind}List",
                "apiVersion": API_VERSION,
                "metadata": {},
                "items": records,
            }
        else:
            body = records[0]
        return web.Response(body=orjson.dumps(body), headers=form.headers())

    async def _selected(self, strategy: Strategy, info: RequestInfo) -> Sequence[Stored]:
        fields = f"metadata.name={info.name}" if info.verb == "get" else info.field_selector
        selection = parse_selection(strategy, info.label_selector, fields)
        everything = options.ListOptions()
        page = await list_watch.list_objects(self._backend, selection, info.namespace, everything)
        return page.items

    def _record(self, document: Document) -> dict[str, Any] | None:
        name, now = document["metadata"]["name"], self._backend.now()
        if document["kind"] == NODES.kind:
            used = self._usages.get(name, {}).get(NODE)
            return usage.node_record(document, used, now) if used else None
        known = self._usages.get(pods.node_of(document), {})
        namespace = document["metadata"]["namespace"]
        named = [c["name"] for c in (document.get("spec") or {}).get("containers") or ()]
        found = {c: known[namespace, name, c] for c in named if (namespace, name, c) in known}
        return usage.pod_record(document, found, now)


_KINDS = {"nodes": ("NodeMetrics", nodes.NODE_STRATEGY), "pods": ("PodMetrics", pods.STRATEGY)}
