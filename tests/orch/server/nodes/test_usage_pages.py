"""`metrics.k8s.io` from an agent that answers as the real one does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from orch.component.http.httpd import HttpServer, server_context
from tests.orch.server.harness import MERGE, NODES, PODS, Api, Pki, node, pod

ROOT = "/apis/metrics.k8s.io/v1beta1"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


class Agent:
    """Every page is 10 s after the last, with half a core used by the node, a tenth by the pod."""

    def __init__(self) -> None:
        self.pages = 0
        self.asked = 0
        self.failing = False
        self.body: bytes | None = None

    async def page(self, _request: web.Request) -> web.Response:
        self.asked += 1
        if self.body is not None:
            return web.Response(body=self.body)
        if self.failing:
            return web.Response(status=500)
        self.pages += 1
        at_ms = 1767268800000 + self.pages * 10_000
        container = '{container="c",namespace="default",pod="p1"}'
        return web.Response(
            text=f"node_cpu_usage_seconds_total {self.pages * 5.0} {at_ms}\n"
            f"node_memory_working_set_bytes 1048576 {at_ms}\n"
            f"container_cpu_usage_seconds_total{container} {self.pages * 1.0} {at_ms}\n"
            f"container_memory_working_set_bytes{container} 2048 {at_ms}\n"
        )


@pytest.fixture
async def agent(server_pki: Pki) -> AsyncIterator[tuple[Agent, int]]:
    agent = Agent()
    app = web.Application()
    app.router.add_get("/metrics/resource", agent.page)
    pair = server_pki.server
    context = server_context(pair.cert_file, pair.key_file, client_ca_file=server_pki.ca_file)
    server = HttpServer(app, host="127.0.0.1", port=0, ssl_context=context, name="agent")
    yield agent, await server.start()
    await server.stop(grace_s=0.5)


@pytest.fixture
async def api(server_pki: Pki, tmp_path: Path, agent: tuple[Agent, int]) -> AsyncIterator[Api]:
    api = await Api.start(
        server_pki, tmp_path / "data", "--node-proxy-allow-loopback", "--serve-upstream-aliases",
        f"--nodeagent-certificate-authority={server_pki.ca_file}",
    )  # fmt: skip
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"nodeagentEndpoint": {"Port": agent[1]}},
    }
    await api.call("POST", NODES, node(labels={"a": "b"}))
    await api.call("PATCH", f"{NODES}/n1/status", {"status": status}, content_type=MERGE)
    await api.call("POST", NODES, node("silent"))
    await api.call("POST", PODS, pod(node="n1", labels={"app": "web"}))
    await api.call("POST", PODS, pod("p2", "n1"))
    yield api
    await api.stop()


async def refreshed(api: Api, times: int = 2) -> None:
    for _ in range(times):
        await api.turn("usage")


async def test_usage_is_told_after_two_readings(api: Api) -> None:
    await refreshed(api, 1)
    assert (await api.call("GET", f"{ROOT}/nodes")).json["items"] == []
    assert (await api.call("GET", f"{ROOT}/nodes/n1")).status == 404
    await refreshed(api, 1)
    (shown,) = (await api.call("GET", f"{ROOT}/nodes")).json["items"]
    assert shown["usage"] == {"cpu": "500000000n", "memory": "1024Ki"}
    assert (shown["metadata"]["labels"], shown["window"]) == ({"a": "b"}, "10.000s")
    assert (await api.call("GET", f"{ROOT}/nodes/n1")).json["usage"] == shown["usage"]


async def test_both_versions_tell_the_same(api: Api) -> None:
    await refreshed(api)
    for path in ("nodes", "pods", "nodes/n1", "namespaces/default/pods/p1"):
        newer, older = [
            (await api.call("GET", f"/apis/metrics.k8s.io/{version}/{path}")).json
            for version in ("v1", "v1beta1")
        ]
        records = zip(newer.pop("items", [newer]), older.pop("items", [older]), strict=True)
        for new, old in (*records, (newer, older)):
            versions = (new.pop("apiVersion", None), old.pop("apiVersion", None))
            assert versions in (("metrics.k8s.io/v1", "metrics.k8s.io/v1beta1"), (None, None))
            new.get("metadata", {}).pop("creationTimestamp", None)
            old.get("metadata", {}).pop("creationTimestamp", None)
            assert new == old


async def test_pods_are_selected_as_pods_are(api: Api) -> None:
    await refreshed(api)
    listed = await api.call("GET", f"{ROOT}/pods")
    assert listed.json["kind"] == "PodMetricsList"
    assert [one["metadata"]["name"] for one in listed.json["items"]] == ["p1"]
    inside = f"{ROOT}/namespaces/default/pods"
    one = (await api.call("GET", f"{inside}/p1")).json
    assert one["containers"] == [{"name": "c", "usage": {"cpu": "100000000n", "memory": "2Ki"}}]
    assert (await api.call("GET", f"{inside}?labelSelector=app%3Dweb")).json["items"] != []
    assert (await api.call("GET", f"{inside}?labelSelector=app%3Dx")).json["items"] == []
    assert (await api.call("GET", f"{ROOT}/namespaces/other/pods")).json["items"] == []
    missing = await api.call("GET", f"{inside}/p2")
    assert missing.json["message"] == 'pods.metrics.k8s.io "p2" not found'


async def test_a_list_is_always_whole(api: Api) -> None:
    # kubernetes-sigs/metrics-server pkg/api/pod.go: of its options List reads the selectors only
    await refreshed(api)
    for query in ("limit=1", "limit=1&continue=anything"):
        answer = await api.call("GET", f"{ROOT}/pods?{query}")
        assert (answer.status, answer.json["metadata"]) == (200, {})
        assert [one["metadata"]["name"] for one in answer.json["items"]] == ["p1"]


async def test_it_is_shown_as_rows(api: Api) -> None:
    await refreshed(api)
    rows = (await api.call("GET", f"{ROOT}/pods", accept=TABLE)).json["rows"]
    assert [row["cells"] for row in rows] == [["p1", "100m", "2Ki", "10.000s"]]
    rows = (await api.call("GET", f"{ROOT}/nodes", accept=TABLE)).json["rows"]
    assert [row["cells"][0] for row in rows] == ["n1"]
    text = await api.call("GET", f"{ROOT}/nodes/n1", accept="application/yaml")
    assert text.headers["Content-Type"] == "application/yaml"
    assert "usage:\n  cpu: 500000000n\n" in text.text


async def test_it_is_shown_by_its_metadata_alone(api: Api) -> None:
    await refreshed(api)
    asked = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"
    one = await api.call("GET", f"{ROOT}/nodes/n1", accept=asked.format(""))
    assert (one.json["kind"], one.json["metadata"]["name"]) == ("PartialObjectMetadata", "n1")
    listed = (await api.call("GET", f"{ROOT}/pods", accept=asked.format("List"))).json
    assert (listed["kind"], listed["apiVersion"]) == (
        "PartialObjectMetadataList", "meta.k8s.io/v1",
    )  # fmt: skip
    assert [sorted(item) for item in listed["items"]] == [["apiVersion", "kind", "metadata"]]


@pytest.mark.parametrize("accept", ["application/json", TABLE])
async def test_what_is_not_there_is_not_found_in_any_form(api: Api, accept: str) -> None:
    missing = await api.call("GET", f"{ROOT}/nodes/nope", accept=accept)
    assert (missing.status, missing.json["reason"]) == (404, "NotFound")


async def test_an_agent_that_fails_and_a_node_that_is_gone_are_told_nothing_of(
    api: Api, agent: tuple[Agent, int]
) -> None:
    await refreshed(api)
    agent[0].failing = True
    await refreshed(api, 1)
    assert (await api.call("GET", f"{ROOT}/nodes")).json["items"] == []
    agent[0].failing = False
    await refreshed(api, 1)
    assert (await api.call("GET", f"{ROOT}/nodes")).json["items"] != []
    await api.call("DELETE", f"{NODES}/n1")
    await refreshed(api, 1)
    assert (await api.call("GET", f"{ROOT}/nodes")).json["items"] == []


async def test_who_may_not_ask_is_refused_and_nothing_is_written(api: Api) -> None:
    assert (await api.call("GET", f"{ROOT}/nodes", user="stranger")).status == 403
    assert (await api.call("POST", f"{ROOT}/nodes", {})).status == 404


@pytest.mark.parametrize(
    "body",
    [b"a" * 4096, b"\n" * 60_000, b"#" * 1000 + b"\n" + (b"#" * 1000 + b"\n") * 4500],
    ids=["a long line", "many lines", "many bytes"],
)
async def test_a_page_that_no_agent_sends_costs_its_node_its_numbers(
    api: Api, agent: tuple[Agent, int], body: bytes
) -> None:
    await refreshed(api)
    agent[0].body = body
    await refreshed(api, 1)
    assert (await api.call("GET", f"{ROOT}/nodes")).json["items"] == []
    agent[0].body = None
    await refreshed(api, 1)
    assert (await api.call("GET", f"{ROOT}/nodes")).json["items"] != []


async def test_an_agent_that_keeps_failing_is_asked_less_and_less_often(
    api: Api, agent: tuple[Agent, int]
) -> None:
    agent[0].failing = True
    await refreshed(api, 6)
    assert agent[0].asked == 2  # the first failure may be an accident
