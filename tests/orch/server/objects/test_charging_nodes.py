"""The memory that pods take of the agents of their nodes is bounded, by node and namespace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from orch.component.process import loops
from orch.server.objects.backend import Backend
from orch.server.objects.charging import Charging, on_its_node
from orch.server.objects.create import create
from orch.server.objects.delete import delete
from orch.server.objects.document import Document, ObjectTarget, decode
from orch.server.objects.informer import StorageInformer
from orch.server.objects.modify import modify
from orch.server.objects.options import DeleteOptions, WriteOptions
from orch.server.objects.pod_subresources import bind, evict
from orch.server.storage.base import Stored
from orch.server.storage.tally import Bounds
from orch.server.strategy import pods
from orch.wire.errors import ApiError
from orch.wire.names import CAUSE_NODE_FULL, SYSTEM_NAMESPACE, USER_CONTROLLER_MANAGER
from orch.wire.records.authentication import Identity
from orch.wire.records.kinds import PODS
from tests.orch.server.objects.places import made, place, pod, read

TENANT = Identity("tenant")
NODE = Identity("system:node:n1", ("system:nodes",))
BINDER = Identity(USER_CONTROLLER_MANAGER)
BOUND = 1 << 20


async def bounded(backend: Backend, bound: int) -> tuple[Backend, asyncio.Task[None]]:
    """A backend that bounds the pods of nodes, and the task that follows them, as the server's."""
    charges = Charging(backend.storage, Bounds(node_bytes=bound))

    def follow(key: str, stored: Stored | None) -> None:
        if stored is None:
            charges.nodes.drop(key)
        else:
            document = decode(stored)
            amount = on_its_node(document, stored.data)
            charges.nodes.put(key, pods.node_of(document), amount)

    informer = StorageInformer(backend.storage, PODS, follow)
    informer.load()
    task = loops.spawn(informer.run(), name="informer")
    return replace(backend, charge=charges.charged), task


@pytest.fixture
async def placed(backend: Backend) -> AsyncIterator[Backend]:
    for name in ("a", "b", "c", SYSTEM_NAMESPACE):
        await made(backend, "Namespace", {"metadata": {"name": name}})
    charged, task = await bounded(backend, BOUND)
    yield charged
    await loops.cancel(task)


def on(
    namespace: str, name: str = "", subresource: str = "", caller: Identity = TENANT
) -> ObjectTarget:
    return place("Pod", name, subresource, namespace)._replace(identity=caller)


def many(count: int) -> list[dict[str, str]]:
    return [{"key": f"k{number}"} for number in range(count)]


def heavy(name: str, node: str = "n1", **spec: Any) -> Document:
    """A pod that takes about 180 KB of its agent."""
    return pod(name, tolerations=many(250), nodeName=node, **spec)


async def filled(backend: Backend, namespace: str, node: str = "n1") -> tuple[int, str]:
    """How many pods there was room for, and why there was none for the next."""
    for number in range(20):
        try:
            await create(backend, on(namespace), heavy(f"{node}-{number}", node))
        except ApiError as error:
            assert (error.code, error.reason) == (403, "Forbidden")
            assert [cause.reason for cause in error.causes] == [CAUSE_NODE_FULL]
            return number, error.message
    return 20, ""


async def test_the_pods_of_a_node_take_so_much_and_those_of_a_namespace_half(
    placed: Backend,
) -> None:
    count, text = await filled(placed, "a")
    assert count == 2
    assert text.startswith(
        'pods "n1-2" is forbidden: exceeded quota: --max-node-mib of node n1, half of it for'
        " namespace a, for the memory that pods take of its agent, requested: bytes="
    )
    assert text.endswith(
        ", limited: bytes=524288: delete pods of that node, choose another one, or have the API"
        " server started with a higher bound"
    )
    assert (await filled(placed, "b"))[0] == 2
    count, text = await filled(placed, "c")
    assert count == 1
    assert "of node n1 for the memory that pods take of its agent, requested: bytes=" in text
    assert (await filled(placed, "c", "n2"))[0] == 2
    await delete(placed, on("a", "n1-0"), DeleteOptions(grace_period_s=0))
    await create(placed, on("c"), heavy("later"))


async def test_a_pod_that_has_a_node_is_charged_for_what_it_grows_by(placed: Backend) -> None:
    await filled(placed, "a")
    await create(placed, on("a"), pod("elsewhere"))

    def tolerant(document: Document) -> Document:
        return {**document, "spec": {**document["spec"], "tolerations": many(600)}}

    with pytest.raises(ApiError, match="exceeded quota: --max-node-mib of node n1"):
        await modify(placed, on("a", "n1-0"), tolerant)
    await modify(placed, on("a", "elsewhere"), tolerant)


