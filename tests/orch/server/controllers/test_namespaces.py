from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from orch.server.controllers.namespaces import empty_terminating
from orch.server.objects.backend import Backend
from orch.server.objects.create import create
from orch.server.objects.delete import delete
from orch.server.objects.modify import modify
from orch.server.objects.options import DeleteOptions, WriteOptions
from orch.server.storage.base import Change, StorageFailed, StorageFull
from tests.fakes.medium import FakeMedium
from tests.orch.server.objects.places import made, place, pod, read


async def leaving(backend: Backend, *pods: dict) -> None:
    await made(backend, "Namespace", {"metadata": {"name": "x"}})
    for document in pods:
        await create(backend, place("Pod", namespace="x"), document, WriteOptions())
    await delete(backend, place("Namespace", "x"), DeleteOptions())


async def test_an_empty_namespace_goes_in_one_round(backend: Backend) -> None:
    await leaving(backend)
    await empty_terminating(backend)
    assert read(backend, place("Namespace", "x")) is None


async def test_contents_go_first_and_pods_of_agents_with_grace(backend: Backend) -> None:
    await leaving(backend, pod("loose"), pod("running", nodeName="n1"))
    await empty_terminating(backend)
    assert read(backend, place("Pod", "loose", namespace="x")) is None
    running = read(backend, place("Pod", "running", namespace="x"))
    assert running["metadata"]["deletionGracePeriodSeconds"] == 30
    assert read(backend, place("Namespace", "x")) is not None
    gone = DeleteOptions(grace_period_s=0)
    await delete(backend, place("Pod", "running", namespace="x"), gone)
    await empty_terminating(backend)
    assert read(backend, place("Namespace", "x")) is None


async def test_contents_that_wait_for_others_are_not_deleted_every_second(
    backend: Backend,
) -> None:
    """Fifty thousand of them would keep the server busy for ever."""
    held = {"metadata": {"name": "held", "finalizers": ["a.io/b"]}}
    await made(backend, "Namespace", {"metadata": {"name": "x"}})
    target = place("ConfigMap", "held", namespace="x")
    await create(backend, target._replace(name=""), held, WriteOptions())
    await delete(backend, place("Namespace", "x"), DeleteOptions())
    attempts = []
    counted = replace(backend, admit_deletion=lambda target, _old: attempts.append(target.name))
    for _ in range(3):
        await empty_terminating(counted)
    assert attempts == ["held"]
    await modify(backend, target, lambda old: {**old, "data": {"a": "b"}})
    await empty_terminating(counted)
    assert attempts == ["held"]
    await modify(backend, target, without_finalizers)
    await empty_terminating(counted)
    assert read(backend, place("Namespace", "x")) is None


def without_finalizers(document: dict) -> dict:
    return {**document, "metadata": {**document["metadata"], "finalizers": []}}


async def test_namespaces_in_use_are_left_alone(backend: Backend) -> None:
    await made(backend, "Pod", pod())
    before = backend.storage.revision
    await empty_terminating(backend)
    assert backend.storage.revision == before


async def test_a_namespace_held_by_someone_else_stays_until_they_let_go(backend: Backend) -> None:
    await made(
        backend, "Namespace", {"metadata": {"name": "x"}, "spec": {"finalizers": ["a.io/b"]}}
    )
    await delete(backend, place("Namespace", "x"), DeleteOptions())
    for _ in range(2):
        await empty_terminating(backend)
    assert read(backend, place("Namespace", "x"))["spec"]["finalizers"] == ["a.io/b"]


async def test_a_failing_medium_is_for_the_next_round(
    backend: Backend, medium: FakeMedium, caplog: pytest.LogCaptureFixture
) -> None:
    await leaving(backend, pod("loose"))
    medium.failing = StorageFailed("disk full")
    await empty_terminating(backend)
    assert caplog.messages == []  # said once, by the health of storage
    medium.failing = None
    await empty_terminating(backend)
    assert read(backend, place("Namespace", "x")) is None


async def test_where_nothing_can_be_created_namespaces_go_all_the_same(
    backend: Backend, medium: FakeMedium, monkeypatch: pytest.MonkeyPatch
) -> None:
    await leaving(backend, pod("loose"))
    commit = medium.commit

    def commit_changes(changes: Sequence[Change], revision: int) -> None:
        commit(changes, revision)
        if not changes:
            raise StorageFull("disk full")

    monkeypatch.setattr(medium, "commit", commit_changes)
    await empty_terminating(backend)
    assert read(backend, place("Namespace", "x")) is None


async def test_on_a_full_disk_contents_are_deleted_all_the_same(
    backend: Backend, medium: FakeMedium, monkeypatch: pytest.MonkeyPatch
) -> None:
    await leaving(backend, pod("loose"))
    commit = medium.commit

    def commit_changes(changes: Sequence[Change], revision: int) -> None:
        if not changes:  # a check: not even the reserve had room
            raise StorageFailed("disk full")
        commit(changes, revision)

    with monkeypatch.context() as full:
        full.setattr(medium, "commit", commit_changes)
        await empty_terminating(backend)
        assert read(backend, place("Pod", "loose", namespace="x")) is None
        assert read(backend, place("Namespace", "x")) is not None
    await empty_terminating(backend)
    assert read(backend, place("Namespace", "x")) is None
