"""The measured use of quotas: K:pkg/controller/resourcequota/resource_quota_controller_test.go."""

from __future__ import annotations

import asyncio

from orch.component.process import loops
from orch.server.objects.delete import delete
from orch.server.objects.modify import modify
from orch.server.objects.options import DeleteOptions
from tests.orch.server.objects.places import made, place, pod
from tests.orch.server.objects.test_charging import charging, limited, tried, used


async def test_a_new_quota_counts_what_is_there(backend) -> None:
    await made(backend, "Pod", pod("old"))
    charged, usage = charging(backend)
    spec = {"hard": {"pods": 1, "count/pods": 2, "orch.io/bytes": "1Mi", "services": 1}}
    await made(charged, "ResourceQuota", {"metadata": {"name": "q"}, "spec": spec})
    unknown = await tried(charged, "Pod", "p", spec=pod()["spec"])
    assert "status unknown for quota: q, resources: count/pods,orch.io/bytes,pods" in unknown
    await usage.measure()
    bytes_used = used(backend).pop("orch.io/bytes")
    assert int(bytes_used) > 300
    assert {**used(backend), "orch.io/bytes": ""} == {
        "pods": "1", "count/pods": "1", "services": "0", "orch.io/bytes": "",
    }  # fmt: skip
    assert "used: pods=1, limited: pods=1" in await tried(charged, "Pod", "p", spec=pod()["spec"])


async def test_an_ended_pod_is_counted_as_an_object_alone(backend) -> None:
    resources = {"requests": {"cpu": "300m"}}
    spec = {"containers": [{"name": "c", "image": "i", "resources": resources}]}
    charged, usage = await limited(backend, {"requests.cpu": "500m", "pods": 9, "count/pods": 9})
    assert await tried(charged, "Pod", "a", spec=spec) == ""
    assert "requests.cpu=300m, used: requests.cpu=300m" in await tried(
        charged, "Pod", "b", spec=spec
    )
    assert "must specify requests.cpu for: c" in await tried(
        charged, "Pod", "b", spec=pod()["spec"]
    )
    status = place("Pod", "a", "status")
    await modify(charged, status, lambda pod: {**pod, "status": {"phase": "Succeeded"}})
    await usage.measure()
    assert used(backend) == {"requests.cpu": "0", "pods": "0", "count/pods": "1"}
    assert await tried(charged, "Pod", "b", spec=spec) == ""


async def test_a_quota_with_scopes_counts_the_pods_in_them(backend) -> None:
    charged, usage = await limited(backend, {"pods": 1, "count/pods": 1}, scopes=["Terminating"])
    assert await tried(charged, "Pod", "a", spec=pod()["spec"]) == ""
    ending = pod("b", activeDeadlineSeconds=3)
    assert await tried(charged, "Pod", "b", spec=ending["spec"]) == ""
    assert "exceeded quota" in await tried(charged, "Pod", "c", spec=ending["spec"])
    await usage.measure()
    assert used(backend) == {"pods": "1", "count/pods": "1"}
    await delete(charged, place("Pod", "b"), DeleteOptions())
    await usage.measure()
    assert used(backend) == {"pods": "0", "count/pods": "0"}


async def test_a_measurement_forgets_no_write_that_is_charged_meanwhile(backend) -> None:
    charged, usage = await limited(backend, {"pods": 9, "count/configmaps": 9})
    for number in range(9):
        results = await asyncio.gather(
            usage.measure(),
            tried(charged, "ConfigMap", f"c{number}"),
            usage.measure(),
            tried(charged, "Pod", f"p{number}", spec=pod()["spec"]),
        )
        assert results == [None, "", None, ""]
        assert used(backend) == {"pods": str(number + 1), "count/configmaps": str(number + 1)}
    assert "exceeded quota" in await tried(charged, "ConfigMap", "more")


async def test_a_round_without_changes_writes_nothing(backend) -> None:
    _, usage = await limited(backend, {"pods": 9})
    before = backend.storage.revision
    await usage.measure()
    assert backend.storage.revision == before


async def test_a_new_quota_and_a_new_name_in_it_are_measured_without_delay(backend) -> None:
    charged, usage = charging(backend)
    usage.loop.interval_s = 3600.0
    usage.informer.load()
    tasks = [loops.spawn(one.run(), name=one.name) for one in (usage.loop, usage.informer)]
    while usage.loop.beats < 1:
        await asyncio.sleep(0)
    await made(charged, "ResourceQuota", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": 1}}})
    async with asyncio.timeout(20):
        while used(backend) != {"pods": "0"}:
            await asyncio.sleep(0.001)
        target = place("ResourceQuota", "q")
        hard = {"hard": {"pods": 1, "configmaps": 2}}
        await modify(charged, target, lambda quota: {**quota, "spec": hard})
        while used(backend) != {"pods": "0", "configmaps": "0"}:
            await asyncio.sleep(0.001)
    await loops.cancel(*tasks)
