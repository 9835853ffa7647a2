"""Numbers that no program counts to: a 4xx that names them, or an answer; never a 500."""

from __future__ import annotations

import base64

import orjson
import pytest

from tests.orch.server.harness import LEASES, NODES, PODS, Api, lease, node, pod

HUGE = ("9" * 18, "9" * 19, "9" * 5000, str(1 << 63), "-" + "9" * 30, "1e999", "٣", "0x10", "1.5")


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (NODES, "limit"),
        (NODES, "resourceVersion"),
        (f"{NODES}?watch=1", "timeoutSeconds"),
        (f"{NODES}?watch=1", "resourceVersion"),
        (f"{NODES}/n1", "resourceVersion"),
        (f"{PODS}/p1/log", "sinceSeconds"),
        (f"{PODS}/p1/log", "tailLines"),
    ],
)
async def test_in_queries(api: Api, path: str, name: str) -> None:
    await api.call("POST", NODES, node("n1"))
    await api.call("POST", PODS, pod("p1"))
    for number in HUGE:
        joined = f"{path}{'&' if '?' in path else '?'}{name}={number}"
        async with api.session("admin").get(api.url(joined)) as answer:
            assert answer.status in (200, 400, 404, 422, 504), joined
            if answer.status == 504:
                assert (await answer.json())["details"]["causes"][0]["reason"] == (
                    "ResourceVersionTooLarge"
                )


@pytest.mark.parametrize("version", [1 << 62, 1 << 70, -2, -(1 << 70), 1e300, "9" * 30, None, [1]])
async def test_in_continue_keys(api: Api, version: object) -> None:
    key = {"v": "meta.k8s.io/v1", "rv": version, "start": "a"}
    try:
        data = orjson.dumps(key)
    except TypeError:
        data = str(key).replace("'", '"').encode()
    token = base64.urlsafe_b64encode(data).decode()
    answer = await api.call("GET", f"{NODES}?continue={token}")
    assert answer.status in (200, 400, 410, 504)


@pytest.mark.parametrize("number", [1 << 62, (1 << 63) - 1, 1 << 63, 1 << 70, -(1 << 62), 1e300])
async def test_in_bodies(api: Api, number: float) -> None:
    await api.call("POST", PODS, pod("p1", node="n1"))
    text = b"%d" % int(number)
    grace = b'{"gracePeriodSeconds":' + text + b"}"
    assert (await api.call("DELETE", f"{PODS}/p1", grace)).status in (200, 400, 422)
    wanted = orjson.dumps(lease("n1")).replace(b"40", text)
    assert (await api.call("POST", LEASES, wanted)).status in (201, 400, 422)
    spec = orjson.dumps(pod("p2")).replace(
        b'"spec":{', b'"spec":{"terminationGracePeriodSeconds":' + text + b","
    )
    if (await api.call("POST", PODS, spec)).status == 201:
        assert (await api.call("DELETE", f"{PODS}/p2")).status in (200, 400, 422)
