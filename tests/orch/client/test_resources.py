import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from orch.client import answers, json_api
from orch.client.json_api import JsonApi
from orch.client.kubeconfig import ClientConfig
from orch.client.resources import ApiClient
from orch.client.transport import Transport, TransportError
from orch.wire.errors import ApiError
from orch.wire.records.authentication import TokenRequestSpec
from orch.wire.records.configuration import Lease
from orch.wire.records.core import Node
from orch.wire.records.meta import ObjectMeta
from orch.wire.records.pods import Pod

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "alpha", "resourceVersion": "7", "uid": "u-1"},
    "spec": {"newerField": {"kept": True}},
}


INITIAL_END = "k8s.io/initial-events-end"
NODES = {"apiVersion": "v1", "kind": "NodeList", "metadata": {"resourceVersion": "42"}}


class Server:
    """Answers every request with what it is told and keeps what it was asked."""

    def __init__(self) -> None:
        self.status = 200
        self.answer: Any = NODE
        self.answers: list[Any] = []  # before it
        self.method = ""
        self.path = ""
        self.query: dict[str, str] = {}
        self.content_type = ""
        self.body: Any = None

    async def handle(self, request: web.Request) -> web.Response:
        raw = await request.read()
        self.method, self.path = request.method, request.raw_path.partition("?")[0]
        self.query = dict(request.query)
        self.content_type = request.headers.get("Content-Type", "")
        self.body = orjson.loads(raw) if raw else None
        if self.answers:
            self.answer = self.answers.pop(0)
        body = self.answer if isinstance(self.answer, bytes) else orjson.dumps(self.answer)
        return web.Response(status=self.status, body=body, content_type="application/json")


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
async def client(
    server: Server, aiohttp_server: Callable[[web.Application], Awaitable[TestServer]]
) -> AsyncIterator[ApiClient]:
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", server.handle)
    url = (await aiohttp_server(app)).make_url("/")
    transport = Transport(ClientConfig(server=str(url)[:-1]))
    yield ApiClient(transport)
    await transport.close()


def lease() -> Lease:
    return Lease(metadata=ObjectMeta(name="alpha", namespace="orch-node-lease"))


async def test_get_reads_one_object_with_what_it_does_not_know(
    client: ApiClient, server: Server
) -> None:
    node = await client.get(Node, "alpha")
    assert (server.method, server.path) == ("GET", "/api/v1/nodes/alpha")
    assert node.metadata.uid == "u-1"
    assert node.to_wire()["spec"] == {"newerField": {"kept": True}}


@pytest.mark.parametrize(
    ("call", "method", "path"),
    [
        (lambda c: c.get(Lease, "a", "ns"), "GET",
         "/apis/coordination.orch.io/v1/namespaces/ns/leases/a"),
        (lambda c: c.get(Node, "../a b"), "GET", "/api/v1/nodes/..%2Fa%20b"),
        (lambda c: c.update(Node(metadata=ObjectMeta(name="a")), subresource="status"), "PUT",
         "/api/v1/nodes/a/status"),
        (lambda c: c.create(Pod(metadata=ObjectMeta(name="a", namespace="x"))), "POST",
         "/api/v1/namespaces/x/pods"),
        (lambda c: c.create(Pod(metadata=ObjectMeta(name="a", namespace="x")),
                            subresource="binding"), "POST",
         "/api/v1/namespaces/x/pods/a/binding"),
        (lambda c: c.patch(Pod, "a", {}, namespace="x", subresource="status"), "PATCH",
         "/api/v1/namespaces/x/pods/a/status"),
        (lambda c: c.delete(Pod, "a", "x"), "DELETE", "/api/v1/namespaces/x/pods/a"),
    ],
)  # fmt: skip
async def test_paths_follow_the_table_of_kinds(
    call: Callable[[ApiClient], Awaitable[object]],
    method: str,
    path: str,
    client: ApiClient,
    server: Server,
) -> None:
    kinds = {"leases": ("coordination.orch.io/v1", "Lease"), "nodes": ("v1", "Node")}
    version, kind = next((kinds[one] for one in kinds if one in path), ("v1", "Pod"))
    namespace = path.partition("/namespaces/")[2].partition("/")[0]
    meta = {"name": "../a b" if ".." in path else "a", "namespace": namespace or None, "uid": "u"}
    server.answer = {"apiVersion": version, "kind": kind, "metadata": meta}
    await call(client)
    assert (server.method, server.path) == (method, path)


