from __future__ import annotations

from dataclasses import replace

import pytest

from orch.server.objects.backend import Backend
from orch.server.objects.create import create
from orch.server.objects.delete import delete
from orch.server.objects.document import decode
from orch.server.objects.options import DeleteOptions, WriteOptions
from orch.server.storage.base import StorageFailed
from orch.wire.errors import ApiError, forbidden
from tests.fakes.medium import FakeMedium
from tests.orch.server.objects.places import made, place, pod, read

PLAIN = WriteOptions()


async def test_the_server_owns_identity_and_time(backend: Backend) -> None:
    sent = {
        "name": "n1",
        "uid": "mine",
        "creationTimestamp": "1999-01-01T00:00:00Z",
        "deletionTimestamp": "1999-01-01T00:00:00Z",
        "deletionGracePeriodSeconds": 5,
        "generation": 9,
        "selfLink": "/x",
        "managedFields": [{"manager": "x"}],
        "labels": {"a": "b"},
        "annotations": {"c": "d"},
    }
    created = await made(backend, "Node", {"metadata": sent})
    (entry,) = created["metadata"].pop("managedFields")
    assert entry["manager"] == "orch-apiserver"
    assert created["metadata"] == {
        "name": "n1",
        "uid": "uid-2",
        "creationTimestamp": "2026-01-01T12:00:00Z",
        "labels": {"a": "b"},
        "annotations": {"c": "d"},
        "resourceVersion": "2",
    }


async def test_kind_version_and_namespace_come_from_the_url(backend: Backend) -> None:
    created = await made(backend, "Pod", pod())
    assert (created["kind"], created["apiVersion"]) == ("Pod", "v1")
    assert created["metadata"]["namespace"] == "default"
    cluster = await made(backend, "Node", {"metadata": {"name": "n", "namespace": "ignored"}})
    assert "namespace" not in cluster["metadata"]


@pytest.mark.parametrize(
    ("document", "code", "text"),
    [
        ({"metadata": {}}, 422, "metadata.name: Required value: name or generateName is required"),
        ({"kind": "Pod", "metadata": {"name": "x"}}, 400, "kind"),
        ({"apiVersion": "v2", "metadata": {"name": "x"}}, 400, "apiVersion"),
        ({"metadata": {"name": "x", "namespace": "else"}}, 400, "namespace"),
        ({"metadata": {"name": "x", "resourceVersion": "3"}}, 400, "resourceVersion"),
        ({"metadata": {"name": "x"}, "spec": {"leaseDurationSeconds": "soon"}}, 400, "spec.lease"),
        ({"metadata": {"name": "A B"}}, 422, 'metadata.name: Invalid value: "A B"'),
        ({"metadata": {"name": "x", "labels": {"a b": "c"}}}, 422, "metadata.labels"),
    ],
)
async def test_what_is_no_such_object_is_refused(backend, document, code, text) -> None:
    with pytest.raises(ApiError) as caught:
        await create(backend, place("Lease"), document, PLAIN)
    assert caught.value.code == code
    assert text in caught.value.message


async def test_a_refusal_lists_every_cause(backend: Backend) -> None:
    spec = {"leaseDurationSeconds": 0, "leaseTransitions": -1}
    with pytest.raises(ApiError) as caught:
        await create(backend, place("Lease"), {"metadata": {"name": "x"}, "spec": spec}, PLAIN)
    error = caught.value
    assert [cause.field for cause in error.causes] == [
        "spec.leaseDurationSeconds",
        "spec.leaseTransitions",
    ]
    assert error.message == (
        'Lease.coordination.orch.io "x" is invalid: ['
        "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0, "
        "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0]"
    )


async def test_a_generated_name_that_is_taken_is_tried_again(backend: Backend) -> None:
    suffixes = iter(["aaaaa", "aaaaa", "bbbbb"])
    generating = replace(backend, new_suffix=lambda: next(suffixes))
    base = {"generateName": "x" * 80}
    names = [
        decode(await create(generating, place("Lease"), {"metadata": dict(base)}, PLAIN))[
            "metadata"
        ]["name"]
        for _ in range(2)
    ]
    assert names == ["x" * 58 + "aaaaa", "x" * 58 + "bbbbb"]


async def test_when_no_generated_name_is_free_the_client_may_try_later(backend: Backend) -> None:
    document = {"metadata": {"generateName": "x-"}}
    await create(backend, place("Lease"), {"metadata": {"name": "x-abcde"}}, PLAIN)
    with pytest.raises(ApiError) as caught:
        await create(backend, place("Lease"), document, PLAIN)
    assert (caught.value.code, caught.value.retry_after_s) == (409, 1)
    assert "not able to generate a unique name" in caught.value.message


async def test_nothing_is_created_in_a_namespace_that_is_leaving(backend: Backend) -> None:
    await made(backend, "Namespace", {"metadata": {"name": "leaving"}})
    await delete(backend, place("Namespace", "leaving"), DeleteOptions())
    with pytest.raises(ApiError) as caught:
        await create(backend, place("Pod", namespace="leaving"), pod(), PLAIN)
    assert caught.value.code == 403
    assert caught.value.causes[0].reason == "NamespaceTerminating"


async def test_admission_sees_the_whole_object_and_can_refuse_it(
    backend: Backend, medium: FakeMedium
) -> None:
    seen = []

    class Refusing:
        def judges(self, _resource) -> bool:
            return True

        def check(self, target, new, old) -> None:
            seen.append((target.strategy.resource.kind, new["spec"]["restartPolicy"], old))
            raise forbidden("no")

    before = medium.revision
    refusing = replace(backend, admission={"pods": (Refusing(),)})
    with pytest.raises(ApiError, match="no"):
        await create(refusing, place("Pod"), pod(), PLAIN)
    assert seen == [("Pod", "Always", None)]
    assert medium.revision == before


async def test_a_dry_run_validates_and_stores_nothing(backend: Backend) -> None:
    dry = WriteOptions(dry_run=True)
    stored = await create(backend, place("Pod"), pod(), dry)
    assert stored.revision == 0
    assert read(backend, place("Pod", "p1")) is None
    await made(backend, "Pod", pod())
    with pytest.raises(ApiError) as caught:
        await create(backend, place("Pod"), pod(), dry)
    assert caught.value.reason == "AlreadyExists"


async def test_a_full_disk_is_no_success(backend: Backend, medium: FakeMedium) -> None:
    medium.failing = StorageFailed("disk full")
    with pytest.raises(StorageFailed):
        await create(backend, place("Node"), {"metadata": {"name": "x"}}, PLAIN)
    medium.failing = None
    assert read(backend, place("Node", "x")) is None
