"""Requests refused as memory becomes short: which, whose, and until when."""

from __future__ import annotations

import logging

import pytest

from orch.server.pressure import MemoryPressure, Pressure
from orch.server.request.attributes import RequestInfo
from orch.wire.errors import ApiError

VERBS = ("create", "update", "patch", "watch", "get", "list", "delete", "deletecollection")


class Memory:
    def __init__(self) -> None:
        self.used = 0

    def limit_bytes(self) -> int:
        return 1000

    def used_bytes(self) -> int:
        return self.used


def info(verb: str, subresource: str = "") -> RequestInfo:
    return RequestInfo(
        verb, "/api/v1/pods", is_resource=True, resource="pods", subresource=subresource
    )


def allowed(pressure: MemoryPressure) -> list[str]:
    found = []
    for verb in VERBS:
        try:
            pressure.refuse(info(verb))
            found.append(verb)
        except ApiError as error:
            assert (error.code, error.retry_after_s) == (429, 5)
    return found


@pytest.mark.parametrize(
    ("used", "state", "left"),
    [
        (799, Pressure.NONE, list(VERBS)),
        (800, Pressure.HIGH, ["get", "list", "delete", "deletecollection"]),
        (900, Pressure.CRITICAL, ["delete", "deletecollection"]),
    ],
)
async def test_tenants_keep_less_as_more_is_used_and_deletions_always(used, state, left) -> None:
    memory = Memory()
    pressure = MemoryPressure(memory)
    memory.used = used
    await pressure.look()
    assert pressure.state is state
    assert allowed(pressure) == left


async def test_samples_are_frequent_while_a_fast_tenant_could_pass_the_bound_in_a_second() -> None:
    memory, intervals_s = Memory(), []
    pressure = MemoryPressure(memory)
    for memory.used in (599, 600, 799, 800, 740):
        await pressure.look()
        intervals_s.append(pressure.loop.interval_s)
    assert intervals_s == [1.0, 0.1, 0.1, 1.0, 0.1]


async def test_what_is_proxied_is_no_mere_read() -> None:
    memory = Memory()
    pressure = MemoryPressure(memory)
    memory.used = 800
    await pressure.look()
    with pytest.raises(ApiError):
        pressure.refuse(info("get", "log"))


async def test_a_state_ends_only_well_below_where_it_began(caplog) -> None:
    memory, relieved, states = Memory(), [], []
    pressure = MemoryPressure(memory, relieve=lambda: relieved.append(memory.used))
    with caplog.at_level(logging.INFO):
        for memory.used in (810, 790, 760, 910, 860, 840, 790, 740, 790):
            await pressure.look()
            states.append(pressure.state)
    assert states == [1, 1, 1, 2, 2, 1, 1, 0, 0]
    assert relieved == [810, 790, 760, 910, 860, 840, 790]
    assert [message.partition(":")[0] for message in caplog.messages] == [
        "memory is short", "memory is short", "memory suffices again",
    ]  # fmt: skip
    assert "--memory-limit" in caplog.messages[0]
    assert caplog.messages[0].endswith("tenants get 429 for writes, watches and logs")
    assert caplog.messages[1].endswith("tenants get 429 for everything but deletions")


async def test_a_given_limit_replaces_that_of_the_process() -> None:
    memory = Memory()
    pressure = MemoryPressure(memory, limit_bytes=100)
    memory.used = 85
    await pressure.look()
    assert pressure.state is Pressure.HIGH
