"""After pkg/kubelet/kubelet_node_status_test.go TestTryRegisterWithApiServer (upstream)."""

import pytest

from nodeagent.node.status_loop import register
from orch.wire import errors
from orch.wire.errors import ApiError
from orch.wire.records.core import Node, NodeSpec, NodeStatus
from orch.wire.records.meta import ObjectMeta
from tests.fakes.api import FakeApi

WANTED = Node(
    metadata=ObjectMeta(name="n1", labels={"orch.io/os": "linux", "rack": "1"}),
    status=NodeStatus(capacity={"cpu": "1"}),
)


async def test_a_new_node_is_created_whole() -> None:
    api = FakeApi()
    node = await register(api, WANTED, create=True)
    assert node.metadata.labels == WANTED.metadata.labels
    assert [call.verb for call in api.calls] == ["create"]


async def test_a_node_that_exists_is_adopted_and_its_default_labels_repaired() -> None:
    api = FakeApi()
    meta = ObjectMeta(name="n1", labels={"orch.io/os": "plan9", "mine": "kept"})
    api.store.put(Node(metadata=meta, spec=NodeSpec(unschedulable=True)))
    node = await register(api, WANTED, create=True)
    assert node.metadata.labels == {"orch.io/os": "linux", "mine": "kept"}
    assert node.spec.unschedulable
    again = await register(api, WANTED, create=True)
    assert again == node
    assert [call.verb for call in api.calls] == ["create", "get", "patch", "create", "get"]


async def test_who_may_not_create_adopts() -> None:
    api = FakeApi()
    api.store.put(Node(metadata=ObjectMeta(name="n1")))
    api.fail(errors.forbidden("no"), verb="create")
    assert (await register(api, WANTED, create=True)).metadata.name == "n1"


async def test_without_registration_the_node_must_be_there() -> None:
    api = FakeApi()
    with pytest.raises(ApiError, match="not found"):
        await register(api, WANTED, create=False)
    api.store.put(Node(metadata=ObjectMeta(name="n1")))
    await register(api, WANTED, create=False)
    assert not api.made("create")


async def test_other_refusals_are_the_callers_to_retry() -> None:
    api = FakeApi()
    api.fail(errors.service_unavailable("starting"), verb="create")
    with pytest.raises(ApiError, match="starting"):
        await register(api, WANTED, create=True)
