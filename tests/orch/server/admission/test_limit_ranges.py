"""LimitRanges of a namespace, over HTTP."""

from __future__ import annotations

from typing import Any

from orch.wire.podrules.limit_ranges import ANNOTATION, MAX_RANGES
from tests.orch.server.harness import PODS, STRATEGIC, Answer, Api, pod

RANGES = "/api/v1/namespaces/default/limitranges"


async def given(api: Api, name: str, *items: dict[str, Any]) -> Answer:
    sent = {"metadata": {"name": name}, "spec": {"limits": list(items)}}
    return await api.call("POST", RANGES, sent)


def sized(name: str = "p1", **resources: Any) -> dict[str, Any]:
    made = pod(name)
    made["spec"]["containers"][0]["resources"] = resources
    return made


async def test_a_pod_gets_defaults_and_the_class_that_follows_from_them(api: Api) -> None:
    item = {"type": "Container", "max": {"cpu": "2"}, "default": {"cpu": "1", "memory": "1Gi"}}
    made = await given(api, "a", item)
    assert made.status == 201
    assert made.json["spec"]["limits"][0]["defaultRequest"] == {"cpu": "1", "memory": "1Gi"}
    created = (await api.call("POST", PODS, pod("p1"))).json
    amounts = {"cpu": "1", "memory": "1Gi"}
    assert created["spec"]["containers"][0]["resources"] == {
        "requests": amounts, "limits": amounts,
    }  # fmt: skip
    assert created["status"]["qosClass"] == "Guaranteed"
    told = created["metadata"]["annotations"][ANNOTATION]
    assert told.startswith("LimitRanger plugin set: cpu, memory request for container")
    own = (await api.call("POST", PODS, sized("p2", limits={"cpu": "2", "memory": "1Mi"}))).json
    assert ANNOTATION not in own["metadata"].get("annotations", {})
    elsewhere = "/api/v1/namespaces/orch-system/pods"
    other = (await api.call("POST", elsewhere, pod("p1"))).json
    assert not other["spec"]["containers"][0].get("resources")


async def test_sizes_beyond_the_bounds_are_refused(api: Api) -> None:
    await given(
        api, "a", {"type": "Container", "max": {"cpu": "1"}}, {"type": "Pod", "max": {"cpu": "1"}}
    )
    refused = await api.call("POST", PODS, sized(limits={"cpu": "2"}))
    assert refused.status == 403
    assert refused.json["message"] == (
        'pods "p1" is forbidden: [maximum cpu usage per Container is 1, but limit is 2,'
        " maximum cpu usage per Pod is 1, but limit is 2]"
    )
    two = sized(limits={"cpu": "600m"})
    two["spec"]["containers"].append({**two["spec"]["containers"][0], "name": "second"})
    whole = await api.call("POST", PODS, two)
    text = "maximum cpu usage per Pod is 1, but limit is 1200m"
    assert (whole.status, text in whole.json["message"]) == (403, True)
    assert (await api.call("POST", PODS, sized(limits={"cpu": "1"}))).status == 201
    larger = {"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}}}]}}
    resized = await api.call("PATCH", f"{PODS}/p1/resize", larger, content_type=STRATEGIC)
    assert resized.status == 403, resized.text
    labels = {"metadata": {"labels": {"a": "b"}}}
    assert (await api.call("PATCH", f"{PODS}/p1", labels, content_type=STRATEGIC)).status == 200


async def test_a_default_that_a_pod_cannot_have_refuses_it(api: Api) -> None:
    await given(api, "a", {"type": "Container", "default": {"cpu": "1"}})
    refused = await api.call("POST", PODS, sized(requests={"cpu": "2"}))
    assert (refused.status, "must be less than or equal to cpu limit" in refused.text) == (
        422,
        True,
    )


async def test_a_namespace_has_only_so_many_ranges(api: Api) -> None:
    for number in range(MAX_RANGES):
        assert (await given(api, f"a{number}")).status == 201
    assert (await given(api, "more")).status == 403
    assert (await api.call("GET", RANGES, user="stranger")).status == 403