async def test_of_a_binding_the_pod_counts_and_not_who_binds(placed: Backend) -> None:
    await filled(placed, "a")
    for namespace in ("a", "b", SYSTEM_NAMESPACE):
        unbound = {name: part for name, part in heavy("p")["spec"].items() if name != "nodeName"}
        await create(placed, on(namespace), {"metadata": {"name": "p"}, "spec": unbound})
    hard = {"metadata": {"name": "q"}, "spec": {"hard": {"orch.io/bytes": "1"}}}
    await create(placed, place("ResourceQuota", namespace="b"), hard)

    def binding(namespace: str, node: str, *, dry_run: bool = False) -> Any:
        target = {"target": {"kind": "Node", "name": node}}
        return bind(placed, on(namespace, "p", "binding", BINDER), target, dry_run=dry_run)

    for dry_run in (True, False):
        with pytest.raises(ApiError, match="half of it for namespace a") as refused:
            await binding("a", "n1", dry_run=dry_run)
        assert [cause.reason for cause in refused.value.causes] == [CAUSE_NODE_FULL]
    for namespace in ("b", SYSTEM_NAMESPACE):
        await binding(namespace, "n1")
    await binding("a", "n2")
    stored = read(placed, place("Pod", "p", namespace="a"))
    assert stored is not None and pods.node_of(stored) == "n2"


async def test_statuses_that_containers_are_to_have_are_charged_before_they_are_reported(
    placed: Backend,
) -> None:
    """Reports pass whatever the bound is, so that what a node runs is known."""
    names = [f"c{number}" for number in range(30)]
    containers = [{"name": name, "image": "i"} for name in names]
    ended = {"terminated": {"exitCode": 1, "reason": "Error", "containerID": "c" * 77}}
    status = {
        "phase": "Running",
        "containerStatuses": [
            {
                "name": name,
                "image": "i",
                "imageID": "i" * 71,
                "containerID": "c" * 77,
                "ready": False,
                "restartCount": 1,
                "resources": {},
                "lastState": ended,
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "user": {"linux": {"uid": 0, "gid": 0}},
            }
            for name in names
        ],
    }

    def reported(document: Document) -> Document:
        return {**document, "status": status}

    count = 0
    with pytest.raises(ApiError, match="of node n1, half of it for namespace a"):
        for count in range(20):
            await create(placed, on("a"), pod(f"p{count}", nodeName="n1", containers=containers))
    for number in range(count):
        await modify(placed, on("a", f"p{number}", "status", NODE), reported)
    small = pod("small", nodeName="n1")
    await create(placed, on("a"), small)
    assert (await filled(placed, "b"))[0] == 2, "the reports left others their half"


async def test_pods_on_their_way_to_a_node_count(placed: Backend) -> None:
    made_at_once = (create(placed, on("a"), heavy(f"p{number}")) for number in range(10))
    results = await asyncio.gather(*made_at_once, return_exceptions=True)
    assert sum(isinstance(result, ApiError) for result in results) == 8
    trying = (create(placed, on("b"), heavy("p"), WriteOptions(dry_run=True)) for _ in range(3))
    await asyncio.gather(*trying, return_exceptions=True)
    assert (await filled(placed, "b"))[0] == 2, "what was only tried is given back"


async def test_what_a_node_runs_already_is_reported_shown_changed_and_ended(
    backend: Backend,
) -> None:
    """A store that exceeds the bound, from before there was one."""
    for name in ("p", "q"):
        await made(backend, "Pod", heavy(name))
    charged, task = await bounded(backend, 1)
    conditions = [{"type": f"t{number}", "status": "True"} for number in range(60)]
    status = {"status": {"phase": "Running", "conditions": conditions}}
    reporting = on("default", "p", "status", NODE)
    await modify(charged, reporting, lambda pod: {**pod, **status})
    mirror = pod("m", nodeName="n1")
    mirror["metadata"]["annotations"] = {"orch.io/config.mirror": "1"}
    await create(charged, on("default", caller=NODE), mirror)
    await made(charged, "Pod", heavy("of-an-administrator"))

    def labelled(document: Document, **labels: str) -> Document:
        return {**document, "metadata": {**document["metadata"], "labels": labels}}

    with pytest.raises(ApiError, match="of node n1"):
        await modify(charged, on("default", "p"), lambda pod: labelled(pod, a="b"))
    await modify(charged, on("default", "p"), lambda pod: pod)
    eviction = {"metadata": {"name": "p"}}
    await evict(charged, on("default", "p", "eviction"), eviction, dry_run=False)
    await delete(charged, on("default", "q"), DeleteOptions())
    for name in "pq":
        left = read(charged, place("Pod", name))
        assert left is not None and left["metadata"]["deletionTimestamp"]
    await loops.cancel(task)


async def test_critical_pods_and_those_of_the_system_pass(placed: Backend) -> None:
    """Their priority was judged before."""
    await filled(placed, "a")
    await filled(placed, "b")
    await filled(placed, "c")
    await create(placed, on(SYSTEM_NAMESPACE), heavy("proxy"))
    await create(placed, on("a"), heavy("agent", priority=2_000_000_000))
    with pytest.raises(ApiError, match="of node n1"):
        await create(placed, on("a"), heavy("greedy", priority=1_000_000_000))
