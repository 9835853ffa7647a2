"""Cases after cm/devicemanager/manager_test.go and pod_devices_test.go (upstream)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.pods.devices import allocation
from nodeagent.pods.devices.allocation import Allocation, Book, DeviceError, Grant
from nodeagent.runtime.base import ContainerSpec, HostDevice, Mount
from tests.fakes.pods import UID, container_data, pod

FOO = "example.com/foo"
IDS = st.frozensets(st.sampled_from([f"d{n}" for n in range(8)]))


def held(*ids: str, grant: Grant | None = None) -> Allocation:
    return Allocation(dict.fromkeys(ids, ()), grant)


def limited(name: str, count: str = "1", **fields: Any) -> dict[str, Any]:
    return container_data(name, resources={"limits": {FOO: count, "cpu": "1"}}, **fields)


def test_extended_resources_are_what_a_container_is_limited_to() -> None:
    [app] = pod(
        container_data("app", resources={"limits": {FOO: "2", "cpu": 1, "a.b/c": 0}})
    ).spec.containers
    assert allocation.amounts(app) == {FOO: 2}


def test_devices_that_prefer_each_other_are_given_together() -> None:
    choice = allocation.choose(FOO, 2, ["a", "b", "c", "d"], used=["a"], again=())
    assert allocation.complete(choice, ["d", "c"]) == ("d", "c")
    assert allocation.complete(choice, ["a", "x", "d"]) == ("d", "b"), "only what is free counts"


def test_what_may_be_used_again_is_taken_first() -> None:
    choice = allocation.choose(FOO, 2, ["a", "b", "c"], used=["c", "b"], again=["c"])
    assert allocation.complete(choice, ()) == ("c", "a")
    choice = allocation.choose(FOO, 1, ["a", "b"], used=["a", "b"], again=["a", "b"])
    assert allocation.complete(choice, ["b"]) == ("a",)


def test_too_few_free_devices_are_counted() -> None:
    text = f"requested number of devices unavailable for {FOO}. Requested: 2, Available: 1"
    with pytest.raises(DeviceError) as refused:
        allocation.choose(FOO, 2, ["a", "b"], used=["a"], again=())
    assert str(refused.value) == text


@pytest.mark.parametrize(
    ("healthy", "before", "text"),
    [
        (None, (), f"cannot allocate unregistered device {FOO}"),
        ((), (), f"no healthy devices present; cannot allocate unhealthy devices {FOO}"),
        (
            ("b",),
            ("a",),
            "previously allocated devices are no longer healthy; "
            f"cannot allocate unhealthy devices {FOO}",
        ),
    ],
)
def test_without_healthy_devices_nothing_is_given(
    healthy: tuple[str, ...] | None, before: tuple[str, ...], text: str
) -> None:
    with pytest.raises(DeviceError) as refused:
        allocation.require_healthy(FOO, healthy, before)
    assert str(refused.value) == text


def test_a_container_keeps_its_number_of_devices() -> None:
    with pytest.raises(DeviceError, match=f'changed request for resource "{FOO}" from 2 to 1'):
        allocation.require_unchanged(pod(), "app", FOO, held("a", "b"), 1)


@given(
    healthy=IDS, used=IDS, again=IDS, liked=st.lists(st.text(max_size=3)), wanted=st.integers(1, 9)
)
def test_no_device_in_use_is_ever_given(
    healthy: frozenset[str],
    used: frozenset[str],
    again: frozenset[str],
    liked: list[str],
    wanted: int,
) -> None:
    try:
        choice = allocation.choose(FOO, wanted, healthy, used | again, again)
    except DeviceError:
        assert len((healthy - used - again) | (healthy & again)) < wanted
        return
    chosen = allocation.complete(choice, [*liked, *sorted(used)])
    assert len(chosen) == len(set(chosen)) == wanted
    assert set(chosen) <= healthy
    assert not set(chosen) & (used - again)


def test_devices_of_init_containers_are_used_again_and_those_of_sidecars_are_not() -> None:
    record = pod(
        limited("app"),
        initContainers=[
            limited("first"),
            limited("beside", restartPolicy="Always"),
            limited("second"),
        ],
    )
    book = Book()
    assert allocation.reusable(record, "first", FOO, book) == frozenset()
    book.add(UID, "first", FOO, held("a", "b"))
    assert allocation.reusable(record, "beside", FOO, book) == {"a", "b"}
    book.add(UID, "beside", FOO, held("a"))
    assert allocation.reusable(record, "second", FOO, book) == {"b"}
    book.add(UID, "second", FOO, held("b", "c"))
    assert allocation.reusable(record, "app", FOO, book) == {"b", "c"}


def test_the_book_counts_what_several_containers_of_a_pod_have_for_each() -> None:
    book = Book()
    assert book.holders(FOO) == {} and book.count(UID) == 0
    book.add(UID, "first", FOO, held("a", "b"))
    book.add(UID, "second", FOO, held("a"))
    book.add("other", "app", FOO, held("c"))
    assert book.count(UID) == 3
    assert book.holders(FOO) == {"a": UID, "b": UID, "c": "other"}


def test_the_book_forgets_the_devices_of_pods_that_are_gone() -> None:
    book = Book()
    book.add("one", "app", FOO, held("a"))
    book.add("two", "app", FOO, held("b"))
    assert book.holders(FOO) == {"a": "one", "b": "two"}
    assert book.retain({"two"}) and not book.retain({"two"})
    assert book.holders(FOO) == {"b": "two"}
    assert not book.of("one", "app")


def test_grants_are_added_and_the_containers_own_fields_win() -> None:
    one = Grant(
        env=(("A", "1"), ("OWN", "plugin")),
        mounts=(Mount("/host/lib", "/lib/x", readonly=True), Mount("/host", "/own")),
        devices=(HostDevice("/dev/x", "/dev/null", "rw"),),
        annotations={"a": "1", "own": "plugin"},
        cdi_devices=("v/c=1",),
    )
    other = Grant(
        env=(("A", "2"), ("B", "2")),
        devices=(HostDevice("/dev/x", "/dev/zero", "r"), HostDevice("/dev/y", "/dev/y", "r")),
        annotations={"a": "2"},
        cdi_devices=("v/c=1", "v/c=2"),
    )
    wanted = ContainerSpec(
        name="app",
        attempt=0,
        image="i",
        env=(("OWN", "own"),),
        mounts=(Mount("/volume", "/own"),),
        annotations={"own": "own"},
    )
    given = {"b.io/b": held("y", grant=other), "a.io/a": held("x", grant=one)}
    made = allocation.with_devices(wanted, given)
    assert dict(made.env) == {"A": "1", "B": "2", "OWN": "own"}
    assert [m.host_path for m in made.mounts] == ["/host/lib", "/volume"]
    assert set(made.devices) == {
        HostDevice("/dev/x", "/dev/null", "rw"),
        HostDevice("/dev/y", "/dev/y", "r"),
    }
    assert made.cdi_devices == ("v/c=1", "v/c=2")
    noted = made.annotations["orch.io/container.devices"]
    assert json.loads(noted) == {"a.io/a": ["x"], "b.io/b": ["y"]}
    assert made.annotations["a"] == "1" and made.annotations["own"] == "own"
    assert allocation.with_devices(wanted, {}) is wanted


def test_a_note_is_read_back_and_any_other_text_is_none() -> None:
    note = allocation.note({FOO: held("a", "b")})
    assert {name: found.ids for name, found in allocation.noted(note).items()} == {FOO: {"a", "b"}}
    for text in ("", "{", "[]", '{"a": 1}', "[" * 100_000, "null"):
        assert allocation.noted(text) == {}
