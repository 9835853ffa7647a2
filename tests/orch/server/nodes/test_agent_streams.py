"""Upgrades through `nodes/{node}/proxy/…`: who may, what passes, and how streams are shared out."""

from __future__ import annotations

from typing import Any

import pytest

from orch.wire.names import RBAC_GROUP
from tests.fakes.streaming import StreamingServer
from tests.orch.server.harness import NODES, Api
from tests.orch.server.nodes.streamed import asked, placed, until

PROXY = f"{NODES}/n1/proxy"
EXEC = "/exec/default/p/c?command=a%20b&output=1"
RBAC = f"/apis/{RBAC_GROUP}/v1"


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        (f"{PROXY}{EXEC}", EXEC),
        (f"{NODES}/n1:/proxy/portForward/default/p", "/portForward/default/p"),
        (f"{PROXY}/attach%2Fdefault%2Fp%2Fc?error=1", "/attach/default/p/c?error=1"),
    ],
)
async def test_an_upgrade_is_carried_to_the_agent(
    api: Api, agent: StreamingServer, method: str, path: str, wanted: str
) -> None:
    async with asked(api, f"{method} {path}") as client:
        assert client.status == 101
        assert await client.say(bytes(200_000)) == bytes(200_000)
    (head,) = agent.heads
    lines = head.decode().split("\r\n")
    assert lines[0] == f"{method} {wanted} HTTP/1.1"
    assert not any(line.lower().startswith(("authorization", "cookie")) for line in lines)
    await until(lambda: agent.open == 0)


@pytest.mark.parametrize(
    ("first", "code", "text"),
    [
        (f"GET {PROXY}/metrics", 400, "are proxied to /exec, /attach and /portForward"),
        (f"GET {PROXY}", 400, "are proxied to /exec"),
        (f"PUT {PROXY}{EXEC}", 400, "are proxied to /exec"),
        (f"POST {PROXY}{EXEC}&dryRun=All", 400, "dryRun"),
        (f"POST {PROXY}/exec/../pods", 400, "has a segment . or .."),
        (f"POST {PROXY}/exec/é", 400, "Bad Request"),
        (f"POST {NODES}/gone/proxy{EXEC}", 404, 'nodes \\"gone\\" not found'),
        (f"POST {NODES}/n1:1/proxy{EXEC}", 503, "error dialing backend"),
    ],
)
async def test_what_is_not_carried_says_why(
    api: Api, agent: StreamingServer, first: str, code: int, text: str
) -> None:
    async with asked(api, first) as client:
        assert client.status == code
        assert text in await client.body()
    assert agent.heads == []


@pytest.mark.parametrize(
    "path", ["/exec/default/p/c", "//exec/x", "/%65xec/default/p/c", "/attach%2Fx", "/metrics"]
)
@pytest.mark.parametrize("verb", ["get", "create"])
async def test_who_may_read_through_the_proxy_opens_no_stream(
    api: Api, agent: StreamingServer, verb: str, path: str
) -> None:
    verbs = ["get", "list", "watch", "update", "patch", "delete"] if verb == "get" else ["create"]
    rule = {"verbs": verbs, "apiGroups": [""], "resources": ["nodes/proxy"]}
    role = {"metadata": {"name": "r"}, "rules": [rule]}
    binding = {"metadata": {"name": "r"},
               "subjects": [{"kind": "User", "apiGroup": RBAC_GROUP, "name": "stranger"}],
               "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": "r"}}  # fmt: skip
    for kind, body in (("clusterroles", role), ("clusterrolebindings", binding)):
        assert (await api.call("POST", f"{RBAC}/{kind}", body)).status == 201
    async with asked(api, f"GET {PROXY}{path}", "stranger") as client:
        allowed = verb == "create" and path != "/metrics"
        assert client.status == (
            101 if allowed else 400 if path == "/metrics" and verb == "get" else 403
        )
    assert bool(agent.heads) == allowed


@pytest.mark.parametrize(
    ("answer", "code", "text"),
    [
        (b"HTTP/1.1 403 F\r\nContent-Length: 2\r\n\r\nno", 403, "no"),
        (b"HTTP/1.1 200 O\r\nContent-Length: 2\r\n\r\nok", 503, "answered 200 to an upgrade"),
        (b"HTTP/1.1 101 S\r\nUpgrade: h2\r\n\r\n", 503, "it upgraded to 'h2'"),
    ],
)
async def test_the_agents_refusal_is_relayed(
    api: Api, agent: StreamingServer, answer: bytes, code: int, text: str
) -> None:
    async def nothing(_: Any, __: Any) -> None:
        return None

    agent.answer, agent.talk = answer, nothing
    async with asked(api, f"POST {PROXY}{EXEC}") as client:
        assert client.status == code
        assert text in await client.body()


async def test_the_next_stream_finds_a_connection_and_a_restarted_agent_is_found(
    api: Api, agent: StreamingServer
) -> None:
    for number in range(3):
        async with asked(api, f"POST {PROXY}{EXEC}") as client:
            assert client.status == 101
        await until(lambda: agent.accepted == number + 2)  # noqa: B023 - waited for here
    await agent.stop()
    again = StreamingServer()
    await again.start(agent.context)
    await placed(api, again.port)
    async with asked(api, f"POST {PROXY}{EXEC}") as client:
        assert client.status == 101
    assert (len(agent.heads), len(again.heads)) == (3, 1)
    await until(lambda: (again.open, again.accepted) == (0, 2))
    await again.stop()
