from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from orch.server.objects.backend import DELETIONS_A_TURN, Backend
from orch.server.objects.delete import decide, delete, delete_collection
from orch.server.objects.document import ObjectTarget, decode
from orch.server.objects.modify import modify
from orch.server.objects.options import DeleteOptions, WriteOptions
from orch.server.objects.selection import parse_selection
from orch.server.storage.base import StorageFailed
from orch.server.strategy import nodes, pods
from orch.wire.errors import ApiError
from tests.fakes.medium import FakeMedium
from tests.orch.server.objects.places import made, place, pod, read

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


def marked(document, options: DeleteOptions, strategy=pods.STRATEGY):
    """(deletionTimestamp, grace, finalizers) of the document to store; None: remove it now."""
    deletion = decide(strategy, document, options, NOW)
    if deletion.marked is None:
        return None
    metadata = deletion.marked["metadata"]
    return (
        metadata["deletionTimestamp"][11:19],
        metadata["deletionGracePeriodSeconds"],
        metadata.get("finalizers", []),
    )


def running(grace: int | None = None, **metadata):
    spec = {"nodeName": "n1"} | ({} if grace is None else {"terminationGracePeriodSeconds": grace})
    return {"metadata": {"name": "p", **metadata}, "spec": spec, "status": {"phase": "Running"}}


LEAVING = {"deletionTimestamp": "2026-01-01T12:00:10Z", "deletionGracePeriodSeconds": 10}


@pytest.mark.parametrize(
    ("document", "options", "expected"),
    [
        (running(), DeleteOptions(), ("12:00:30", 30, [])),
        (running(5), DeleteOptions(), ("12:00:05", 5, [])),
        (running(0), DeleteOptions(), None),
        (running(5), DeleteOptions(grace_period_s=7), ("12:00:07", 7, [])),
        (running(5), DeleteOptions(grace_period_s=0), None),
        (running(5), DeleteOptions(grace_period_s=-3), ("12:00:01", 1, [])),
        ({"metadata": {}, "spec": {}}, DeleteOptions(), None),
        ({"metadata": {}, "spec": {}}, DeleteOptions(grace_period_s=9), None),
        ({**running(5), "status": {"phase": "Succeeded"}}, DeleteOptions(), None),
        ({**running(5), "status": {"phase": "Failed"}}, DeleteOptions(), None),
        (running(5, **LEAVING), DeleteOptions(grace_period_s=20), ("12:00:10", 10, [])),
        (running(5, **LEAVING), DeleteOptions(grace_period_s=3), ("12:00:03", 3, [])),
        (running(5, **LEAVING), DeleteOptions(grace_period_s=0), None),
        (
            running(5, finalizers=["a/b"]),
            DeleteOptions(grace_period_s=0),
            ("12:00:00", 0, ["a/b"]),
        ),
        (
            running(5),
            DeleteOptions(grace_period_s=0, propagation="Foreground"),
            ("12:00:00", 0, ["foregroundDeletion"]),
        ),
        (
            running(5, finalizers=["a/b", "foregroundDeletion"]),
            DeleteOptions(propagation="Orphan"),
            ("12:00:05", 5, ["a/b", "orphan"]),
        ),
        (
            running(5, finalizers=["orphan"]),
            DeleteOptions(grace_period_s=0, propagation="Background"),
            None,
        ),
        (
            running(5, finalizers=["orphan"], **LEAVING),
            DeleteOptions(grace_period_s=20, propagation="Foreground"),
            ("12:00:10", 10, ["foregroundDeletion"]),
        ),
        (running(5), DeleteOptions(grace_period_s=0, propagation="Background"), None),
    ],
)
def test_a_pod_is_removed_or_marked(document, options, expected) -> None:
    assert marked(document, options) == expected


def test_marking_leaves_the_given_document_alone_and_counts_a_generation() -> None:
    document = running(5, generation=1)
    deletion = decide(pods.STRATEGY, document, DeleteOptions(), NOW)
    assert document["metadata"] == {"name": "p", "generation": 1}
    assert deletion.marked["metadata"]["generation"] == 2


def test_other_kinds_know_no_grace() -> None:
    assert marked({"metadata": {}}, DeleteOptions(grace_period_s=30), nodes.NODE_STRATEGY) is None
    held = {"metadata": {"finalizers": ["a/b"]}}
    assert marked(held, DeleteOptions(), nodes.NODE_STRATEGY) == ("12:00:00", 0, ["a/b"])


async def test_deleting_gives_the_last_state_with_a_version_of_its_own(backend: Backend) -> None:
    first = await made(backend, "Node", {"metadata": {"name": "n1"}})
    deleted = await delete(backend, place("Node", "n1"), DeleteOptions())
    assert deleted.gone
    assert deleted.stored.revision > int(first["metadata"]["resourceVersion"])
    with pytest.raises(ApiError) as caught:
        await delete(backend, place("Node", "n1"), DeleteOptions())
    assert caught.value.code == 404


async def test_marking_twice_writes_once(backend: Backend) -> None:
    await made(backend, "Pod", pod(nodeName="n1"))
    one = await delete(backend, place("Pod", "p1"), DeleteOptions())
    two = await delete(backend, place("Pod", "p1"), DeleteOptions())
    assert not one.gone
    assert one.stored == two.stored


