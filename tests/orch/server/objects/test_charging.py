"""Quotas and bounds under operations: K:…/admission/plugin/resourcequota/admission_test.go."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from orch.server.controllers import namespaces
from orch.server.controllers.quota_usage import QuotaUsage
from orch.server.objects.backend import Backend
from orch.server.objects.charging import Charging
from orch.server.objects.create import create
from orch.server.objects.delete import delete
from orch.server.objects.document import ObjectTarget, prefix_of
from orch.server.objects.modify import modify
from orch.server.objects.options import DeleteOptions, WriteOptions
from orch.server.objects.pod_subresources import evict
from orch.server.storage.tally import Bounds
from orch.wire.errors import ApiError
from orch.wire.records.authentication import Identity
from tests.orch.server.objects.places import made, place, pod, read

TENANT = Identity("tenant")
NODE = Identity("system:node:n1", ("system:nodes",))
DRY = WriteOptions(dry_run=True)


def charging(backend: Backend, **bounds: int) -> tuple[Backend, QuotaUsage]:
    charges = Charging(backend.storage, Bounds(**bounds))
    return replace(backend, charge=charges.charged), QuotaUsage(backend.storage, charges)


async def limited(
    backend: Backend, hard: dict[str, Any], **spec: Any
) -> tuple[Backend, QuotaUsage]:
    """A backend, and a measured quota in `default`."""
    charged, usage = charging(backend)
    await made(
        charged, "ResourceQuota", {"metadata": {"name": "q"}, "spec": {"hard": hard, **spec}}
    )
    await usage.measure()
    return charged, usage


async def tried(backend: Backend, kind: str, name: str, **fields: Any) -> str:
    """Why the object was not created; "" when it was."""
    try:
        await create(backend, place(kind), {"metadata": {"name": name}, **fields})
    except ApiError as error:
        assert (error.code, error.reason) == (403, "Forbidden")
        return error.message
    return ""


def used(backend: Backend) -> dict[str, str]:
    quota = read(backend, place("ResourceQuota", "q"))
    assert quota is not None
    return dict(quota["status"].get("used") or {})


async def test_what_exceeds_a_quota_is_refused_and_what_is_deleted_is_given_back(backend) -> None:
    charged, usage = await limited(backend, {"configmaps": "2", "count/secrets": 1})
    assert [await tried(charged, "ConfigMap", name) for name in "ab"] == ["", ""]
    assert await tried(charged, "ConfigMap", "c") == (
        'configmaps "c" is forbidden: exceeded quota: q, requested: configmaps=1,'
        " used: configmaps=2, limited: configmaps=2"
    )
    assert used(backend) == {"configmaps": "2", "count/secrets": "0"}
    await delete(charged, place("ConfigMap", "a"), DeleteOptions())
    await usage.measure()
    assert used(backend)["configmaps"] == "1"
    assert await tried(charged, "ConfigMap", "c") == ""


async def test_an_object_that_grows_is_charged_for_its_bytes(backend) -> None:
    charged, usage = await limited(backend, {"orch.io/bytes": "4Ki"})
    assert await tried(charged, "ConfigMap", "a") == ""
    before = used(backend)

    def grow(size: int) -> Any:
        return lambda document: {**document, "data": {"a": "x" * size}}

    target = place("ConfigMap", "a")
    with pytest.raises(ApiError, match=r"exceeded quota: q, requested: orch\.io/bytes="):
        await modify(charged, target, grow(5000))
    await modify(charged, target, grow(2000))
    grown = used(backend)
    assert grown != before
    await modify(charged, target, grow(1000))  # is not given back at once
    assert used(backend) == grown
    await usage.measure()
    assert used(backend) != grown


async def test_concurrent_creations_fill_a_quota_exactly(backend) -> None:
    charged, _ = await limited(backend, {"count/configmaps": 7})
    results = await asyncio.gather(*(tried(charged, "ConfigMap", f"c{n}") for n in range(50)))
    assert sum(1 for result in results if not result) == 7
    assert used(backend) == {"count/configmaps": "7"}


async def test_writers_that_went_away_do_not_make_room_for_others(backend, medium) -> None:
    charged, usage = await limited(backend, {"count/configmaps": 3})
    for number in range(20):
        task = asyncio.ensure_future(tried(charged, "ConfigMap", f"c{number}"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
    await asyncio.gather(*(tried(charged, "ConfigMap", f"d{n}") for n in range(9)))
    await backend.storage.check()
    await usage.measure()
    assert used(backend) == {"count/configmaps": "3"}
    assert len(backend.storage.list("/configmaps/").items) == 3


async def test_a_pod_in_the_place_of_one_that_ended_is_charged(backend) -> None:
    """The old one may be gone when the creation is written, so that it succeeds."""
    charged, usage = await limited(backend, {"pods": 1})
    assert await tried(charged, "Pod", "ended", spec=pod()["spec"]) == ""
    status = place("Pod", "ended", "status")
    await modify(charged, status, lambda pod: {**pod, "status": {"phase": "Failed"}})
    await usage.measure()
    assert await tried(charged, "Pod", "other", spec=pod()["spec"]) == ""
    deleting = asyncio.ensure_future(delete(charged, place("Pod", "ended"), DeleteOptions()))
    await asyncio.sleep(0)
    assert "exceeded quota" in await tried(charged, "Pod", "ended", spec=pod()["spec"])
    await deleting


async def test_the_server_starts_on_a_store_beyond_its_bounds(backend) -> None:
    charged, _ = charging(backend, store_bytes=1, objects=1, bytes=1)
    await namespaces.make_initial_objects(charged)
    with pytest.raises(ApiError, match="exceeded"):
        await made(charged, "Node", {"metadata": {"name": "n"}})


async def test_a_dry_run_is_judged_and_not_charged(backend) -> None:
    charged, _ = await limited(backend, {"count/configmaps": 1})
    for _round in range(2):
        await create(charged, place("ConfigMap"), {"metadata": {"name": "a"}}, DRY)
    assert used(backend) == {"count/configmaps": "0"}
    assert await tried(charged, "ConfigMap", "a") == ""
    with pytest.raises(ApiError, match="exceeded quota"):
        await create(charged, place("ConfigMap"), {"metadata": {"name": "b"}}, DRY)


async def test_a_quota_of_another_namespace_is_not_asked(backend) -> None:
    charged, _ = await limited(backend, {"count/configmaps": 0})
    await made(charged, "Namespace", {"metadata": {"name": "other"}})
    await create(charged, place("ConfigMap", namespace="other"), {"metadata": {"name": "a"}})


def as_caller(target: ObjectTarget, caller: Identity) -> ObjectTarget:
    return target._replace(identity=caller)


@pytest.mark.parametrize(
    ("bounds", "kind", "code", "text"),
    [
        ({"objects": 20}, "ConfigMap", 403, "exceeded quota: --max-namespace-objects, requested:"
         " objects=1, used: objects=18, limited: objects=18: delete objects"),
        ({"bytes": 4000}, "ConfigMap", 403, "exceeded quota: --max-namespace-mib, requested:"),
        ({"objects": 40}, "Event", 403, "exceeded quota: --max-namespace-objects of events"),
        ({"bytes": 16000}, "Event", 403, "exceeded quota: --max-namespace-mib of events"),
        ({"objects": 80}, "Role", 403, "exceeded quota: --max-namespace-objects of roles"),
        ({"bytes": 32000}, "Role", 403, "exceeded quota: --max-namespace-mib of roles"),
        ({"objects": 80}, "Pod", 403, "exceeded quota: --max-namespace-objects of pods"),
        ({"bytes": 64000}, "Pod", 403, "exceeded quota: --max-namespace-mib of pods"),
        ({"objects": 20}, "Node", 403, "exceeded quota: --max-namespace-objects"),
        ({"store_bytes": 30_000}, "Node", 507, "mvcc: database space exceeded"),
        ({"store_bytes": 30_000}, "ConfigMap", 507, "--max-store-mib"),
    ],
)  # fmt: skip
async def test_the_last_tenth_of_a_bound_is_not_for_tenants(
    backend, bounds: dict[str, int], kind: str, code: int, text: str
) -> None:
    charged, _ = charging(backend, **bounds)
    target = as_caller(place(kind), TENANT)
    rest = {"spec": pod()["spec"]} if kind == "Pod" else {}
    results = await asyncio.gather(
        *(create(charged, target, {"metadata": {"name": f"x{n}"}, **rest}) for n in range(100)),
        return_exceptions=True,
    )
    (first, *_) = (result for result in results if isinstance(result, ApiError))
    assert first.code == code
    assert text in first.message
    held = len(backend.storage.list(prefix_of(target.strategy.resource)).items)
    await create(charged, place(kind), {"metadata": {"name": "of-the-administrator"}, **rest})
    # Deleting makes room again.
    await delete(charged, as_caller(place(kind, "x0"), TENANT), DeleteOptions())
    await delete(charged, place(kind, "of-the-administrator"), DeleteOptions())
    assert 3 <= held < 25
    await create(charged, target, {"metadata": {"name": "x0"}, **rest})


async def test_pods_are_charged_for_the_memory_of_their_records(backend) -> None:
    """An empty record has two bytes, and hundreds where pods are held."""
    charged, _ = charging(backend, bytes=100_000)
    target = as_caller(place("Pod"), TENANT)
    spec = {**pod()["spec"], "imagePullSecrets": [{}] * 200}
    text = "exceeded quota: twice --max-namespace-mib for the memory that pods take"
    await create(charged, target, {"metadata": {"name": "first"}, "spec": spec})
    with pytest.raises(ApiError, match=text):
        await create(charged, target, {"metadata": {"name": "second"}, "spec": spec})
    braces = {"metadata": {"name": "c", "annotations": {"a": "{" * 1000}}}
    await create(charged, as_caller(place("ConfigMap"), TENANT), braces)
    long = {"metadata": {"name": "long", "annotations": {"a": "x" * 4000}}, "spec": pod()["spec"]}
    await create(charged, target, long)

    def tolerant(old: dict[str, Any]) -> dict[str, Any]:
        metadata = {**old["metadata"], "annotations": {}}
        spec = {**old["spec"], "tolerations": [{"key": f"k{n}"} for n in range(200)]}
        return {**old, "metadata": metadata, "spec": spec}

    with pytest.raises(ApiError, match=text):  # it has fewer bytes than before
        await modify(charged, as_caller(place("Pod", "long"), TENANT), tolerant)
    status = {"conditions": [{"type": f"t{n}", "status": "True"} for n in range(60)]}
    reporting = as_caller(place("Pod", "long", "status"), NODE)
    await modify(charged, reporting, lambda old: {**old, "status": status})


async def test_a_node_reports_into_the_reserve(backend) -> None:
    charged, _ = charging(backend, store_bytes=10_000)
    await made(charged, "Node", {"metadata": {"name": "n1"}})
    target = as_caller(place("ConfigMap"), TENANT)
    with pytest.raises(ApiError, match="space exceeded"):
        for number in range(20):
            await create(charged, target, {"metadata": {"name": f"x{number}"}})

    def report(node: dict[str, Any]) -> dict[str, Any]:
        return {**node, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}

    await modify(charged, as_caller(place("Node", "n1", "status"), NODE), report)
    with pytest.raises(ApiError, match="space exceeded"):
        await create(charged, as_caller(place("Event"), NODE), {"metadata": {"name": "e"}})


@pytest.mark.parametrize(
    ("bounds", "message", "most"),
    [({"objects": 4_000}, "", 125), ({"bytes": 16 * 2**20}, "m" * 32_000, 16)],
)
async def test_one_node_leaves_room_for_the_events_of_others(
    backend: Backend,
    monkeypatch: pytest.MonkeyPatch,
    bounds: dict[str, int],
    message: str,
    most: int,
) -> None:
    charged, _ = charging(backend, **bounds)
    about = {"involvedObject": {"kind": "Node", "name": "n1"}, "message": message}

    async def written(node: Identity, name: str) -> str:
        target = place("Event")._replace(identity=node)
        try:
            await create(charged, target, {"metadata": {"name": name}, **about})
        except ApiError as error:
            assert error.code == 403
            return error.message
        return ""

    refused = [await written(NODE, f"a{number}") for number in range(most + 10)]
    assert not any(refused[: most - 1])
    assert "exceeded quota: node n1 has written an eighth of the events" in refused[-1]
    assert await written(Identity("system:node:n2", ("system:nodes",)), "b") == ""
    loop = asyncio.get_running_loop()
    later_s = loop.time() + 1_800
    monkeypatch.setattr(loop, "time", lambda: later_s)
    assert not any([await written(NODE, f"c{number}") for number in range(most // 2 - 1)])


async def test_what_is_under_way_counts(backend) -> None:
    """All of it is judged before any of it is stored."""
    charged, _ = charging(backend, objects=10)
    target = as_caller(place("ConfigMap"), TENANT)
    results = await asyncio.gather(
        *(create(charged, target, {"metadata": {"name": f"x{n}"}}) for n in range(40)),
        return_exceptions=True,
    )
    refused = [result for result in results if isinstance(result, ApiError)]
    assert len(refused) == 31
    assert len(backend.storage.list("/configmaps/").items) == 9


async def test_a_full_namespace_does_not_keep_a_pod_from_being_evicted(backend) -> None:
    await made(backend, "Pod", pod(nodeName="n1"))
    charged, _ = charging(backend, bytes=1, store_bytes=1)
    evicting = as_caller(place("Pod", "p1", "eviction"), TENANT)
    await evict(charged, evicting, {"metadata": {"name": "p1"}}, dry_run=False)
    leaving = read(backend, place("Pod", "p1"))
    assert leaving is not None
    assert leaving["metadata"]["deletionTimestamp"]


def sizes(cpu: str) -> Any:
    return [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]


async def test_a_resize_is_charged_what_it_adds_and_freed_what_the_node_gave_back(
    backend: Backend,
) -> None:
    charged, usage = await limited(backend, {"requests.cpu": "300m"})
    await made(charged, "Pod", pod("p", containers=sizes("100m")))
    at = place("Pod", "p", "resize")
    at = at._replace(strategy=at.strategy.parts["resize"])

    async def resize(cpu: str) -> None:
        spec = {"containers": sizes(cpu)}
        await modify(charged, at, lambda old: {**old, "spec": {**old["spec"], **spec}})

    text = "exceeded quota: q, requested: requests.cpu=201m, used: requests.cpu=100m"
    with pytest.raises(ApiError, match=text):
        await resize("301m")
    await resize("300m")
    assert used(charged) == {"requests.cpu": "300m"}
    granted = [{"name": "c", "allocatedResources": {"cpu": "250m"}}]
    status = {"status": {"containerStatuses": granted}}
    await modify(charged, place("Pod", "p", "status"), lambda old: {**old, **status})
    await resize("50m")
    await usage.measure()
    assert used(charged) == {"requests.cpu": "250m"}


async def test_a_pod_that_gets_a_deadline_is_charged_to_the_quota_of_such_pods(
    backend: Backend,
) -> None:
    charged, usage = await limited(backend, {"pods": 1, "requests.cpu": 2}, scopes=["Terminating"])
    others = {"hard": {"pods": 2}, "scopes": ["NotTerminating"]}
    await made(charged, "ResourceQuota", {"metadata": {"name": "others"}, "spec": others})
    await usage.measure()

    async def end(name: str, **changes: Any) -> None:
        def change(old: dict[str, Any]) -> dict[str, Any]:
            metadata = {**old["metadata"], **changes}
            return {"metadata": metadata, "spec": {**old["spec"], "activeDeadlineSeconds": 9}}

        await modify(charged, place("Pod", name), lambda old: {**old, **change(old)})

    for name in "ab":
        document = pod(name, containers=sizes("500m"))
        document["metadata"]["annotations"] = {"activeDeadlineSeconds": "long" * 100}
        await made(charged, "Pod", document)
    assert used(charged) == {"pods": "0", "requests.cpu": "0"}
    await end("a", annotations={})  # the pod becomes smaller
    assert used(charged) == {"pods": "1", "requests.cpu": "500m"}
    with pytest.raises(ApiError, match="exceeded quota: q, requested: pods=1, used: pods=1"):
        await end("b", annotations={})
    await end("a", labels={"a": "b"})
    await usage.measure()
    assert used(charged) == {"pods": "1", "requests.cpu": "500m"}
    assert await tried(charged, "Pod", "c", spec=pod()["spec"]) == ""