async def test_list_gives_records_and_the_revision(client: ApiClient, server: Server) -> None:
    server.answer = {**NODES, "items": [NODE]}
    result = await client.list(Node)
    assert [node.metadata.name for node in result.items] == ["alpha"]
    assert result.resource_version == "42"
    assert (server.path, server.query) == ("/api/v1/nodes", {})


async def test_list_passes_namespace_and_selectors(client: ApiClient, server: Server) -> None:
    server.answer = {**NODES, "kind": "PodList", "items": []}
    result = await client.list(
        Pod, "x", label_selector="a in (b,c)", field_selector="spec.nodeName=n",
        resource_version="0",
    )  # fmt: skip
    assert (list(result.items), result.resource_version) == ([], "42")
    assert server.path == "/api/v1/namespaces/x/pods"
    assert server.query == {
        "labelSelector": "a in (b,c)",
        "fieldSelector": "spec.nodeName=n",
        "resourceVersion": "0",
    }


async def test_create_sends_the_record_and_returns_what_was_stored(
    client: ApiClient, server: Server
) -> None:
    server.status, server.answer = (
        201,
        lease().to_wire() | {"metadata": {"name": "alpha", "resourceVersion": "1"}},
    )
    stored = await client.create(lease())
    assert server.content_type == "application/json"
    assert server.body == {
        "apiVersion": "coordination.orch.io/v1",
        "kind": "Lease",
        "metadata": {"name": "alpha", "namespace": "orch-node-lease"},
        "spec": {},
    }
    assert isinstance(stored, Lease)
    assert stored.metadata.resourceVersion == "1"


TOKEN = {"apiVersion": "authentication.orch.io/v1", "kind": "TokenRequest", "metadata": {}}


async def test_a_token_is_asked_for_at_its_account(client: ApiClient, server: Server) -> None:
    server.answer = {**TOKEN, "status": {"token": "t", "expirationTimestamp": "2026-01-01"}}
    wanted = TokenRequestSpec(audiences=["a"], expirationSeconds=600)
    answer = await client.create_token("bot", "x", wanted)
    assert answer.status and answer.status.token == "t"
    assert (server.method, server.path) == (
        "POST",
        "/api/v1/namespaces/x/serviceaccounts/bot/token",
    )
    assert server.body["spec"] == {"audiences": ["a"], "expirationSeconds": 600}
    for other in ({}, {**TOKEN, "kind": "TokenReview"}, {**TOKEN, "status": {"token": 5}}):
        server.answer = other
        with pytest.raises(TransportError, match="is not a TokenRequest: "):
            await client.create_token("bot", "x", wanted)


async def test_a_subresource_is_told_and_must_say_that_it_did(
    client: ApiClient, server: Server
) -> None:
    server.answer = {"kind": "Status", "apiVersion": "v1", "status": "Success"}
    record = {"kind": "Binding", "target": {"name": "n1"}}
    await client.act(Pod, "web", "binding", record, namespace="shop")
    assert (server.method, server.path) == ("POST", "/api/v1/namespaces/shop/pods/web/binding")
    assert server.body == record
    server.answer = NODE
    with pytest.raises(TransportError, match="did not say whether the binding was done"):
        await client.act(Pod, "web", "binding", record, namespace="shop")


async def test_a_patch_is_a_merge_patch(client: ApiClient, server: Server) -> None:
    await client.patch(Node, "alpha", {"spec": {"x": None}})
    assert server.content_type == "application/merge-patch+json"
    assert server.body == {"spec": {"x": None}}


async def test_delete_sends_its_options(client: ApiClient, server: Server) -> None:
    server.answer = {"kind": "Status", "status": "Success"}
    await client.delete(Pod, "a", "x", grace_period_s=0, uid="u-1")
    assert server.body == {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "u-1"},
    }
    await client.delete(Pod, "a", "x")
    assert server.body == {"kind": "DeleteOptions", "apiVersion": "v1"}


async def test_a_refusal_is_the_api_error_of_its_status(client: ApiClient, server: Server) -> None:
    server.status = 409
    server.answer = ApiError(409, "Conflict", "too late", name="alpha").to_status()
    with pytest.raises(ApiError) as caught:
        await client.update(lease())
    error = caught.value
    assert (error.code, error.reason, error.message, error.name) == (
        409, "Conflict", "too late", "alpha",
    )  # fmt: skip