@pytest.mark.parametrize(
    "options",
    [DeleteOptions(uid="someone-else"), DeleteOptions(resource_version="12345")],
)
async def test_preconditions_must_hold(backend: Backend, options: DeleteOptions) -> None:
    first = await made(backend, "Node", {"metadata": {"name": "n1"}})
    with pytest.raises(ApiError, match="Precondition failed") as caught:
        await delete(backend, place("Node", "n1"), options)
    assert caught.value.code == 409
    fitting = DeleteOptions(
        uid=first["metadata"]["uid"], resource_version=first["metadata"]["resourceVersion"]
    )
    assert (await delete(backend, place("Node", "n1"), fitting)).gone


@pytest.mark.parametrize("name", ["default", "orch-system", "orch-node-lease"])
async def test_the_first_namespaces_stay(backend: Backend, name: str) -> None:
    with pytest.raises(ApiError) as caught:
        await delete(backend, place("Namespace", name), DeleteOptions())
    assert caught.value.code == 403


async def test_a_namespace_is_terminating_until_it_is_emptied(backend: Backend) -> None:
    await made(backend, "Namespace", {"metadata": {"name": "x"}})
    deleted = await delete(backend, place("Namespace", "x"), DeleteOptions())
    assert not deleted.gone
    assert decode(deleted.stored)["status"]["phase"] == "Terminating"
    assert read(backend, place("Namespace", "x"))["spec"]["finalizers"] == ["orch"]


async def test_a_collection_is_what_is_selected(backend: Backend) -> None:
    for name in ("a", "b", "c"):
        await made(backend, "Pod", {**pod(), "metadata": {"name": name, "labels": {"n": name}}})
    selection = parse_selection(pods.STRATEGY, "n!=b", "")
    deleted = await delete_collection(backend, place("Pod"), selection, DeleteOptions())
    assert deleted == 2
    assert read(backend, place("Pod", "b")) is not None
    assert read(backend, place("Pod", "a")) is None


async def test_a_large_collection_shares_commits_and_survives_a_failing_medium(
    backend: Backend, medium: FakeMedium
) -> None:
    for number in range(150):
        await made(backend, "Lease", {"metadata": {"name": f"l{number}"}})
    everything = parse_selection(nodes.LEASE_STRATEGY, "", "")
    medium.failing = StorageFailed("disk full")
    with pytest.raises(StorageFailed):
        await delete_collection(backend, place("Lease"), everything, DeleteOptions())
    medium.failing = None
    before = medium.commits
    assert await delete_collection(backend, place("Lease"), everything, DeleteOptions()) == 150
    assert medium.commits - before < 50


async def test_few_deletions_of_collections_begin_in_one_turn_of_the_loop(
    backend: Backend,
) -> None:
    """Of all collections together: whoever asks meanwhile has to wait for several turns."""
    for number in range(140):  # some batches of each collection, the last one begins at once
        await made(backend, "Lease", {"metadata": {"name": f"l{number}"}})
    turn, begun = 0, Counter[int]()

    async def count_turns() -> None:
        nonlocal turn
        while True:
            await asyncio.sleep(0)
            turn += 1

    def counted() -> Backend:
        """Of one collection; what another deleted first is tried again, which is no beginning."""
        names = set[str]()

        def count(target: ObjectTarget, *_: object) -> None:
            begun[turn] += target.name not in names
            names.add(target.name)

        return dataclasses.replace(backend, admit_deletion=count)

    counting = asyncio.create_task(count_turns())
    everything = parse_selection(nodes.LEASE_STRATEGY, "", "")
    collections = (
        delete_collection(counted(), place("Lease"), everything, DeleteOptions()) for _ in range(3)
    )
    assert sum(await asyncio.gather(*collections)) == 140
    counting.cancel()
    assert max(begun.values()) <= DELETIONS_A_TURN


async def test_a_dry_run_deletes_nothing(backend: Backend) -> None:
    await made(backend, "Pod", pod(nodeName="n1"))
    await made(backend, "Node", {"metadata": {"name": "n1"}})
    dry = DeleteOptions(dry_run=True)
    assert (await delete(backend, place("Node", "n1"), dry)).gone
    marked_only = await delete(backend, place("Pod", "p1"), dry)
    assert "deletionTimestamp" in decode(marked_only.stored)["metadata"]
    assert read(backend, place("Node", "n1")) is not None
    assert "deletionTimestamp" not in read(backend, place("Pod", "p1"))["metadata"]


@pytest.mark.parametrize("spec", [[{}], "x", 1, {"finalizers": ["example.com/x"]}])
async def test_a_spec_where_a_kind_has_none_holds_nothing_back(backend: Backend, spec: Any) -> None:
    await made(backend, "ConfigMap", {"metadata": {"name": "c"}, "spec": spec})
    target = place("ConfigMap", "c")
    assert (await delete(backend, target, DeleteOptions())).gone
    assert read(backend, target) is None


async def test_nor_when_its_last_finalizer_goes(backend: Backend) -> None:
    metadata = {"name": "c", "finalizers": ["example.com/x"]}
    await made(backend, "ConfigMap", {"metadata": metadata, "spec": [{}]})
    target = place("ConfigMap", "c")
    assert not (await delete(backend, target, DeleteOptions())).gone

    def free(old: dict[str, Any]) -> dict[str, Any]:
        return {**old, "metadata": {**old["metadata"], "finalizers": []}}

    await modify(backend, target, free, WriteOptions())
    assert read(backend, target) is None
