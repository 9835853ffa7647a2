"""The devices that a node offers while plugins come, change their minds, and go."""

from __future__ import annotations

import pytest

from nodeagent.pods.devices.inventory import (
    GRACE_S,
    MAX_DEVICES,
    Device,
    Inventory,
    ResourceCount,
    TooManyDevices,
)

FOO = "example.com/foo"


def device(name: str, *, healthy: bool = True) -> Device:
    return Device(name, healthy)


def listing(*devices: Device) -> dict[str, Device]:
    return {one.id: one for one in devices}


def test_unhealthy_devices_leave_allocatable_and_stay_in_capacity() -> None:
    inventory = Inventory()
    inventory.list(FOO, listing(device("a"), device("b")))
    assert inventory.counts() == {FOO: ResourceCount(2, 2)}
    listed = listing(device("a"), device("b", healthy=False))
    assert inventory.changes(FOO, listed) == {"b"}
    inventory.list(FOO, listed)
    assert inventory.counts() == {FOO: ResourceCount(2, 1)}
    assert inventory.healthy(FOO) == ["a"]
    assert inventory.health(FOO, "b") == "Unhealthy"


def test_without_its_plugin_a_resource_has_no_healthy_device_and_goes_after_the_grace_time() -> (
    None
):
    inventory = Inventory()
    inventory.list(FOO, listing(device("a")))
    assert inventory.lose(FOO, 100.0) == {"a"}
    assert inventory.lose(FOO, 101.0) == frozenset(), "it is gone already"
    assert inventory.counts() == {FOO: ResourceCount(1, 0)}
    assert inventory.healthy(FOO) == ()
    assert inventory.health(FOO, "a") == "Unknown"
    assert not inventory.expire(100.0 + GRACE_S - 1)
    assert inventory.expire(100.0 + GRACE_S)
    assert inventory.counts() == {} and inventory.gone() == {FOO}
    assert inventory.has(FOO) and inventory.healthy(FOO) is None


def test_a_plugin_that_comes_back_in_time_changes_nothing() -> None:
    inventory = Inventory()
    inventory.list(FOO, listing(device("a")))
    inventory.lose(FOO, 0.0)
    assert inventory.changes(FOO, listing(device("a"))) == {"a"}, "its health is known again"
    inventory.list(FOO, listing(device("a")))
    assert not inventory.expire(GRACE_S * 2)
    assert inventory.counts() == {FOO: ResourceCount(1, 1)}
    assert inventory.gone() == frozenset()


def test_resources_of_an_earlier_agent_are_none_until_their_plugin_registers() -> None:
    inventory = Inventory()
    inventory.expect([FOO], 0.0)
    assert inventory.counts() == {FOO: ResourceCount(0, 0)}
    inventory.list(FOO, listing(device("a")))
    inventory.expect([FOO], 1.0)
    assert inventory.counts() == {FOO: ResourceCount(1, 1)}


def test_devices_are_found_by_their_resource_and_id() -> None:
    inventory = Inventory()
    inventory.list(FOO, listing(device("a")))
    assert inventory.device(FOO, "a") == device("a")
    assert inventory.device(FOO, "b") is None and inventory.device("a/b", "a") is None


def test_a_plugin_that_goes_before_it_lists_leaves_a_resource_of_nothing() -> None:
    inventory = Inventory()
    assert inventory.lose(FOO, 0.0) == frozenset()
    assert inventory.counts() == {FOO: ResourceCount(0, 0)}
    assert inventory.expire(GRACE_S) and inventory.gone() == {FOO}


def test_all_resources_together_have_no_more_devices_than_are_allowed() -> None:
    inventory, part = Inventory(), MAX_DEVICES // 4
    listed = listing(*(device(str(number)) for number in range(part)))
    for number in range(4):
        inventory.list(f"example.com/r{number}", listed)
    before = inventory.counts()
    with pytest.raises(TooManyDevices, match="1 devices are listed, 32768 of other"):
        inventory.list(FOO, listing(device("a")))
    assert inventory.counts() == before
    inventory.list("example.com/r0", listed)
    inventory.list("example.com/r0", listing())
    inventory.list(FOO, listed)


def test_devices_of_plugins_that_are_gone_make_room_for_those_of_others() -> None:
    inventory = Inventory()
    listed = listing(*(device(str(number)) for number in range(MAX_DEVICES)))
    inventory.list("example.com/hoard", listed)
    inventory.lose("example.com/hoard", 0.0)
    inventory.list(FOO, listing(device("a")))
    assert inventory.counts() == {FOO: ResourceCount(1, 1)}
    assert inventory.gone() == {"example.com/hoard"}
    assert inventory.has("example.com/hoard"), "its pods still wait for it"