@pytest.mark.parametrize("body", [b"404 page not found\n", b"", b"[]"])
async def test_a_refusal_without_a_status_keeps_its_code(
    body: bytes, client: ApiClient, server: Server
) -> None:
    server.status, server.answer = 404, body
    with pytest.raises(ApiError) as caught:
        await client.get(Node, "alpha")
    assert (caught.value.code, caught.value.reason) == (404, "NotFound")


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"<html>", "answered what is not JSON"),
        (b"[]", "answered what is not JSON: the answer is not an object"),
        ({}, "answered what is not a Node: its kind is None of None"),
        ({"kind": "Status", "apiVersion": "v1"}, "its kind is 'Status' of 'v1'"),
        ({"kind": "Node", "apiVersion": "v2"}, "its kind is 'Node' of 'v2'"),
        ({"kind": "Node", "apiVersion": "v1"}, "it has no metadata.name or no metadata.uid"),
        ({**NODE, "metadata": {"name": "alpha"}}, "it has no metadata.name or no metadata.uid"),
        ({**NODE, "metadata": {"name": "beta", "uid": "u"}}, "it is beta, not alpha"),
        (
            {**NODE, "metadata": {"name": "alpha", "namespace": "x", "uid": "u"}},
            "it is x/alpha, not alpha",
        ),
        (
            {**NODE, "metadata": {"name": 5}},
            r"answered what is not a Node: metadata\.name: .* string",
        ),
    ],
)
async def test_an_answer_that_makes_no_sense_is_no_answer(
    answer: object, text: str, client: ApiClient, server: Server
) -> None:
    server.answer = answer
    with pytest.raises(TransportError, match=text):
        await client.get(Node, "alpha")


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({}, "is not a list of /api/v1/nodes: its kind is ''"),
        ({"kind": "Status", "apiVersion": "v1", "items": []}, "its kind is 'Status'"),
        ({**NODES, "kind": "PodList", "items": []}, "its kind is 'PodList' of 'v1'"),
        ({**NODES, "apiVersion": "v2", "items": []}, "its kind is 'NodeList' of 'v2'"),
        (NODES, "it has no items"),
        ({**NODES, "items": {}}, "it has no items"),
        ({**NODES, "items": None}, "is not a list of Node"),
        ({**NODES, "metadata": {}, "items": []}, "it has no metadata.resourceVersion"),
        ({**NODES, "metadata": {"resourceVersion": ""}, "items": []}, "no metadata.resource"),
        ({**NODES, "items": [{**NODE, "kind": "Pod"}]}, "its kind is 'Pod' of 'v1'"),
        ({**NODES, "items": [{}]}, "it has no metadata.name or no metadata.uid"),
        ({**NODES, "items": [{**NODE, "metadata": {"uid": "u"}}]}, "it has no metadata.name"),
    ],
)
async def test_only_a_list_that_says_to_be_one_is_believed(
    answer: object, text: str, client: ApiClient, server: Server
) -> None:
    server.answer = answer
    with pytest.raises(TransportError, match=text):
        await client.list(Node)


async def test_a_list_of_a_defined_kind_has_the_kind_that_its_definition_names(
    client: ApiClient, server: Server
) -> None:
    page = {"apiVersion": "example.com/v1", "kind": "Widgetry", "metadata": {}, "items": [{}]}
    server.answers = [{**page, "metadata": {"continue": "a"}}, page]
    whole = await JsonApi(client.transport).pages("/apis/example.com/v1/widgets", {})
    assert (whole["kind"], whole["items"]) == ("Widgetry", [{}, {}])


async def test_a_list_in_pages_is_read_to_its_end_and_not_for_ever(
    client: ApiClient, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def page(more: str) -> dict[str, Any]:
        return {**NODES, "metadata": {"resourceVersion": "42", "continue": more}, "items": [NODE]}

    server.answers = [page("a"), page("b"), page("")]
    assert len((await client.list(Node)).items) == 3
    monkeypatch.setattr(json_api, "MAX_PAGES", 10)
    server.answers = [page(str(number)) for number in range(20)]
    with pytest.raises(TransportError, match="a list of /api/v1/nodes of more than 10 pages"):
        await client.list(Node)


def event(kind: str, obj: object) -> bytes:
    return orjson.dumps({"type": kind, "object": obj}) + b"\n"


async def test_watch_gives_events_until_the_server_ends_it(
    client: ApiClient, server: Server
) -> None:
    server.answer = b"".join(
        [
            event("ADDED", NODE),
            event("BOOKMARK", {**NODE, "metadata": {"resourceVersion": "9"}}),
            b"\n",
            event("DELETED", NODE),
        ]
    )
    events = [e async for e in client.watch(Node, resource_version="5", field_selector="a=b")]
    assert [(e.type, e.object.metadata.resourceVersion) for e in events] == [
        ("ADDED", "7"),
        ("BOOKMARK", "9"),
        ("DELETED", "7"),
    ]
    assert server.path == "/api/v1/nodes"
    assert server.query == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "5",
        "fieldSelector": "a=b",
        "timeoutSeconds": "300",
    }


