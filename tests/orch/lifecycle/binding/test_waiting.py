"""The order of those who wait, and when they are tried again."""

from __future__ import annotations

import pytest

from orch.lifecycle.binding.waiting import ANYWAY_S, Attempts, Rotation, in_turn
from orch.wire.records.meta import ObjectMeta
from orch.wire.records.pods import Pod, PodSpec


def pod(key: str, priority: int | None = None, created: str = "2026-01-01", **meta: int) -> Pod:
    namespace, _, name = key.partition("/")
    metadata = ObjectMeta(
        name=name, namespace=namespace, uid=key, creationTimestamp=created, **meta
    )
    return Pod(metadata=metadata, spec=PodSpec(priority=priority))


def order(*pods: Pod, attempts: Attempts | None = None) -> list[str]:
    return [one.key for one in in_turn(pods, attempts or Attempts())]


def test_the_highest_priority_comes_first_and_none_is_zero() -> None:
    assert order(pod("a/x"), pod("b/y", 10), pod("c/z", -1), pod("d/w", 0), pod("a/v", 10)) == [
        "a/v", "b/y", "d/w", "a/x", "c/z",
    ]  # fmt: skip


def test_namespaces_take_turns_however_many_pods_one_has() -> None:
    many = [pod(f"many/{number}") for number in range(4)]
    assert order(*many, pod("few/a"), pod("few/b")) == [
        "many/0", "few/a", "many/1", "few/b", "many/2", "many/3",
    ]  # fmt: skip


def test_in_a_namespace_the_longest_not_tried_come_first_then_the_oldest() -> None:
    attempts, tried, old = Attempts(), pod("a/tried", created="2025"), pod("a/old", created="2025")
    attempts.failed(tried, 1, 100.0)
    long_ago = pod("a/long-ago")
    attempts.failed(long_ago, 1, 50.0)

    found = order(tried, pod("a/new"), old, long_ago, attempts=attempts)
    assert found == ["a/old", "a/new", "a/long-ago", "a/tried"]


def test_a_pod_is_tried_again_once_something_has_changed_after_growing_pauses() -> None:
    attempts, one = Attempts(), pod("a/x", generation=1)
    assert attempts.due_s(one, 1) == float("-inf")

    pauses = []
    for _ in range(9):
        attempts.failed(one, 1, 100.0)
        pauses.append(attempts.due_s(one, 2) - 100.0)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert attempts.due_s(one, 1) == 100.0 + ANYWAY_S


def test_a_pod_whose_spec_has_changed_is_tried_at_once() -> None:
    attempts = Attempts()
    attempts.failed(pod("a/x", generation=1), 1, 100.0)

    assert attempts.due_s(pod("a/x", generation=2), 1) == float("-inf")


def test_those_that_wait_no_longer_are_forgotten() -> None:
    attempts, one = Attempts(), pod("a/x")
    attempts.failed(one, 1, 100.0)
    attempts.keep({"a/x"})
    assert attempts.tried_s(one) == 100.0
    attempts.keep(set())
    assert attempts.tried_s(one) == float("-inf")


def test_owners_take_turns_and_newcomers_come_after_those_who_wait() -> None:
    rotation: Rotation[str, int] = Rotation()
    for number in range(3):
        rotation.put("a", number)
    taken = [rotation.take()]
    rotation.put("b", 10)
    taken += [rotation.take() for _ in range(len(rotation))]

    assert taken == [0, 1, 10, 2]
    assert not rotation
    with pytest.raises(KeyError):
        rotation.take()
