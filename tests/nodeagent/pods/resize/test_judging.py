"""Which resizes are granted; the order of K:pkg/kubelet/allocation, sortPendingResizes."""

from __future__ import annotations

from typing import Any

import pytest

from nodeagent.pods.resize import judging
from nodeagent.pods.resize.allocations import allocation_of
from nodeagent.pods.resize.judging import Pending, Wish
from tests.fakes.pods import container_data, pod

ROOM = {"cpu": "1", "memory": "1Gi"}


def wish(
    uid: str, has: str, wants: str, *, since_s: float = 0, priority: int = 0, equal: bool = False
) -> Wish:
    def made(cpu: str) -> Any:
        amounts = {"cpu": cpu, "memory": "1Mi"}
        resources = {"requests": amounts, **({"limits": amounts} if equal else {})}
        container = container_data("app", resources=resources)
        metadata = {"uid": uid, "generation": 2}
        return pod(container, metadata=metadata, priority=priority)

    return Wish(made(wants), allocation_of(made(has)), since_s)


def granted(*wishes: Wish, used_milli: int) -> list[str]:
    used = {"cpu": used_milli, "memory": 0}
    verdicts = judging.judge(wishes, used, ROOM)
    return [uid for uid, pending in verdicts.items() if pending is None]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (wish("down", "500m", "100m"), wish("a", "100m", "700m", priority=9)),
        (wish("high", "100m", "500m", priority=2), wish("low", "100m", "500m", priority=1)),
        (wish("equal", "100m", "500m", equal=True), wish("other", "100m", "500m")),
        (wish("older", "100m", "500m", since_s=1), wish("newer", "100m", "500m", since_s=2)),
    ],
)
def test_who_goes_first(first: Wish, second: Wish) -> None:
    for wishes in ((first, second), (second, first)):
        verdicts = judging.judge(wishes, {"cpu": 600, "memory": 0}, ROOM)
        assert next(iter(verdicts)) == first.pod.metadata.uid


def test_room_is_given_once_and_what_shrinks_makes_room_at_once() -> None:
    one, two = wish("one", "100m", "500m"), wish("two", "100m", "500m", since_s=1)
    assert granted(one, two, used_milli=600) == ["one"]
    assert granted(one, two, used_milli=200) == ["one", "two"]
    assert granted(wish("down", "900m", "100m"), one, used_milli=1000) == ["down", "one"]


def test_one_that_waits_does_not_hold_up_a_smaller_one() -> None:
    large, small = wish("large", "100m", "900m", priority=1), wish("small", "100m", "200m")
    assert granted(large, small, used_milli=500) == ["small"]


@pytest.mark.parametrize(
    ("wants", "expected"),
    [
        ("1", Pending("Deferred", judging.shortage("cpu", 1000, 300, 1000), 2)),
        (
            "1001m",
            Pending(
                "Infeasible",
                "Node didn't have enough capacity: cpu, requested: 1001, capacity: 1000",
                2,
            ),
        ),
    ],
)
def test_why_a_resize_waits(wants: str, expected: Pending) -> None:
    used = {"cpu": 400, "memory": 0}
    assert judging.judge([wish("a", "100m", wants)], used, ROOM) == {"a": expected}


def test_less_is_granted_even_on_a_node_that_has_too_much_already() -> None:
    assert granted(wish("a", "900m", "800m"), used_milli=5000) == ["a"]