BOOKMARK = {**NODE, "metadata": {"resourceVersion": "9"}}
END = {**NODE, "metadata": {**BOOKMARK["metadata"], "annotations": {INITIAL_END: "true"}}}
OTHER = {**NODE, "metadata": {"name": "beta", "uid": "u-2", "resourceVersion": "8"}}


async def test_a_list_that_is_too_large_for_an_answer_is_read_one_by_one(
    client: ApiClient, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pods of a whole cluster may have more than is read at once, and be what it is judged by."""
    monkeypatch.setattr(answers, "MAX_BYTES", 1000)
    whole = {**NODES, "items": [{**NODE, "spec": {"x": "y" * 2000}}]}
    large = event("ADDED", {**NODE, "spec": {"x": "y" * 2000}})
    gone = event("ADDED", OTHER) + event("DELETED", OTHER)
    server.answers = [whole, large + event("BOOKMARK", BOOKMARK) + gone + event("BOOKMARK", END)]
    listed = await client.list(Node, field_selector="a=b")
    assert [item.metadata.name for item in listed.items] == ["alpha"]
    assert listed.resource_version == "9"
    assert server.query == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "fieldSelector": "a=b",
    }
    server.answers = [whole, large]
    with pytest.raises(TransportError, match="did not end the list of /api/v1/nodes"):
        await client.list(Node)


async def test_an_error_event_is_raised(client: ApiClient, server: Server) -> None:
    status = ApiError(410, "Expired", "too old resource version: 1 (5)").to_status()
    server.answer = event("ADDED", NODE) + event("ERROR", status)
    seen = []
    with pytest.raises(ApiError, match="too old resource version") as caught:
        async for e in client.watch(Node, resource_version="1"):
            seen.append(e.type)  # noqa: PERF401 - what came before the error counts
    assert (seen, caught.value.code) == (["ADDED"], 410)


async def test_a_refused_watch_is_raised(client: ApiClient, server: Server) -> None:
    server.status = 403
    server.answer = ApiError(403, "Forbidden", "no").to_status()
    with pytest.raises(ApiError, match="no"):
        await anext(client.watch(Node, resource_version="1"))


@pytest.mark.parametrize(
    "line",
    [
        b"junk\n", b'{"type":"ADDED"}\n', b"[]\n", b'{"type":"ADDED","object":{}}\n',
        b'{"type":"ADDED","object":[]}\n', b'{"type":"GROWN","object":{"kind":"Node"}}\n',
        b'{"type":[],"object":{"kind":"Node"}}\n',
    ],
)  # fmt: skip
async def test_a_line_that_makes_no_sense_ends_the_watch(
    line: bytes, client: ApiClient, server: Server
) -> None:
    server.answer = line
    with pytest.raises(TransportError, match="is not a watch event"):
        await anext(client.watch(Node, resource_version="1"))


@pytest.mark.parametrize(
    ("obj", "text"),
    [
        ({**NODE, "kind": "Pod"}, "its kind is 'Pod' of 'v1'"),
        ({**NODE, "apiVersion": "x"}, "its kind is 'Node' of 'x'"),
        ({**NODE, "metadata": {"name": "alpha"}}, "it has no metadata.resourceVersion"),
        (
            {**NODE, "metadata": {"name": "alpha", "resourceVersion": "9"}},
            "it has no metadata.name or no metadata.uid",
        ),
    ],
)
async def test_only_events_about_what_is_watched_are_believed(
    obj: object, text: str, client: ApiClient, server: Server
) -> None:
    server.answer = event("ADDED", obj)
    with pytest.raises(TransportError, match=f"is not a watch event of Node: {text}"):
        await anext(client.watch(Node, resource_version="1"))


async def test_closing_a_watch_closes_its_connection(
    aiohttp_server: Callable[[web.Application], Awaitable[TestServer]],
) -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(event("ADDED", NODE))
        try:
            while request.transport is not None:
                await asyncio.sleep(0.001)
        finally:
            closed.set()
        return response

    closed = asyncio.Event()
    app = web.Application()
    app.router.add_get("/api/v1/nodes", handle)
    transport = Transport(ClientConfig(server=str((await aiohttp_server(app)).make_url("/"))[:-1]))
    async with aclosing(ApiClient(transport).watch(Node, resource_version="1")) as events:
        await anext(events)
    async with asyncio.timeout(30):
        await closed.wait()
    await transport.close()
