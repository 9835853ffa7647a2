"""A real server over TLS in this process, and clients that speak to it as different users."""

from __future__ import annotations

import asyncio
import io
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from orch.component.http.httpd import HttpServer, server_context
from orch.component.pki import Authority, KeyPair, Subject
from orch.component.process import loops
from orch.server import flags
from orch.server.server import Server
from orch.server.storage.flags import STORAGE_FILE

USERS = {
    "admin": ("admin", ("system:masters",)),
    "n1": ("system:node:n1", ("system:nodes",)),
    "n2": ("system:node:n2", ("system:nodes",)),
    "controller": ("system:controller-manager", ()),
    "monitor": ("prometheus", ("system:monitoring",)),
    "stranger": ("stranger", ("some:group",)),
}
PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
TURN_S = 20.0
HEALTH_S = 0.2  # sooner than the server itself looks whether storage works
LEASES = "/apis/coordination.orch.io/v1/namespaces/orch-node-lease/leases"
EVENTS = "/api/v1/namespaces/default/events"
NAMESPACES = "/api/v1/namespaces"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


@dataclass(frozen=True)
class Pki:
    """Certificates of the server and of every user; made once for all tests."""

    ca_file: str
    server: KeyPair
    users: Mapping[str, KeyPair]


def make_pki(directory: Path, now: Any) -> Pki:
    authority = Authority(directory, now=now)
    users = {
        user: authority.issue(Subject(user, name, groups)) for user, (name, groups) in USERS.items()
    }
    hosts = ("127.0.0.1", "localhost", "n1")
    return Pki(authority.ca_file, authority.issue(Subject("server", "server", (), hosts)), users)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()


def _server(pki: Pki, directory: Path, *arguments: str) -> Server:
    return Server(
        flags.parse(
            [
                "--tls-cert-file", pki.server.cert_file,
                "--tls-private-key-file", pki.server.key_file,
                "--client-ca-file", pki.ca_file,
                "--data-dir", str(directory),
                *arguments,
            ]
        )
    )  # fmt: skip


_begun: list[bytes] = []  # the file of a server that has made its initial objects


async def _begin(pki: Pki, directory: Path) -> None:
    """A new store, copied from the first one: to make all default roles takes long."""
    directory.mkdir(mode=0o700)
    file = directory / STORAGE_FILE
    if _begun:
        file.write_bytes(_begun[0])
        return
    server = _server(pki, directory)
    await server.open()
    await server.close()
    _begun.append(file.read_bytes())


@dataclass
class Api:
    """The running server; `call` as any of USERS, or as None without a certificate."""

    server: Server
    http: HttpServer
    pki: Pki
    port: int = 0
    following: list[asyncio.Task[None]] = field(default_factory=list)
    _sessions: dict[str | None, aiohttp.ClientSession] = field(default_factory=dict)

    @classmethod
    async def start(cls, pki: Pki, directory: Path, *arguments: str, port: int = 0) -> Api:
        """A server; in a directory that does not exist it has the initial objects only."""
        if not directory.exists():
            await _begin(pki, directory)
        server = _server(pki, directory, *arguments)
        await server.open()
        health = loops.Periodic("health", server.storage_health.look, interval_s=HEALTH_S)
        running = (*server.informers(), health)
        following = [loops.spawn(one.run(), name=one.name) for one in running]
        context = server_context(
            pki.server.cert_file, pki.server.key_file, client_ca_file=pki.ca_file
        )
        http = HttpServer(server.app, host="127.0.0.1", port=port, ssl_context=context, name="test")
        return cls(server, http, pki, await http.start(), following)

    async def stop(self) -> None:
        for session in self._sessions.values():
            await session.close()
        await loops.cancel(*self.following)
        await self.server.wind_down()
        await self.http.stop(grace_s=1.0)
        await self.server.close()

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        user: str | None = "admin",
        content_type: str = "application/json",
        accept: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        data = body if isinstance(body, bytes | None) else orjson.dumps(body)
        sent = {"Accept": accept, **(headers or {})}
        if data is not None:
            sent.setdefault("Content-Type", content_type)
        payload = None if data is None else io.BytesIO(data)
        async with self.session(user).request(
            method, self.url(path), data=payload, headers=sent, allow_redirects=False
        ) as response:
            return Answer(response.status, response.headers.copy(), await response.read())

    def url(self, path: str) -> str:
        return f"https://127.0.0.1:{self.port}{path}"

    def session(self, user: str | None) -> aiohttp.ClientSession:
        if user not in self._sessions:
            self._sessions[user] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=self.context(user))
            )
        return self._sessions[user]

    def context(self, user: str | None) -> ssl.SSLContext:
        return client_context(self.pki.ca_file, self.pki.users[user] if user else None)

    async def turn(self, name: str) -> None:
        """One step of a loop of the server."""
        (loop,) = [one for one in self.server.loops() if one.name == name]
        assert isinstance(loop, loops.Periodic)
        task = loops.spawn(loop.run(), name=name)
        async with asyncio.timeout(TURN_S):
            while not loop.beats:
                assert not task.done(), task
                await asyncio.sleep(0.005)
        await loops.cancel(task)


@cache
def client_context(ca_file: str, pair: KeyPair | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca_file)
    if pair is not None:
        context.load_cert_chain(pair.cert_file, pair.key_file)
    return context


def pod(name: str = "p1", node: str | None = None, **metadata: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "busybox:1"}]}
    if node:
        spec["nodeName"] = node
    return {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, **metadata}, "spec": spec}


def node(name: str = "n1", **metadata: Any) -> dict[str, Any]:
    return {"kind": "Node", "apiVersion": "v1", "metadata": {"name": name, **metadata}}


def lease(name: str = "n1", **spec: Any) -> dict[str, Any]:
    return {
        "kind": "Lease",
        "apiVersion": "coordination.orch.io/v1",
        "metadata": {"name": name},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, **spec},
    }
