"""Streams to nodes' agents: a client's connection joined to one, counted, and bounded.

To an agent all streams through this server are one user's, so they are shared out here: a user gets
no more of them than are still free, and a node is never used up by one. Upgrades through
`nodes/{node}/proxy/…` are carried too, if the caller may `create` there: whoever may read through
the proxy opens no stream.
"""

from __future__ import annotations

from aiohttp import web

from orch.component.http import httpd
from orch.component.streams import upgrade
from orch.component.streams.spares import Spares
from orch.component.streams.upgrade import Bounds, Streams
from orch.component.streams.upstream import Headers, Refused, Unreachable
from orch.server.handlers.call import Call
from orch.server.nodes import proxy
from orch.server.nodes.address import ProxyId
from orch.server.nodes.proxy import NodeProxy
from orch.wire.errors import bad_request, service_unavailable

BOUNDS = Bounds(of_user=128, in_all=1024, behind_one=256)  # the last is what an agent takes
METHODS = ("GET", "POST")
_TEXT = {"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff"}


class AgentStreams:
    """`handle` is the connector of `nodes/proxy`; `close` ends all streams."""

    def __init__(self, node_proxy: NodeProxy) -> None:
        self._proxy = node_proxy
        self._streams = Streams(BOUNDS)
        self._spares = Spares()

    async def handle(self, call: Call) -> web.StreamResponse:
        """What is no upgrade is the proxy's. ApiError 400, 404, 429, 503; an agent's refusal is
        relayed.
        """
        request, info = call.request, call.info
        if "Upgrade" not in request.headers:
            return await self._proxy.handle(call)
        node, path = proxy.parse(call)
        headers = upgrade.upgrade_headers(request)
        if info.verb != "create" or request.method not in METHODS:
            raise bad_request(
                "upgraded connections are proxied to /exec, /attach and /portForward of a node,"
                " and to other paths if asked for by POST"
            )
        await self._proxy.ask_webhooks(call, path)
        try:
            return await self.join(call, node, path, headers)
        except Refused as error:
            if error.status < 400:
                text = f'node "{node.name}" answered {error.status} to an upgrade'
                raise service_unavailable(f"error trying to reach service: {text}") from error
            return web.Response(status=error.status, body=str(error).encode(), headers=_TEXT)

    async def join(
        self, call: Call, node: ProxyId, target: str, headers: Headers
    ) -> web.StreamResponse:
        """Carry a stream to its end; Refused, and ApiError 400, 404, 429, 503.

        `target` is the path at the agent, with its query.
        """
        request = call.request
        owner = httpd.connection_of(request).owner
        with self._streams.place(owner, call.identity.name, behind=node.name):
            destination = await self._proxy.destination(node)
            try:
                agreement = await self._spares.dial(destination, request.method, target, headers)
            except Unreachable as error:
                text = f'error dialing backend: the agent of node "{node.name}": {error}'
                raise service_unavailable(text) from error
            with self._spares.kept_for(destination):
                return await self._streams.carry(request, agreement, idle_s=0)

    async def close(self) -> None:
        await self._streams.close()
        await self._spares.close()
