"""`metrics.k8s.io`: agents are asked for usage every 15 s, and the results are served, as v1 and
v1beta1.

An agent that does not answer in time, or with no page of usage, loses its numbers, is asked last,
and more and more rarely: it takes nothing from the others.

Selectors are those of nodes and pods themselves. Whatever has no two readings yet is not listed:
clients then report that metrics are not available.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson
from aiohttp import web

from orch.component.http.sliced_response import respond
from orch.server import turns
from orch.server.handlers.call import INFO, finished
from orch.server.nodes import usage
from orch.server.nodes.proxy import NodeProxy
from orch.server.nodes.usage import NODE, PageReader, Reading, Usage
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
from orch.wire.names import TABLE_API_VERSION
from orch.wire.records.kinds import NODES
from orch.wire.records.usage import API_VERSIONS, GROUP
from orch.wire.tables import tables

log = logging.getLogger(__name__)

INTERVAL_S = 15.0
_TIMEOUT_S = 5.0
_AT_ONCE = 8
_LONGEST_PAUSE_S = 120.0


@dataclass(slots=True)
class _Agent:
    """What an agent said last; times are the loop's."""

    reading: Reading = field(default_factory=Reading)
    usages: Mapping[usage.Place, Usage] = field(default_factory=dict)
    failures: int = 0  # since it last answered
    asked_s: float = 0.0
    due_s: float = 0.0


class UsagePages:
    """`refresh` is the step of a loop; `routes` are the pages."""

    def __init__(self, backend: Backend, proxy: NodeProxy) -> None:
        self._backend = backend
        self._proxy = proxy
        self._agents: dict[str, _Agent] = {}

    async def refresh(self) -> None:
        """Ask every agent that is due, within one interval; those left over are the first next."""
        stored = self._backend.storage.list(prefix_of(NODES)).items
        names = [one.key.rpartition("/")[2] for one in stored]
        self._agents = {name: self._agents.get(name) or _Agent() for name in names}
        now_s = asyncio.get_running_loop().time()
        due = [(name, agent) for name, agent in self._agents.items() if agent.due_s <= now_s]
        due.sort(key=lambda one: (one[1].failures > 0, one[1].asked_s))
        turns = asyncio.Semaphore(_AT_ONCE)

        async def ask(name: str, agent: _Agent) -> None:
            async with turns:
                await self._ask(name, agent)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(INTERVAL_S):
                await asyncio.gather(*(ask(*one) for one in due))

    async def _ask(self, node: str, agent: _Agent) -> None:
        now_s = agent.asked_s = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                reading = await self._read(node)
        except (ApiError, aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            log.debug("no usage from node %s: %s", node, error)
            pause_s = INTERVAL_S * (2 ** min(agent.failures, 8) - 1)
            agent.usages, agent.failures = {}, agent.failures + 1
            agent.due_s = now_s + min(pause_s, _LONGEST_PAUSE_S)
        else:
            agent.usages = usage.usages(agent.reading, reading)
            agent.reading, agent.failures = reading, 0

    async def _read(self, node: str) -> Reading:
        async with await self._proxy.ask(node, "/metrics/resource") as answer:
            answer.raise_for_status()
            page = PageReader()
            async for piece, _ in answer.content.iter_chunks():
                page.feed(piece)
                await asyncio.sleep(0)  # a page takes its time, never everybody's
            return page.end()

    def routes(self) -> list[web.RouteDef]:
        paths = (
            "nodes",
            "nodes/{name}",
            "pods",
            "namespaces/{ns}/pods",
            "namespaces/{ns}/pods/{name}",
        )
        return [
            web.get(f"/apis/{version}/{path}", self._handle)
            for version in API_VERSIONS
            for path in paths
        ]

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        info = request[INFO]
        if info.verb not in ("get", "list"):
            raise web.HTTPMethodNotAllowed(request.method, ("GET",))
        kind, strategy = _KINDS[info.resource]
        selected = await self._selected(strategy, info)
        version = f"{GROUP}/{info.version}"
        found = [self._record(version, decode(stored)) async for stored in turns.in_turns(selected)]
        records = [record for record in found if record]
        if info.verb == "get" and not records:
            raise not_found(info.resource, info.name, GROUP)
        form = media.negotiate(request.headers.get("Accept", ""))
        body: Any
        if form.form in (Form.PARTIAL, Form.PARTIAL_LIST):
            records = [tables.partial_metadata(record) for record in records]
            kind, version = Form.PARTIAL.value, TABLE_API_VERSION
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
                "apiVersion": version,
                "metadata": {},
                "items": records,
            }
        else:
            body = records[0]
        return await finished(request, respond(200, orjson.dumps(body), form.headers))

    async def _selected(self, strategy: Strategy, info: RequestInfo) -> Sequence[Stored]:
        fields = f"metadata.name={info.name}" if info.verb == "get" else info.field_selector
        selection = parse_selection(strategy, info.label_selector, fields)
        everything = options.ListOptions()
        page = await list_watch.list_objects(self._backend, selection, info.namespace, everything)
        return page.items

    def _record(self, version: str, document: Document) -> dict[str, Any] | None:
        name, now = document["metadata"]["name"], self._backend.now()
        if document["kind"] == NODES.kind:
            used = self._known(name).get(NODE)
            return usage.node_record(version, document, used, now) if used else None
        known = self._known(pods.node_of(document))
        namespace = document["metadata"]["namespace"]
        named = [c["name"] for c in (document.get("spec") or {}).get("containers") or ()]
        found = {c: known[namespace, name, c] for c in named if (namespace, name, c) in known}
        return usage.pod_record(version, document, found, now)

    def _known(self, node: str) -> Mapping[usage.Place, Usage]:
        agent = self._agents.get(node)
        return agent.usages if agent else {}


_KINDS = {"nodes": ("NodeMetrics", nodes.NODE_STRATEGY), "pods": ("PodMetrics", pods.STRATEGY)}
