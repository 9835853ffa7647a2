from __future__ import annotations

import asyncio
import copy

import pytest

from orch.server.objects.backend import Backend
from orch.server.objects.delete import delete
from orch.server.objects.document import decode
from orch.server.objects.modify import modify, replace
from orch.server.objects.options import DeleteOptions, WriteOptions
from orch.wire.errors import ApiError
from tests.orch.server.objects.places import made, place, pod, read

PLAIN = WriteOptions()


def with_label(key: str, value: str):
    def change(current):
        new = copy.deepcopy(current)
        new["metadata"].setdefault("labels", {})[key] = value
        return new

    return change


async def test_what_the_server_owns_cannot_be_changed(backend: Backend) -> None:
    first = await made(backend, "Node", {"metadata": {"name": "n1"}})
    sent = copy.deepcopy(first)
    sent["metadata"] |= {
        "creationTimestamp": "1999-01-01T00:00:00Z",
        "deletionTimestamp": "1999-01-01T00:00:00Z",
        "generation": 7,
        "managedFields": [],
        "labels": {"a": "b"},
    }
    stored, created = await replace(backend, place("Node", "n1"), sent, PLAIN)
    assert not created
    after = decode(stored)["metadata"]
    assert after.pop("labels") == {"a": "b"}
    assert int(after.pop("resourceVersion")) > int(first["metadata"].pop("resourceVersion"))
    assert after == first["metadata"]


async def test_another_uid_is_another_object(backend: Backend) -> None:
    first = await made(backend, "Node", {"metadata": {"name": "n1"}})
    first["metadata"]["uid"] = "someone-else"
    with pytest.raises(ApiError) as caught:
        await replace(backend, place("Node", "n1"), first, PLAIN)
    assert caught.value.code == 409
    assert "UID in precondition: someone-else" in caught.value.message


async def test_a_version_that_is_no_text_is_no_conflict_but_a_bad_request(
    backend: Backend,
) -> None:
    first = await made(backend, "Node", {"metadata": {"name": "n1"}})
    first["metadata"]["resourceVersion"] = int(first["metadata"]["resourceVersion"])
    with pytest.raises(ApiError, match=r"metadata\.resourceVersion") as caught:
        await replace(backend, place("Node", "n1"), first, PLAIN)
    assert caught.value.code == 400


async def test_a_body_without_version_replaces_whatever_is_there(backend: Backend) -> None:
    await made(backend, "Node", {"metadata": {"name": "n1", "labels": {"a": "b"}}})
    stored, _ = await replace(
        backend, place("Node", "n1"), {"spec": {"unschedulable": True}}, PLAIN
    )
    assert decode(stored)["spec"] == {"unschedulable": True}
    assert "labels" not in decode(stored)["metadata"]


async def test_patches_of_many_writers_are_all_kept(backend: Backend) -> None:
    await made(backend, "Node", {"metadata": {"name": "n1"}})
    await asyncio.gather(
        *(modify(backend, place("Node", "n1"), with_label(f"l{n}", "x"), PLAIN) for n in range(8))
    )
    labels = read(backend, place("Node", "n1"))["metadata"]["labels"]
    assert set(labels) == {f"l{n}" for n in range(8)}


async def test_who_lost_to_another_writer_tries_again_when_nobody_else_does(
    backend: Backend,
) -> None:
    """So each loses once; else everybody would, to every writer that wins."""
    await made(backend, "Node", {"metadata": {"name": "n1"}})
    tried = list[int]()

    def change(number: int):
        def changed(current):
            tried.append(number)
            return with_label(f"l{number}", "x")(current)

        return changed

    writers = range(8)
    changes = (modify(backend, place("Node", "n1"), change(n), PLAIN) for n in writers)
    await asyncio.gather(*changes)
    assert tried[:8] == list(writers)
    assert len(tried) == 8 + 7


async def test_of_writers_with_one_version_one_wins(backend: Backend) -> None:
    first = await made(backend, "Node", {"metadata": {"name": "n1"}})

    def attempt(n: int):
        sent = copy.deepcopy(first)
        sent["metadata"]["labels"] = {"by": str(n)}
        return replace(backend, place("Node", "n1"), sent, PLAIN)

    results = await asyncio.gather(*(attempt(n) for n in range(8)), return_exceptions=True)
    refused = [r for r in results if isinstance(r, ApiError)]
    assert len(refused) == 7
    assert {r.code for r in refused} == {409}


