"""Seats, bodies and connections of callers, each bounded for itself."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from aiohttp import web
from aiohttp.base_protocol import BaseProtocol
from aiohttp.streams import StreamReader
from aiohttp.test_utils import make_mocked_request
from prometheus_client import CollectorRegistry, Gauge

from orch.component.http.connection import Rank
from orch.server.flow import control
from orch.server.flow.control import FlowControl, Seat
from orch.server.flow.levels import Limits
from orch.server.request.attributes import RequestInfo, parse_request
from orch.wire.errors import ApiError
from orch.wire.records.authentication import Identity

ANN, BOB = Identity("ann"), Identity("bob")
NODE = Identity("system:node:n1", ("system:nodes",))
MASTER = Identity("root", ("system:masters",))
PATH = "/api/v1/namespaces/default/pods"
READ = parse_request("GET", PATH, {})
WRITE = parse_request("POST", PATH, {})
WATCH = parse_request("GET", PATH, {"watch": "1"})
LIMIT = 3 * 1024 * 1024


class Connection:
    """Claimed by anybody, unless it is said to be refused."""

    def __init__(self, *, refused: bool = False, network: str = "192.0.2.1") -> None:
        self.owner: object = None
        self.network = network
        self.refused = refused
        self.rank = Rank.STRANGER
        self.closing = False

    def close(self) -> None:
        self.closing = True

    def claim(self, owner: object, rank: Rank) -> bool:
        self.owner, self.rank = owner, rank
        return not self.refused


class Fixture:
    def __init__(self, seats: int = 10, connections: int = 8192, rate: int = 0) -> None:
        self.registry = CollectorRegistry()
        gauge = Gauge("inflight", "text", ("request_kind",), registry=self.registry)
        self.flows = FlowControl(Limits(seats, 60.0, connections, rate), gauge)

    def seat(
        self,
        identity: Identity | None = ANN,
        info: RequestInfo = READ,
        connection: Connection | None = None,
    ) -> Seat:
        reached: Any = connection or Connection()
        return self.flows.seat(reached, identity, info)

    def in_flight(self, kind: str) -> float | None:
        return self.registry.get_sample_value("inflight", {"request_kind": kind})


def sending(payload: StreamReader, **headers: str) -> web.Request:
    return make_mocked_request(
        "POST", PATH, headers=headers, payload=payload, client_max_size=LIMIT
    )


def half_sent() -> StreamReader:
    loop = asyncio.get_running_loop()
    protocol: Any = BaseProtocol(loop)
    protocol.transport = object()  # connected
    payload = StreamReader(protocol, 2**16, loop=loop)
    payload.feed_data(b"{")
    return payload


async def refusal(seat: Seat) -> ApiError:
    with pytest.raises(ApiError) as caught:
        async with seat:
            pass
    return caught.value


async def test_requests_with_a_seat_are_counted_by_kind_until_they_end() -> None:
    fixture = Fixture()
    async with fixture.seat(ANN, READ), fixture.seat(MASTER, WRITE):
        assert (fixture.in_flight("readOnly"), fixture.in_flight("mutating")) == (1, 1)
    with pytest.raises(ZeroDivisionError):
        async with fixture.seat():
            raise ZeroDivisionError
    assert (fixture.in_flight("readOnly"), fixture.in_flight("mutating")) == (0, 0)


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_tenants_fill_their_own_seats_and_no_others() -> None:
    fixture = Fixture(seats=10)
    users = fixture.flows.levels.users
    async with contextlib.AsyncExitStack() as seats:
        for number in range(4):
            await seats.enter_async_context(fixture.seat(Identity(f"user-{number}")))
        waiting = asyncio.ensure_future(refusal(fixture.seat(BOB)))
        await turns()
        assert (users.executing, users.waiting) == (4, 1)
        health = parse_request("GET", "/readyz", {})
        probe = fixture.seat(None, health)
        async with fixture.seat(NODE), fixture.seat(MASTER), probe:
            assert (users.executing, users.waiting) == (4, 1)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    assert (users.executing, users.waiting) == (0, 0)


async def test_one_tenant_leaves_seats_to_the_others() -> None:
    fixture = Fixture(seats=10)
    async with fixture.seat(ANN):
        second = asyncio.ensure_future(fixture.seat(ANN).__aenter__())
        await turns()
        assert not second.done()
        async with fixture.seat(BOB):
            pass
    await (await second).__aexit__()


@pytest.mark.looptime
async def test_parts_of_a_request_take_one_seat_when_they_come_back_to_a_queue() -> None:
    fixture = Fixture(seats=10)
    users = fixture.flows.levels.users

    async def part(end: asyncio.Event) -> None:
        async with control.aside():
            await end.wait()

    async def other(end: asyncio.Event) -> None:
        async with fixture.seat(ANN):
            await end.wait()

    async with fixture.seat(ANN):
        ends, tasks = [asyncio.Event() for _ in range(3)], list[asyncio.Task[None]]()
        for work, end in zip((part, other), ends, strict=False):
            tasks.append(asyncio.create_task(work(end)))
            await turns()
        ends[0].set()
        await turns()
        assert (users.executing, users.waiting) == (1, 1), "the first part waits for the other"
        tasks.append(asyncio.create_task(part(ends[2])))
        await turns()
        ends[2].set()
        await turns()
        ends[1].set()
        began_s = asyncio.get_running_loop().time()
        await asyncio.gather(*tasks)
        assert asyncio.get_running_loop().time() - began_s < 1
    assert users.executing == 0


@pytest.mark.looptime
async def test_beyond_its_queue_a_caller_is_told_who_it_is_and_when_to_come_back() -> None:
    """But not at once: whoever is refused asks again."""
    fixture = Fixture(seats=10)
    async with fixture.seat(ANN):
        queued = [asyncio.ensure_future(refusal(fixture.seat(ANN))) for _ in range(200)]
        await turns()
        began_s = asyncio.get_running_loop().time()
        error = await refusal(fixture.seat(ANN))
        assert asyncio.get_running_loop().time() - began_s >= 0.5
        assert (error.code, error.reason, error.retry_after_s) == (429, "TooManyRequests", 1)
        assert '"ann" (flow schema global-default, priority level workload)' in error.message
        async with fixture.seat(BOB):
            pass
        for task in queued:
            task.cancel()
        await asyncio.gather(*queued, return_exceptions=True)
    assert fixture.flows.levels.users.rejected == {"queue-full": 1}


async def test_who_waits_too_long_is_asked_to_come_back() -> None:
    registry = CollectorRegistry()
    gauge = Gauge("inflight", "text", ("request_kind",), registry=registry)
    flows = FlowControl(Limits(1, 0.004, 100), gauge)
    connection: Any = Connection()
    async with flows.seat(connection, ANN, READ):
        error = await refusal(flows.seat(connection, ANN, READ))
    assert (error.code, error.retry_after_s) == (429, 1)
    assert flows.levels.users.rejected == {"time-out": 1}
    assert flows.levels.users.waited_in_vain.count == 1


async def test_without_a_limit_nobody_waits_longer_than_for_a_turn() -> None:
    fixture = Fixture(seats=0)
    async with contextlib.AsyncExitStack() as seats:
        for _ in range(1000):
            await seats.enter_async_context(fixture.seat(ANN, WRITE))
        assert fixture.in_flight("mutating") == 1000


async def test_a_body_that_has_arrived_costs_nothing_more() -> None:
    fixture, payload = Fixture(), half_sent()
    payload.feed_eof()
    async with fixture.seat(ANN, WRITE) as seat:
        await seat.prepare(sending(payload))
        assert fixture.flows.levels.users.level.body_bytes == 0
        assert fixture.in_flight("mutating") == 1


async def test_while_its_body_arrives_a_request_has_no_seat() -> None:
    fixture, payload = Fixture(), half_sent()
    level = fixture.flows.levels.users.level
    async with fixture.seat(ANN, WRITE) as seat:
        request = sending(payload, **{"Content-Length": "2"})
        task = asyncio.ensure_future(seat.prepare(request))
        await turns()
        assert (fixture.in_flight("mutating"), level.body_bytes) == (0, 2)
        payload.feed_data(b"}")
        payload.feed_eof()
        await task
        assert (fixture.in_flight("mutating"), level.body_bytes) == (1, 2)
    assert (fixture.in_flight("mutating"), level.body_bytes) == (0, 0)


async def fill(fixture: Fixture, identity: Identity, count: int, **headers: str) -> list[Any]:
    """Requests of a caller whose bodies do not arrive."""

    async def post() -> None:
        async with fixture.seat(identity, WRITE) as seat:
            await seat.prepare(sending(half_sent(), **headers))

    tasks = [asyncio.ensure_future(post()) for _ in range(count)]
    await turns(2 * count + 20)
    return tasks


async def end(tasks: list[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("headers", "most"),
    [
        ({"Content-Length": "100"}, control.BODIES),
        ({"Content-Length": str(LIMIT)}, control.BODY_BYTES // LIMIT),
        ({"Transfer-Encoding": "chunked"}, control.BODY_BYTES // LIMIT),
    ],
)
async def test_a_caller_has_few_bodies_under_way_by_count_and_bytes(
    headers: dict[str, str], most: int
) -> None:
    """Beyond it they are refused, without a seat and not at once: whoever is refused asks again."""
    fixture = Fixture(seats=600)
    tasks = await fill(fixture, ANN, most + 3, **headers)
    assert not any(task.done() for task in tasks)
    assert fixture.in_flight("mutating") == 0
    await asyncio.sleep(1.5)
    refused = [task.exception() for task in tasks if task.done()]
    assert [error.code for error in refused] == [429] * 3
    others = await fill(fixture, BOB, 1, **headers)
    assert not others[0].done(), "others are not refused"
    await end([*tasks, *others])
    assert fixture.flows.levels.users.level.body_bytes == 0


async def test_a_body_that_says_it_is_too_large_is_not_waited_for() -> None:
    fixture = Fixture()
    async with fixture.seat(ANN, WRITE) as seat:
        with pytest.raises(ApiError) as caught:
            await seat.prepare(sending(half_sent(), **{"Content-Length": str(LIMIT + 1)}))
    assert caught.value.code == 413


@pytest.mark.looptime
async def test_all_tenants_together_have_so_many_bytes_of_bodies() -> None:
    fixture = Fixture(seats=600)
    each = control.BODY_BYTES // LIMIT
    tasks = []
    for number in range(control.LEVEL_BODY_BYTES // control.BODY_BYTES + 1):
        named = Identity(f"user-{number}")
        tasks += await fill(fixture, named, each, **{"Content-Length": str(LIMIT)})
    level = fixture.flows.levels.users.level
    assert level.body_bytes <= control.LEVEL_BODY_BYTES < level.body_bytes + LIMIT
    await asyncio.sleep(1.5)
    assert any(task.done() for task in tasks)
    async with fixture.seat(NODE, WRITE) as seat:
        task = asyncio.ensure_future(seat.prepare(sending(half_sent())))
        await turns()
        assert not task.done(), "those of nodes are counted apart"
        await end([task])
    await end(tasks)


@pytest.mark.looptime
async def test_a_watch_gives_its_seat_back_and_is_counted_for_its_caller() -> None:
    fixture = Fixture(connections=32)
    request = make_mocked_request("GET", PATH)
    async with contextlib.AsyncExitStack() as watches:
        for _ in range(2):
            watch = await watches.enter_async_context(fixture.seat(ANN, WATCH))
            await watch.prepare(request)
        assert fixture.in_flight("readOnly") == 0
        began_s = asyncio.get_running_loop().time()
        with pytest.raises(ApiError) as caught:
            async with fixture.seat(ANN, WATCH) as one_more:
                await one_more.prepare(request)
        assert caught.value.code == 429
        assert asyncio.get_running_loop().time() - began_s >= 0.5, "whoever is refused asks again"
        async with fixture.seat(BOB, WATCH) as others:
            await others.prepare(request)
    async with contextlib.AsyncExitStack() as watches:
        for _ in range(2):
            again = await watches.enter_async_context(fixture.seat(ANN, WATCH))
            await again.prepare(request)
    assert fixture.in_flight("readOnly") == 0


async def test_who_has_too_many_busy_connections_is_refused() -> None:
    fixture = Fixture(connections=4)
    connection = Connection(refused=True)
    assert (await refusal(fixture.seat(connection=connection))).code == 429
    assert connection.closing
    async with fixture.seat(ANN):
        error = await refusal(fixture.seat(BOB))
        assert "connections of the level" in error.message
        elsewhere = Connection(network="192.0.2.2")
        async with fixture.seat(BOB, connection=elsewhere), fixture.seat(NODE):
            pass
    async with fixture.seat(BOB):
        pass


@pytest.mark.parametrize(
    ("identity", "rank"),
    [(MASTER, Rank.PRIVILEGED), (NODE, Rank.KEPT), (ANN, Rank.USER), (None, Rank.STRANGER)],
)
async def test_connections_of_nodes_and_the_privileged_are_kept(
    identity: Identity | None, rank: Rank
) -> None:
    connection = Connection()
    async with Fixture().seat(identity, connection=connection):
        assert connection.rank is rank


async def test_a_connection_is_its_latest_callers() -> None:
    fixture, connection = Fixture(), Connection()
    for identity in (ANN, ANN, BOB, None):
        async with fixture.seat(identity, connection=connection):
            pass
        name = identity.name if identity else connection.network
        assert connection.owner.name == name
