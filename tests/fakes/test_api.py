"""The fake API server keeps the rules its users lean on."""

import asyncio

import pytest

from orch.wire.errors import ApiError
from orch.wire.records.configuration import Lease
from orch.wire.records.core import Node
from orch.wire.records.meta import ObjectMeta
from orch.wire.records.pods import Pod, PodSpec
from tests.fakes.api import FakeApi


def node(name: str = "n1") -> Node:
    return Node(metadata=ObjectMeta(name=name))


async def test_an_object_comes_back_with_uid_and_version() -> None:
    api = FakeApi()
    made = await api.create(node())
    assert made.metadata.uid and made.metadata.resourceVersion and made.metadata.creationTimestamp
    assert await api.get(Node, "n1") == made


async def test_a_name_in_use_and_a_missing_name_are_refused() -> None:
    api = FakeApi()
    await api.create(node())
    with pytest.raises(ApiError) as refused:
        await api.create(node())
    assert refused.value.reason == "AlreadyExists"
    with pytest.raises(ApiError) as missing:
        await api.get(Node, "n2")
    assert missing.value.code == 404


async def test_an_update_from_an_old_version_conflicts() -> None:
    api = FakeApi()
    lease = await api.create(Lease(metadata=ObjectMeta(name="l", namespace="ns")))
    lease.spec.renewTime = "a"
    await api.update(lease)
    with pytest.raises(ApiError) as conflict:
        await api.update(lease)
    assert conflict.value.reason == "Conflict"


async def test_status_and_spec_are_written_apart_and_equal_writes_change_nothing() -> None:
    api = FakeApi()
    made = await api.create(node())
    patch = {"status": {"capacity": {"cpu": "2"}}, "spec": {"unschedulable": True}}
    patched = await api.patch(Node, "n1", patch, subresource="status")
    assert patched.status.capacity == {"cpu": "2"} and patched.spec.unschedulable is None
    again = await api.patch(Node, "n1", patch, subresource="status")
    assert again.metadata.resourceVersion == patched.metadata.resourceVersion
    spec = await api.patch(Node, "n1", {**patch, "status": {"capacity": None}})
    assert spec.spec.unschedulable is True and spec.status.capacity == {"cpu": "2"}
    assert spec.metadata.uid == made.metadata.uid


async def test_a_running_pod_is_marked_first_and_removed_by_grace_zero() -> None:
    api = FakeApi()
    meta = ObjectMeta(name="p", namespace="ns")
    await api.create(Pod(metadata=meta, spec=PodSpec(nodeName="n1")))
    await api.delete(Pod, "p", "ns")
    marked = api.store.peek(Pod, "p", "ns")
    assert marked.metadata.deletionTimestamp and marked.metadata.deletionGracePeriodSeconds == 30
    await api.delete(Pod, "p", "ns", grace_period_s=0)
    assert api.store.peek(Pod, "p", "ns") is None


async def test_faults_fail_hang_and_lose_answers() -> None:
    api = FakeApi()
    api.fail(OSError("gone"), verb="create", times=2)
    for _ in range(2):
        with pytest.raises(OSError, match="gone"):
            await api.create(node())
    api.fail(OSError("lost"), verb="create", applied=True)
    with pytest.raises(OSError, match="lost"):
        await api.create(node())
    assert api.store.peek(Node, "n1") is not None
    api.hang(verb="get")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(api.get(Node, "n1"), 0.01)
    api.heal()
    assert (await api.get(Node, "n1")).metadata.name == "n1"
    assert [c.verb for c in api.made("create")] == ["create"] * 3


async def test_a_watch_resumes_and_is_refused_below_the_compaction() -> None:
    api = FakeApi()
    listed = await api.list(Node)
    await api.create(node())
    events = api.watch(Node, resource_version=listed.resource_version)
    assert (await anext(events)).type == "ADDED"
    api.store.remove(Node, "n1")
    assert (await anext(events)).type == "DELETED"
    await events.aclose()
    api.store.compact()
    with pytest.raises(ApiError) as old:
        await anext(api.watch(Node, resource_version=listed.resource_version))
    assert old.value.code == 410
