"""The audit log of a running server: who did what, how much of it, and what is never in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from orch.server import turns
from tests.orch.server.harness import JSON_PATCH, NODES, PODS, Api, Pki, node, pod

SECRETS = "/api/v1/namespaces/default/secrets"
POLICY = """
apiVersion: audit.orch.io/v1
kind: Policy
rules:
- level: None
  nonResourceURLs: [/healthz*, /metrics]
- level: Metadata
  resources: [{group: "", resources: [secrets]}]
- level: RequestResponse
  resources:
  - {group: "", resources: [pods, serviceaccounts/token]}
  - {group: authentication.orch.io, resources: [tokenreviews]}
  omitStages: [RequestReceived]
- level: Request
  verbs: [create, patch]
  omitStages: [RequestReceived]
- level: Metadata
"""
Read = Callable[[], list[dict[str, Any]]]


@pytest.fixture
async def audited(server_pki: Pki, tmp_path: Path) -> AsyncIterator[tuple[Api, Read]]:
    """A server with POLICY; `read` stops it and gives what it wrote."""
    (tmp_path / "policy").write_text(POLICY)
    path = tmp_path / "audit.log"
    api = await Api.start(
        server_pki, tmp_path / "data",
        f"--audit-policy-file={tmp_path / 'policy'}", f"--audit-log-path={path}",
    )  # fmt: skip

    def read() -> list[dict[str, Any]]:
        *whole, _partial = path.read_bytes().split(b"\n")  # another thread is writing
        return [orjson.loads(line) for line in whole]

    yield api, read
    await api.stop()


async def events(audited: tuple[Api, Read], count: int) -> list[dict[str, Any]]:
    """Once there are that many: they are written after their requests were answered."""
    async with asyncio.timeout(30):
        while len(found := audited[1]()) < count:
            await asyncio.sleep(0.01)
    return found


async def test_a_request_is_written_down_with_who_what_and_how_it_ended(audited) -> None:
    api, _ = audited
    headers = {"Audit-ID": "mine", "User-Agent": "test/1"}
    answer = await api.call("GET", f"{NODES}/n1?pretty=0", headers=headers)
    assert (answer.status, answer.headers["Audit-Id"]) == (404, "mine")
    received, complete = await events(audited, 2)
    assert (received["stage"], complete["stage"]) == ("RequestReceived", "ResponseComplete")
    assert complete | {"requestReceivedTimestamp": "", "stageTimestamp": ""} == {
        "kind": "Event",
        "apiVersion": "audit.orch.io/v1",
        "level": "Metadata",
        "auditID": "mine",
        "stage": "ResponseComplete",
        "requestURI": f"{NODES}/n1?pretty=0",
        "verb": "get",
        "user": {"username": "admin", "groups": ["system:masters", "system:authenticated"]},
        "sourceIPs": ["127.0.0.1"],
        "userAgent": "test/1",
        "objectRef": {"resource": "nodes", "name": "n1", "apiVersion": "v1"},
        "responseStatus": {"code": 404, "status": "Failure", "reason": "NotFound"},
        "requestReceivedTimestamp": "",
        "stageTimestamp": "",
        "annotations": {
            "authorization.orch.io/decision": "allow",
            "authorization.orch.io/reason": complete["annotations"]["authorization.orch.io/reason"],
        },
    }
    assert received["requestReceivedTimestamp"] <= complete["stageTimestamp"]
    assert "responseStatus" not in received


async def test_a_secret_leaves_no_trace_of_what_it_holds(audited) -> None:
    api, _ = audited
    canary = "Y2FuYXJ5LXZhbHVl"
    secret = {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "s"}}
    assert (await api.call("POST", SECRETS, secret | {"data": {"k": canary}})).status == 201
    assert (await api.call("PUT", f"{SECRETS}/s", secret | {"data": {"k": canary}})).status == 200
    assert (await api.call("GET", SECRETS)).status == 200
    wrong = secret | {"data": {"k": "not base64: canary-value"}, "type": "canary-value"}
    assert (await api.call("POST", SECRETS, wrong)).status in (400, 422)
    found = await events(audited, 8)
    assert {event["level"] for event in found} == {"Metadata"}
    text = orjson.dumps(found).decode()
    assert "canary" not in text
    assert canary not in text


TOKEN_REVIEWS = "/apis/authentication.orch.io/v1/tokenreviews"


async def test_no_level_writes_down_a_token(audited) -> None:
    api, _ = audited
    canary = "canary-token"
    review = {"spec": {"token": canary, "audiences": ["a"]}}
    answers = [
        await api.call("POST", TOKEN_REVIEWS, sent)
        for sent in (
            review,
            {**review, "metadata": {"annotations": {"last-applied": canary}}},
            {"spec": canary},
            [canary],
            {"spec": {"token": [canary]}},
        )
    ]
    assert [answer.status for answer in answers] == [201, 422, 400, 400, 400]
    found = await events(audited, len(answers))
    assert canary not in orjson.dumps(found).decode()
    assert found[0]["requestObject"] == {"spec": {"audiences": ["a"]}}
    assert found[0]["responseObject"]["status"]["error"]


async def test_an_issued_token_is_in_its_answer_alone(server_pki: Pki, tmp_path: Path) -> None:
    (tmp_path / "policy").write_text(POLICY)
    path = tmp_path / "audit.log"
    api = await Api.start(
        server_pki, tmp_path / "data",
        f"--service-account-signing-key-file={server_pki.server.key_file}",
        f"--audit-policy-file={tmp_path / 'policy'}", f"--audit-log-path={path}",
    )  # fmt: skip
    account = "/api/v1/namespaces/default/serviceaccounts"
    await api.call("POST", account, {"metadata": {"name": "bot"}})
    issued = await api.call("POST", f"{account}/bot/token", {})
    await api.stop()
    token = issued.json["status"]["token"]
    assert token.count(".") == 2
    written = path.read_text()
    assert "expirationTimestamp" in written
    assert not any(part in written for part in token.split("."))


async def test_each_level_has_the_objects_it_says(audited) -> None:
    api, _ = audited
    assert (await api.call("POST", PODS, pod())).status == 201
    assert (await api.call("POST", NODES, node("n1"))).status == 201
    patch = [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]
    answer = await api.call("PATCH", f"{NODES}/n1", patch, content_type=JSON_PATCH)
    assert answer.status == 200
    whole, requested, patched = await events(audited, 3)
    assert whole["requestObject"] == pod()
    assert whole["responseObject"]["metadata"]["uid"]
    assert requested["requestObject"] == node("n1")
    assert patched["requestObject"] == {"patch": patch}
    assert "responseObject" not in requested | patched


async def test_of_an_answer_that_is_too_large_the_event_says_so(audited) -> None:
    api, _ = audited
    for name in ("a", "b", "c", "d"):
        large = {**pod(name), "metadata": {"name": name, "annotations": {"a": "x" * 200_000}}}
        large["spec"]["containers"][0]["args"] = ["x" * 600_000]
        assert (await api.call("POST", PODS, large)).status == 201
    for path in (PODS, f"{PODS}?fieldSelector=metadata.name%3Da"):
        assert (await api.call("GET", path)).status == 200
    *_, all_of_them, one = await events(audited, 6)
    assert "responseObject" not in all_of_them
    assert all_of_them["annotations"]["audit.orch.io/truncated"] == "true"
    assert one["responseObject"]["items"][0]["metadata"]["name"] == "a"


async def test_what_has_more_values_than_any_object_is_not_written_down(audited) -> None:
    """Whoever was refused for it had it read again, in one go."""
    api, _ = audited
    lists = b'{"spec":{"x":[0' + b",[]" * 100_000 + b"]}}"
    reviews = "/apis/authorization.orch.io/v1/selfsubjectaccessreviews"
    assert (await api.call("POST", reviews, lists)).status == 413
    (event,) = await events(audited, 1)
    assert event["responseStatus"]["code"] == 413
    assert "requestObject" not in event


async def test_who_leaves_while_an_answer_is_written_down_is_written_down(
    audited, monkeypatch
) -> None:
    api, _ = audited
    at_it, never = asyncio.Event(), asyncio.Event()

    async def waits(*_: object) -> bytes:
        at_it.set()
        await never.wait()
        return b""

    monkeypatch.setattr(turns, "beginning", waits)
    _, writer = await asyncio.open_connection("127.0.0.1", api.port, ssl=api.context("admin"))
    writer.write(f"GET {PODS} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    async with asyncio.timeout(30):
        await at_it.wait()
    writer.transport.abort()
    (event,) = await events(audited, 1)
    assert (event["stage"], event["responseStatus"]["code"]) == ("ResponseComplete", 200)


async def test_what_was_said_in_yaml_is_written_down_as_what_it_means(audited) -> None:
    api, _ = audited
    text, yaml = orjson.dumps(pod()).replace(b'"c"', b"c"), "application/yaml"
    created = await api.call("POST", PODS, text, content_type=yaml, accept=yaml)
    assert (created.status, created.headers["Content-Type"]) == (201, yaml)
    (event,) = await events(audited, 1)
    assert event["requestObject"] == pod()
    assert event["responseObject"]["metadata"]["uid"]


async def test_a_client_whose_name_is_no_text_is_written_down(audited) -> None:
    api, _ = audited
    reader, writer = await asyncio.open_connection("127.0.0.1", api.port, ssl=api.context("admin"))
    writer.write(b"GET /api HTTP/1.1\r\nHost: x\r\nUser-Agent: a\xff\r\n\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
    writer.close()
    for event in await events(audited, 2):
        assert event["userAgent"] == r"'a\udcff'"


async def test_of_a_long_name_of_a_client_the_beginning_is_written_down(audited) -> None:
    """pkg/audit/request.go: 8 kB of it in each event rotated the log for whoever has no rights."""
    api, _ = audited
    agent = {"User-Agent": "a" * 1024 + "b" * 7000}
    assert (await api.call("GET", "/api", headers=agent)).status == 200
    for event in await events(audited, 2):
        assert event["userAgent"] == "a" * 1024 + "...TRUNCATED"


@pytest.mark.parametrize(
    "credential", ["Bearer \u00fc", "Bearer a.b.\u00fc", "Basic \u00fc", "\u00fc"]
)
async def test_a_credential_that_is_no_text_is_written_down(audited, credential: str) -> None:
    headers = {"Authorization": credential}
    assert (await audited[0].call("GET", "/api", user=None, headers=headers)).status == 401
    event = (await events(audited, 2))[-1]
    assert (event["responseStatus"]["code"], event["user"]) == (401, {})


async def test_who_is_refused_is_written_down_too(audited) -> None:
    api, _ = audited
    assert (await api.call("GET", NODES, user=None)).status == 401
    bad = {"Authorization": "Bearer canary-token"}
    assert (await api.call("GET", NODES, user=None, headers=bad)).status == 401
    assert (await api.call("DELETE", f"{NODES}/n1", user="stranger")).status == 403
    assert (
        await api.call("GET", NODES, user="n1", headers={"Impersonate-User": "x"})
    ).status == 403
    found = [e for e in await events(audited, 8) if e["stage"] == "ResponseComplete"]
    assert [(e["responseStatus"]["code"], e["user"].get("username")) for e in found] == [
        (401, "system:anonymous"), (401, None), (403, "stranger"), (403, "system:node:n1"),
    ]  # fmt: skip
    assert "canary" not in str(found)
    assert found[2]["annotations"]["authorization.orch.io/decision"] == "forbid"


async def test_who_acts_for_whom_is_written_down(audited) -> None:
    api, _ = audited
    await api.call("GET", NODES, headers={"Impersonate-User": "jane", "Impersonate-Group": "devs"})
    complete = (await events(audited, 2))[-1]
    assert complete["user"]["username"] == "admin"
    assert complete["impersonatedUser"]["username"] == "jane"
    assert "devs" in complete["impersonatedUser"]["groups"]


async def test_a_watch_is_written_down_when_it_begins_and_when_it_ends(audited) -> None:
    api, _ = audited
    async with api.session("admin").get(api.url(f"{NODES}?watch=1")) as answer:
        assert answer.headers["Audit-Id"]
        started = await events(audited, 2)
        assert [event["stage"] for event in started] == ["RequestReceived", "ResponseStarted"]
        await api.server.wind_down()
        await answer.read()
    assert (await events(audited, 3))[-1]["stage"] == "ResponseComplete"


async def test_a_defect_is_a_panic(audited, monkeypatch) -> None:
    api, _ = audited

    def broken(*_: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(api.server.storage, "get", broken)
    assert (await api.call("GET", f"{NODES}/n1")).status == 500
    last = (await events(audited, 2))[-1]
    assert (last["stage"], last["responseStatus"]["code"]) == ("Panic", 500)


async def test_what_the_policy_leaves_out_is_not_there_and_all_is_counted(audited) -> None:
    api, _ = audited
    for path in ("/healthz", "/metrics"):
        assert "Audit-Id" not in (await api.call("GET", path)).headers
    await api.call("GET", NODES)
    assert len(await events(audited, 2)) == 2
    page = (await api.call("GET", "/metrics")).text
    assert "apiserver_audit_event_total 2.0" in page
    assert 'apiserver_audit_level_total{level="Metadata"} 1.0' in page
    assert 'apiserver_audit_level_total{level="None"} 3.0' in page


async def test_without_a_policy_nothing_is_audited(api: Api) -> None:
    assert "Audit-Id" not in (await api.call("GET", NODES)).headers
