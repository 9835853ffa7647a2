"""`pods/exec`, `pods/attach` and `pods/portforward`, with an agent that carries bytes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from orch.component.streams.upgrade import Bounds
from orch.server.nodes import agent_streams
from orch.wire.names import RBAC_GROUP
from tests.fakes.streaming import StreamingServer
from tests.orch.server.harness import MERGE, NODES, PODS, Api, node, pod
from tests.orch.server.nodes.streamed import asked, placed, until

EXEC = f"{PODS}/p/exec?container=c&command=sh&command=-c&command=a%20b&stdin=true&stdout=1"
RBAC = f"/apis/{RBAC_GROUP}/v1/namespaces/default"


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        (EXEC, "/exec/default/p/c?input=1&output=1&command=sh&command=-c&command=a+b"),
        (
            f"{PODS}/p/exec?container=d&command=x&stdin=true&stdout=true&stderr=true&tty=true",
            "/exec/default/p/d?input=1&output=1&tty=1&command=x",
        ),
        (f"{PODS}/p/attach?container=c&stderr=true", "/attach/default/p/c?error=1"),
        (f"{PODS}/p/portforward", "/portForward/default/p"),
        (f"{PODS}/p/portforward?ports=80&ports=81", "/portForward/default/p?port=80&port=81"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_bytes_are_carried_between_client_and_agent(
    api: Api, agent: StreamingServer, method: str, path: str, wanted: str
) -> None:
    async with asked(api, f"{method} {path}") as client:
        assert client.status == 101
        assert "X-Request-Id: " in client.head
        assert await client.say(bytes(200_000)) == bytes(200_000)
    (head,) = agent.heads
    lines = head.decode().split("\r\n")
    assert lines[0] == f"{method} {wanted} HTTP/1.1"
    assert "X-Stream-Protocol-Version: v4" in lines
    await until(lambda: agent.open == 0)


@pytest.mark.parametrize(
    ("path", "code", "reason", "text"),
    [
        (f"{PODS}/gone/exec?command=a&stdout=1", 404, "NotFound", 'pods "gone" not found'),
        (f"{PODS}/p/exec?command=a&stdout=1", 400, "BadRequest",
         "a container name must be specified for pod p, choose one of: [c d]"),
        (f"{PODS}/p/exec?container=x&command=a&stdout=1", 400, "BadRequest",
         "container x is not valid for pod p"),
        (f"{PODS}/p/exec?container=c&command=a&stdin=false", 400, "BadRequest",
         "you must specify at least 1 of stdin, stdout, stderr"),
        (f"{PODS}/p/exec?container=c&stdout=1", 400, "BadRequest", "a command is required"),
        (f"{PODS}/p/attach?container=c&tty=1", 400, "BadRequest", "at least 1 of stdin"),
        (f"{PODS}/p/portforward?ports=0", 400, "BadRequest", "ports: '0' is not a number"),
        (f"{PODS}/unbound/exec?container=c&command=a&stdout=1", 400, "BadRequest",
         "pod unbound does not have a host assigned"),
    ],
)  # fmt: skip
async def test_a_refusal_is_a_status_that_says_why(
    api: Api, agent: StreamingServer, path: str, code: int, reason: str, text: str
) -> None:
    async with asked(api, f"POST {path}") as client:
        assert client.status == code
        body = await client.body()
    assert '"kind":"Status"' in body and f'"reason":"{reason}"' in body
    assert text.replace('"', '\\"') in body
    assert agent.heads == []


@pytest.mark.parametrize(
    ("answer", "code", "text"),
    [
        (b"HTTP/1.1 404 N\r\nContent-Length: 5\r\n\r\nno c\n", 404, '"message":"no c"'),
        (b"HTTP/1.1 429 T\r\nContent-Length: 4\r\n\r\nmany", 429, '"reason":"TooManyRequests"'),
        (
            b"HTTP/1.1 403 F\r\nContent-Length: 2\r\n\r\nno",
            500,
            "the node's agent answered 403: no",
        ),
        (
            b"HTTP/1.1 200 O\r\nContent-Length: 2\r\n\r\nok",
            500,
            "the node's agent answered 200: ok",
        ),
        (b"HTTP/1.1 101 S\r\nUpgrade: h2\r\n\r\n", 503, "it upgraded to 'h2'"),
        (b"", 503, "it closed the connection without an answer"),
    ],
)
async def test_what_the_agent_refuses_becomes_a_status(
    api: Api, agent: StreamingServer, answer: bytes, code: int, text: str
) -> None:
    async def nothing(_: Any, __: Any) -> None:
        return None

    agent.answer, agent.talk = answer, nothing
    async with asked(api, f"POST {EXEC}") as client:
        assert client.status == code
        assert text in await client.body()


async def test_an_agent_that_is_away_is_named(api: Api, unused_tcp_port: int) -> None:
    await placed(api, unused_tcp_port)
    async with asked(api, f"POST {EXEC}") as client:
        assert client.status == 503
        assert 'error dialing backend: the agent of node \\"n1\\": Connect' in await client.body()


async def test_an_agent_with_another_nodes_certificate_is_not_believed(
    api: Api, agent: StreamingServer
) -> None:
    body = node("n2")
    await api.call("POST", NODES, body)
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"nodeagentEndpoint": {"Port": agent.port}},
    }
    await api.call("PATCH", f"{NODES}/n2/status", {"status": status}, content_type=MERGE)
    assert (await api.call("POST", PODS, pod("elsewhere", "n2"))).status == 201
    async with asked(api, f"POST {PODS}/elsewhere/attach?stdout=1") as client:
        assert client.status == 503
        assert "certificate" in await client.body()
    assert agent.heads == []


@pytest.mark.parametrize("part", ["exec", "attach", "portforward"])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_the_right_is_create_whatever_the_method(
    api: Api, agent: StreamingServer, part: str, method: str
) -> None:
    role = {"metadata": {"name": "r"}, "rules": [
        {"verbs": ["get", "list", "watch", "update", "patch"], "apiGroups": [""],
         "resources": [f"pods/{part}", "pods", "nodes/proxy"]}]}  # fmt: skip
    subject = {"kind": "User", "apiGroup": RBAC_GROUP, "name": "stranger"}
    binding = {"metadata": {"name": "r"}, "subjects": [subject],
               "roleRef": {"apiGroup": RBAC_GROUP, "kind": "Role", "name": "r"}}  # fmt: skip
    assert (await api.call("POST", f"{RBAC}/roles", role)).status == 201
    assert (await api.call("POST", f"{RBAC}/rolebindings", binding)).status == 201
    path = EXEC.replace("/exec", f"/{part}")
    async with asked(api, f"{method} {path}", "stranger") as client:
        assert client.status == 403
        assert f'cannot create resource \\"pods/{part}\\"' in await client.body()
    role["rules"][0]["verbs"] = ["create"]  # type: ignore[index]
    assert (await api.call("PUT", f"{RBAC}/roles/r", role)).status == 200
    async with asked(api, f"{method} {path}", "stranger") as client:
        assert client.status == 101
    assert len(agent.heads) == 1


async def test_it_is_counted_as_long_running_and_answered_with_101(api: Api) -> None:
    async with asked(api, f"POST {EXEC}") as client:
        assert client.status == 101
        page = (await api.call("GET", "/metrics", accept="*/*")).text
        running = [line for line in page.splitlines() if "longrunning" in line and "exec" in line]
        assert [line.rpartition(" ")[2] for line in running] == ["1.0"]
        assert api.server.flows.in_flight == {"readOnly": 0, "mutating": 0}  # no seat is held
    for _ in range(200):
        page = (await api.call("GET", "/metrics", accept="*/*")).text
        counted = [line for line in page.splitlines() if 'code="101"' in line]
        if counted:
            break
        await asyncio.sleep(0.05)
    assert any('subresource="exec"' in line and 'verb="' in line for line in counted)


async def test_streams_of_a_user_are_bounded(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api.server._streams._streams, "bounds", Bounds(1, 2))
    assert agent_streams.BOUNDS.of_user < agent_streams.BOUNDS.in_all
    async with asked(api, f"POST {EXEC}"), asked(api, f"POST {EXEC}") as second:
        assert second.status == 429
        assert 'too many streams of \\"admin\\" (1) are open' in await second.body()


async def test_streams_end_when_the_server_stops(api: Api, agent: StreamingServer) -> None:
    async with asked(api, f"POST {EXEC}") as client:
        await api.server.wind_down()
        async with asyncio.timeout(10):
            assert await client.reader.read(-1) == b""
    await until(lambda: agent.open == 0)


async def test_without_an_upgrade_there_is_nothing(api: Api, agent: StreamingServer) -> None:
    answer = await api.call("POST", EXEC)
    assert answer.status == 400
    assert answer.json["message"].startswith("an upgrade is required")
    assert (await api.call("PUT", EXEC)).status == 405
    assert (await api.call("GET", f"{PODS}/p/exec/more")).status == 404
    assert agent.heads == []