async def test_a_change_that_is_none_is_not_written(backend: Backend) -> None:
    first = await made(backend, "Node", {"metadata": {"name": "n1", "labels": {"a": "b"}}})
    stored = await modify(backend, place("Node", "n1"), with_label("a", "b"), PLAIN)
    assert str(stored.revision) == first["metadata"]["resourceVersion"]


async def test_status_and_the_rest_are_changed_at_different_paths(backend: Backend) -> None:
    await made(backend, "Node", {"metadata": {"name": "n1"}})
    both = {"spec": {"unschedulable": True}, "status": {"declaredFeatures": ["a"]}}
    stored, _ = await replace(backend, place("Node", "n1"), copy.deepcopy(both), PLAIN)
    assert decode(stored).get("status") is None
    stored, _ = await replace(backend, place("Node", "n1", "status"), copy.deepcopy(both), PLAIN)
    assert decode(stored)["status"] == {"declaredFeatures": ["a"]}
    both["spec"] = {}
    stored, _ = await replace(backend, place("Node", "n1", "status"), both, PLAIN)
    assert decode(stored)["spec"] == {"unschedulable": True}


async def test_a_pods_generation_counts_changes_of_its_spec(backend: Backend) -> None:
    await made(backend, "Pod", pod())

    def image(current):
        new = copy.deepcopy(current)
        new["spec"]["containers"][0]["image"] = "other"
        return new

    one = await modify(backend, place("Pod", "p1"), with_label("a", "b"), PLAIN)
    assert decode(one)["metadata"]["generation"] == 1
    two = await modify(backend, place("Pod", "p1"), image, PLAIN)
    assert decode(two)["metadata"]["generation"] == 2


async def test_taking_the_last_finalizer_off_finishes_a_deletion(backend: Backend) -> None:
    metadata = {"name": "n1", "finalizers": ["a.io/x", "b.io/y"]}
    await made(backend, "Node", {"metadata": metadata})
    await delete(backend, place("Node", "n1"), DeleteOptions())

    def without(count: int):
        def change(current):
            new = copy.deepcopy(current)
            new["metadata"]["finalizers"] = new["metadata"]["finalizers"][count:]
            return new

        return change

    await modify(backend, place("Node", "n1"), without(1), PLAIN)
    assert read(backend, place("Node", "n1"))["metadata"]["finalizers"] == ["b.io/y"]
    await modify(backend, place("Node", "n1"), without(1), PLAIN)
    assert read(backend, place("Node", "n1")) is None


async def test_no_finalizer_is_added_to_what_is_leaving(backend: Backend) -> None:
    await made(backend, "Node", {"metadata": {"name": "n1", "finalizers": ["a.io/x"]}})
    await delete(backend, place("Node", "n1"), DeleteOptions())

    def add(current):
        new = copy.deepcopy(current)
        new["metadata"]["finalizers"].append("b.io/y")
        return new

    with pytest.raises(ApiError, match="no new finalizers can be added"):
        await modify(backend, place("Node", "n1"), add, PLAIN)


async def test_put_creates_only_kinds_that_allow_it(backend: Backend) -> None:
    lease = {"metadata": {"name": "l1", "resourceVersion": "77"}, "spec": {}}
    stored, created = await replace(backend, place("Lease", "l1"), lease, PLAIN)
    assert created
    assert decode(stored)["metadata"]["name"] == "l1"
    for kind, path in (("Node", ""), ("Lease", "status")):
        with pytest.raises(ApiError) as caught:
            await replace(
                backend, place(kind, "nope", path), {"metadata": {"resourceVersion": "1"}}, PLAIN
            )
        assert caught.value.code == 404


async def test_a_name_other_than_the_urls_is_refused(backend: Backend) -> None:
    await made(backend, "Node", {"metadata": {"name": "n1"}})
    with pytest.raises(ApiError, match="does not match the name on the URL") as caught:
        await replace(backend, place("Node", "n1"), {"metadata": {"name": "n2"}}, PLAIN)
    assert caught.value.code == 400


async def test_an_object_that_goes_while_it_is_changed_is_not_found(backend: Backend) -> None:
    await made(backend, "Node", {"metadata": {"name": "n1"}})
    results = await asyncio.gather(
        delete(backend, place("Node", "n1"), DeleteOptions()),
        modify(backend, place("Node", "n1"), with_label("a", "b"), PLAIN),
        return_exceptions=True,
    )
    assert isinstance(results[1], ApiError)
    assert results[1].code == 404
