from __future__ import annotations

import json
from typing import Any

import pytest

from tests.fakes.http_api import Answer, HttpApi
from tests.orch.ctl.conftest import Orchctl

PROXY = "/api/v1/nodes/n1/proxy/checkpoint/d/web/c"
ARCHIVE = "/var/lib/nodeagent/checkpoints/checkpoint-web_d-c-2026-01-31T12:00:00Z.tar"


def _pod(api: HttpApi, *containers: str, **spec: Any) -> None:
    api.put(
        "/api/v1/namespaces/d/pods/web",
        {"metadata": {"name": "web"},
         "spec": {"containers": [{"name": c} for c in containers], "nodeName": "n1", **spec}},
    )  # fmt: skip


async def test_the_agent_is_asked_through_the_node_proxy(orchctl: Orchctl, api: HttpApi) -> None:
    _pod(api, "c", "other")
    api.answers["POST", PROXY] = Answer({"items": [ARCHIVE]})
    result = await orchctl("checkpoint", "d/web", "-c", "c", "--timeout", "30")
    assert (result.code, result.out) == (0, f"n1:{ARCHIVE}\n")
    assert result.err.startswith("checkpointing d/web/c on n1: done, ")
    (sent,) = api.sent("POST")
    assert (sent.query, sent.body) == ({"timeout": "30"}, None)


async def test_the_size_is_told_when_the_agent_lists_it(orchctl: Orchctl, api: HttpApi) -> None:
    _pod(api, "c")
    api.answers["POST", PROXY] = Answer({"items": [ARCHIVE]})
    listed = [{"name": ARCHIVE.rpartition("/")[2], "size": 3 * 2**20}, {"name": "other"}]
    api.answers["GET", "/api/v1/nodes/n1/proxy/checkpoint"] = Answer({"items": listed})
    result = await orchctl("checkpoint", "d/web")
    assert result.err.startswith("checkpointing d/web/c on n1: done, 3.0Mi, ")


async def test_without_a_timeout_the_agent_decides(orchctl: Orchctl, api: HttpApi) -> None:
    _pod(api, "c")
    api.answers["POST", PROXY] = Answer({"items": [ARCHIVE]})
    result = await orchctl("checkpoint", "web", "-n", "d")
    assert (result.code, api.sent("POST")[0].query) == (0, {})


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (404, "container c does not exist"),
        (500, "checkpointing of d/web/c failed (criu: exit 1)"),
        (500, f"checkpointing of d/web/c failed (path= {'/run' * 400}/criu-dump.log; CRIU: why)"),
    ],
)
async def test_a_refusal_of_the_agent_is_quoted(
    orchctl: Orchctl, api: HttpApi, status: int, text: str
) -> None:
    _pod(api, "c")
    api.answers["POST", PROXY] = Answer(text, status)
    result = await orchctl("checkpoint", "d/web")
    assert result.code == 1
    assert result.err.startswith(f"error: the server answered {status}: {text} (")


async def test_an_agent_without_checkpoints_is_said_to_be(orchctl: Orchctl, api: HttpApi) -> None:
    _pod(api, "c")
    api.answers["POST", PROXY] = Answer("404 page not found\n", 404)
    result = await orchctl("checkpoint", "d/web")
    assert (result.code, result.err) == (
        1,
        "error: the agent of n1 takes no checkpoints: switch its feature gate ContainerCheckpoint"
        " on\n",
    )


async def test_the_container_must_be_clear(orchctl: Orchctl, api: HttpApi) -> None:
    _pod(api, "a", "b")
    result = await orchctl("checkpoint", "d/web")
    assert (result.code, api.sent("POST")) == (1, [])
    assert result.err == "error: the pod has the containers a, b: name one with -c\n"


async def test_a_pod_without_a_node_cannot_be_checkpointed(orchctl: Orchctl, api: HttpApi) -> None:
    _pod(api, "c", nodeName="")
    assert "is not on a node yet" in (await orchctl("checkpoint", "d/web")).err


async def test_an_agent_that_does_not_say_where_is_reported(orchctl: Orchctl, api: HttpApi) -> None:
    _pod(api, "c")
    api.answers["POST", PROXY] = Answer([])
    result = await orchctl("checkpoint", "d/web")
    assert result.code == 1
    assert "the agent of n1 did not say where the archive is" in result.err


async def test_a_negative_timeout_is_a_usage_error(orchctl: Orchctl) -> None:
    assert (await orchctl("checkpoint", "d/web", "--timeout=-1")).code == 2


NAME = "checkpoint-web_shop-app-2026-01-31T12:00:00Z.tar"
LISTED = {"name": NAME, "size": 2**21, "created": "2026-01-31T12:00:00Z", "namespace": "shop",
        "pod": "web", "container": "app", "pinned": True}  # fmt: skip


def _page(node: str) -> tuple[str, str]:
    return "GET", f"/api/v1/nodes/{node}/proxy/checkpoint"


async def test_every_node_is_asked(orchctl: Orchctl, api: HttpApi) -> None:
    for node in ("n1", "n2"):
        api.put(f"/api/v1/nodes/{node}", {"metadata": {"name": node}})
        api.answers[_page(node)] = Answer({"items": [LISTED]})
    result = await orchctl("checkpoint", "list")
    assert result.code == 0
    assert [(line.split()[:4], line.split()[5:]) for line in result.lines] == [
        (["NODE", "POD", "CONTAINER", "SIZE"], ["PINNED", "ARCHIVE"]),
        (["n1", "shop/web", "app", "2.0Mi"], ["yes", NAME]),
        (["n2", "shop/web", "app", "2.0Mi"], ["yes", NAME]),
    ]
    assert (await orchctl("checkpoint", "list", "n1", "-o", "name")).out == f"n1:{NAME}\n"
    shown = json.loads((await orchctl("checkpoint", "list", "node/n1", "-o", "json")).out)
    assert shown == [{"node": "n1", **LISTED}]


async def test_an_agent_that_does_not_list_is_named(orchctl: Orchctl, api: HttpApi) -> None:
    api.answers[_page("n1")] = Answer("404: Not Found", 404)
    api.answers[_page("n2")] = Answer({"items": [LISTED]})
    result = await orchctl("checkpoint", "list", "n1", "n2", "--no-headers")
    assert (result.code, len(result.lines)) == (1, 1)
    assert result.err.startswith(
        "error: the agent of n1 does not list its archives: run 'nodeagent"
    )


async def test_none_are_said(orchctl: Orchctl, api: HttpApi) -> None:
    api.answers[_page("n1")] = Answer({"items": []})
    result = await orchctl("checkpoint", "list", "n1")
    assert (result.code, result.out, result.err) == (0, "", "No checkpoints found\n")
