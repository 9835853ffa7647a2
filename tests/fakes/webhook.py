"""An HTTPS server with a certificate of the test's authority, asked by an API server.

It answers each review by a function of its request, and remembers what it was asked. `raw` answers
take the place of whole HTTP answers, for servers that do not keep to the protocol.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from orch.client.kubeconfig import ClientConfig, write_kubeconfig
from orch.component.tls import server_context
from tests.orch.server.harness import Pki

REVIEW = "admission.k8s.io/v1"
Record = dict[str, Any]
Reply = Callable[[Record], Record]
Raw = Callable[[web.Request, Record], Awaitable[web.StreamResponse]]
ALLOW: Record = {"allowed": True}


def patch(*operations: Record, **more: Any) -> Record:
    """A response that changes the object."""
    text = base64.b64encode(orjson.dumps(operations)).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": text, **more}


def label(name: str, value: str = "yes") -> Record:
    """A response that sets a label, of an object that has some."""
    return patch({"op": "add", "path": f"/metadata/labels/{name}", "value": value})


@dataclass
class FakeWebhook:
    """`asked` are the requests by path, in order; `port` is where it listens."""

    pki: Pki
    replies: dict[str, Reply] = field(default_factory=dict)
    raw: dict[str, Raw] = field(default_factory=dict)
    asked: list[tuple[str, Record]] = field(default_factory=list)
    port: int = 0
    at_once: int = 0
    most_at_once: int = 0

    def __call__(self, path: str) -> list[Record]:
        """What was asked at a path."""
        return [request for at, request in self.asked if at == path]

    def client_config(self, path: str) -> Record:
        bundle = base64.b64encode(Path(self.pki.ca_file).read_bytes()).decode()
        return {"url": f"https://127.0.0.1:{self.port}{path}", "caBundle": bundle}

    def configuration(self, kind: str, name: str, *hooks: Record) -> Record:
        """Webhooks of that kind (Mutating or Validating), which may leave out most fields; the
        `path` of each is where it asks, its name begins with it.
        """
        return {
            "kind": f"{kind}WebhookConfiguration",
            "apiVersion": "admissionregistration.orch.io/v1",
            "metadata": {"name": name},
            "webhooks": [self._hook(hook) for hook in hooks],
        }

    def _hook(self, hook: Mapping[str, Any]) -> Record:
        own = {key: value for key, value in hook.items() if key != "path"}
        rule = {
            "operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"],
            "resources": ["configmaps"],
        }  # fmt: skip
        return {
            "name": f"{hook['path'].strip('/')}.webhooks.example.com",
            "clientConfig": self.client_config(hook["path"]),
            "rules": [rule],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            **own,
        }

    async def answer(self, request: web.Request) -> web.StreamResponse:
        review = orjson.loads(await request.read())
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            asked = review["request"]
            self.asked.append((request.path, asked))
            if request.path in self.raw:
                return await self.raw[request.path](request, review)
            response = self.replies.get(request.path, lambda _request: ALLOW)(asked)
        finally:
            self.at_once -= 1
        return web.json_response(answered(review, **response))


def answered(review: Record, **response: Any) -> Record:
    """The answer to a review, as it should be."""
    return {
        "kind": "AdmissionReview",
        "apiVersion": REVIEW,
        "response": {"uid": review["request"]["uid"], **response},
    }


@asynccontextmanager
async def serving(pki: Pki, handler: Any) -> AsyncIterator[int]:
    """An HTTPS server on a free port, which is given."""
    app = web.Application(client_max_size=16 * 2**20)
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.0)
    await runner.setup()
    context = await asyncio.to_thread(
        lambda: server_context(pki.server.cert_file, pki.server.key_file, client_ca_file=None)
    )
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@dataclass
class FakeReviewer:
    """Answers SubjectAccessReviews or TokenReviews by a function of their spec; `asked` are the
    specs. `whole` changes the whole answer; `status` is its HTTP status.
    """

    pki: Pki
    judge: Reply = field(default=lambda _spec: {"allowed": False})
    whole: Callable[[Record], Any] = field(default=lambda answer: answer)
    status: int = 200
    asked: list[Record] = field(default_factory=list)
    kinds: set[tuple[str, str]] = field(default_factory=set)
    gate: asyncio.Event | None = None
    port: int = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        review = orjson.loads(await request.read())
        self.asked.append(review["spec"])
        self.kinds.add((review["apiVersion"], review["kind"]))
        if self.gate is not None:
            await self.gate.wait()
        answer = self.whole({**review, "status": self.judge(review["spec"])})
        return web.Response(
            body=orjson.dumps(answer), status=self.status, content_type="application/json"
        )

    def kubeconfig(self, path: Path) -> Path:
        """The file that tells an API server of it."""
        server = f"https://127.0.0.1:{self.port}/review"
        write_kubeconfig(str(path), ClientConfig(server=server, ca_file=self.pki.ca_file))
        return path
