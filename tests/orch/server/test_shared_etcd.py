"""Two API servers on one etcd serve one cluster; what clients see when etcd is away."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.orch.server.customresources.widgets import (
    CRDS,
    GROUP,
    WIDGETS,
    define,
    definition,
    until,
    until_gone,
    version,
    widget,
)
from tests.orch.server.harness import (
    LEASES,
    MERGE,
    NODES,
    PODS,
    Answer,
    Api,
    Pki,
    lease,
    node,
    pod,
)
from tests.orch.server.storage.etcdserver import EtcdServer, running_etcd

pytestmark = [pytest.mark.real, pytest.mark.seconds(20)]


@pytest.fixture
def etcd() -> Iterator[EtcdServer]:
    with running_etcd() as server:
        yield server


@pytest.fixture
async def servers(etcd: EtcdServer, server_pki: Pki, tmp_path: Path) -> AsyncIterator[list[Api]]:
    started = [
        await Api.start(server_pki, tmp_path / name, f"--etcd-servers={etcd.url}")
        for name in ("one", "two")
    ]
    yield started
    for api in started:
        await api.stop()


async def test_what_one_wrote_the_other_serves_at_once(servers: list[Api]) -> None:
    one, two = servers
    for number in range(20):
        name = f"n{number}"
        created = await one.call("POST", NODES, node(name))
        assert created.status == 201
        seen = await two.call("GET", f"{NODES}/{name}")
        assert seen.json == created.json
        patch = {"metadata": {"labels": {"a": str(number)}}}
        patched = await two.call("PATCH", f"{NODES}/{name}", patch, content_type=MERGE)
        assert patched.status == 200
        assert (await one.call("GET", f"{NODES}/{name}")).json == patched.json
    lists = [(await api.call("GET", NODES)).json for api in servers]
    assert lists[0] == lists[1]
    assert len(lists[0]["items"]) == 20


async def test_a_node_that_waited_for_a_pod_does_not_read_that_of_another(
    servers: list[Api], monkeypatch
) -> None:
    """It may ask for a pod that is not there, since it needs to know that one is gone."""
    one, two = servers
    waiting: list[Api] = []
    is_made = asyncio.Event()  # else etcd has not given the revision, and nobody waits

    async def note(api: Api, reach: Callable[[int], Awaitable[bool]], revision: int) -> bool:
        waiting.append(api)
        await is_made.wait()
        return await reach(revision)

    for api in servers:
        monkeypatch.setattr(
            api.server.storage, "reach", partial(note, api, api.server.storage.reach)
        )
    assert (await one.call("POST", PODS, pod("p0"))).status == 201  # and what its namespace has
    assert (await two.call("GET", f"{PODS}/p1", user="n1")).status == 404
    next_one = one.server.storage.revision + 1
    path = f"{PODS}/p1?resourceVersion={next_one}"
    asked = [asyncio.ensure_future(api.call("GET", path, user="n1")) for api in servers]
    async with asyncio.timeout(20):
        while len(waiting) < len(servers):
            await asyncio.sleep(0.001)
    created = await one.call("POST", PODS, pod("p1", node="n2"))
    assert created.json["metadata"]["resourceVersion"] == str(next_one)
    is_made.set()
    assert [answer.status for answer in await asyncio.gather(*asked)] == [403, 403]


async def test_a_quota_holds_for_writers_of_both_together(servers: list[Api]) -> None:
    space = "/api/v1/namespaces/default"
    spec = {"hard": {"count/configmaps": "7", "orch.io/bytes": "1Mi"}}
    await servers[0].call(
        "POST", f"{space}/resourcequotas", {"metadata": {"name": "q"}, "spec": spec}
    )
    await servers[0].turn("quotas")
    calls = [
        servers[number % 2].call(
            "POST", f"{space}/configmaps", {"metadata": {"name": f"c{number}"}}
        )
        for number in range(40)
    ]
    statuses = sorted(answer.status for answer in await asyncio.gather(*calls))
    assert statuses == [201] * 7 + [403] * 33
    for api in servers:
        quota = (await api.call("GET", f"{space}/resourcequotas/q")).json
        assert quota["status"]["used"]["count/configmaps"] == "7"
    await servers[1].call("DELETE", f"{space}/configmaps/{'c0'}")


async def test_nothing_is_created_in_a_namespace_that_another_server_has_ended(
    servers: list[Api], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However late a server learns of it: what was left would be in the next one of the name."""
    one, two = servers
    space = "/api/v1/namespaces"
    assert (await one.call("POST", space, {"metadata": {"name": "gone"}})).status == 201
    assert (await two.call("GET", f"{space}/gone")).status == 200
    with monkeypatch.context() as late:
        late.setattr(two.server.storage, "apply", lambda changes: None)
        assert (await one.call("DELETE", f"{space}/gone")).status == 200
        await one.turn("namespaces")
        assert (await one.call("GET", f"{space}/gone")).status == 404
        left = {"metadata": {"name": "left"}}
        assert (await two.call("POST", f"{space}/gone/configmaps", left)).status == 409
    assert (await one.call("POST", space, {"metadata": {"name": "gone"}})).status == 201
    assert (await one.call("GET", f"{space}/gone/configmaps")).json["items"] == []


async def test_both_serve_what_is_defined_at_one(servers: list[Api]) -> None:
    one, two = servers
    name = f"widgets.{GROUP}"
    await define(one, definition("widgets", version(), version("v2", storage=False)))
    async with asyncio.timeout(20):
        while (await two.call("GET", WIDGETS)).status != 200:
            await asyncio.sleep(0.01)
    assert (await two.call("POST", WIDGETS, widget())).status == 201
    newer = WIDGETS.replace("/v1/", "/v2/")
    assert (await one.call("GET", f"{newer}/w")).json["apiVersion"] == f"{GROUP}/v2"
    clash = definition("wadgets", kind="Widget")
    for api, document in ((one, clash), (two, definition("gadgets"))):
        assert (await api.call("POST", CRDS, document)).status == 201
    await until(two, f"wadgets.{GROUP}", NamesAccepted="False", Established="False")
    await until(one, f"gadgets.{GROUP}", NamesAccepted="True", Established="True")
    await two.call("DELETE", f"{CRDS}/{name}")
    await until_gone(one, name)
    async with asyncio.timeout(20):
        while any([(await api.call("GET", WIDGETS)).status != 404 for api in servers]):
            await asyncio.sleep(0.01)
    await until(one, f"wadgets.{GROUP}", Established="True")  # the name is free now


async def test_watches_on_both_show_every_write_of_both(servers: list[Api]) -> None:
    start = (await servers[0].call("GET", NODES)).json["metadata"]["resourceVersion"]
    watching = [asyncio.ensure_future(watch_from(api, start, 60)) for api in servers]
    for number in range(20):
        writer, other = servers[number % 2], servers[(number + 1) % 2]
        assert (await writer.call("POST", NODES, node(f"n{number}"))).status == 201
        patch = {"metadata": {"labels": {"a": "b"}}}
        await other.call("PATCH", f"{NODES}/n{number}", patch, content_type=MERGE)
        assert (await writer.call("DELETE", f"{NODES}/n{number}")).status == 200
    async with asyncio.timeout(30):
        first, second = await asyncio.gather(*watching)
    assert first == second
    assert [kind for kind, *_ in first] == ["ADDED", "MODIFIED", "DELETED"] * 20
    revisions = [int(revision) for *_, revision in first]
    assert revisions == sorted(set(revisions))


async def watch_from(api: Api, revision: str, count: int) -> list[tuple[str, str, str]]:
    """The first events after a revision: type, name, revision."""
    seen = []
    path = f"{NODES}?watch=1&resourceVersion={revision}"
    async with api.session("admin").get(api.url(path)) as answer:
        while len(seen) < count:
            event = orjson.loads(await answer.content.readline())
            metadata = event["object"]["metadata"]
            seen.append((event["type"], metadata["name"], metadata["resourceVersion"]))
    return seen


async def test_of_two_who_take_a_lease_through_different_servers_one_gets_it(
    servers: list[Api],
) -> None:
    assert (await servers[0].call("POST", LEASES, lease("leader"))).status == 201
    for round_number in range(10):
        held = (await servers[0].call("GET", f"{LEASES}/leader")).json
        takers = []
        for number, api in enumerate(servers):
            wanted = {
                **held,
                "spec": {**held["spec"], "holderIdentity": f"{round_number}-{number}"},
            }
            takers.append(api.call("PUT", f"{LEASES}/leader", wanted))
        answers = await asyncio.gather(*takers)
        assert sorted(answer.status for answer in answers) == [200, 409]
        winner = next(answer for answer in answers if answer.status == 200)
        for api in servers:
            shown = (await api.call("GET", f"{LEASES}/leader")).json
            assert shown["spec"] == winner.json["spec"]


async def test_a_server_that_starts_on_existing_data_serves_it(
    servers: list[Api], etcd: EtcdServer, server_pki: Pki, tmp_path: Path
) -> None:
    await servers[0].call("POST", NODES, node("n1"))
    third = await Api.start(server_pki, tmp_path / "three", f"--etcd-servers={etcd.url}")
    shown = [(await api.call("GET", f"{NODES}/n1")).json for api in (servers[1], third)]
    await third.stop()
    assert shown[0] == shown[1]


async def test_while_etcd_is_away_clients_are_told_and_afterwards_all_is_well(
    servers: list[Api], etcd: EtcdServer
) -> None:
    api = servers[0]
    await api.call("POST", NODES, node("n1"))
    etcd.stop()
    refused = await api.call("POST", NODES, node("n2"))
    assert (refused.status, refused.json["reason"]) == (503, "ServiceUnavailable")
    assert "Retry-After" in refused.headers
    assert etcd.url in refused.json["message"]
    assert (await api.call("GET", f"{NODES}/n1")).status == 503
    assert (await api.call("GET", f"{NODES}/n1?resourceVersion=0")).status == 200
    async with asyncio.timeout(30):
        while (ready := await api.call("GET", "/readyz")).status != 500:
            await asyncio.sleep(0.05)
    assert "[-]etcd failed" in ready.text
    counted = 'apiserver_resource_objects{group="",resource="nodes"}'
    assert f"{counted} -1.0" in (await api.call("GET", "/metrics")).text
    etcd.start()
    async with asyncio.timeout(30):
        for one in servers:  # each finds out for itself
            while (await one.call("GET", "/readyz")).status != 200:
                await asyncio.sleep(0.05)
    assert (await api.call("POST", NODES, node("n2"))).status == 201
    assert (await servers[1].call("GET", f"{NODES}/n2")).status == 200
    async with asyncio.timeout(30):  # the numbers are those of the last look at etcd
        while f"{counted} 2.0" not in (page := (await api.call("GET", "/metrics")).text):
            await asyncio.sleep(0.05)
    assert 'etcd_request_errors_total{operation="revision"}' in page


async def test_an_etcd_with_other_data_makes_clients_read_again(
    servers: list[Api], etcd: EtcdServer
) -> None:
    api = servers[0]
    for number in range(30):
        await api.call("POST", NODES, node(f"n{number}"))
    before = (await api.call("GET", NODES)).json["metadata"]["resourceVersion"]
    path = api.url(f"{NODES}?watch=1&resourceVersion={before}")
    async with api.session("admin").get(path) as watching:
        etcd.stop()
        shutil.rmtree(etcd.directory / "data")
        etcd.start()
        async with asyncio.timeout(30):
            event = orjson.loads(await watching.content.readline())
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
    async with asyncio.timeout(30):
        while (answer := await api.call("GET", NODES)).status != 200:
            await asyncio.sleep(0.05)
    assert answer.json["items"] == []


MANAGERS = 50  # of an object, which may have 100
APPLY = "application/apply-patch+yaml"
UNDECIDED = (429, 503, 504)  # not done, or of unknown outcome: a client applies again


@pytest.mark.parametrize(
    ("objects", "rounds"),
    [(1, 4), (5, 1), pytest.param(20, 10, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])],
)
async def test_both_agree_on_who_owns_what_whoever_applies_at_once(
    servers: list[Api], objects: int, rounds: int
) -> None:
    """Nothing that was answered 200 is lost, and every field that two want is told of. Of
    five objects 250 applies are under way at once, of 20 a thousand.
    """
    path = "/api/v1/namespaces/default/configmaps/shared-{}"

    async def apply(of: int, number: int, value: str) -> Answer:
        data = {f"own-{number}": value, f"disputed-{number // 2}": f"{number}", "same": "x"}
        api, body = servers[number % 2], {"metadata": {"labels": {f"l{number}": value}}}
        query = f"?fieldManager=m{number}"
        while True:
            answer = await api.call(
                "PATCH", path.format(of) + query, {**body, "data": data}, content_type=APPLY
            )
            lost_race = "has been modified" in answer.json.get("message", "")
            if not (lost_race or answer.status in UNDECIDED):
                return answer
            await asyncio.sleep(float(answer.headers.get("Retry-After", 0)))

    won: list[dict[int, set[str]]] = [{} for _ in range(objects)]
    for value in map(str, range(rounds)):
        wanted = [(of, number) for number in range(MANAGERS) for of in range(objects)]
        answers = await asyncio.gather(*(apply(*each, value) for each in wanted))
        for (of, number), answer in zip(wanted, answers, strict=True):
            if answer.status in (200, 201):
                won[of].setdefault(number, set()).add(value)
                continue
            assert answer.status == 409, answer.text
            (cause,) = answer.json["details"]["causes"]
            assert cause["field"] == f".data.disputed-{number // 2}"
            assert cause["message"] == f'conflict with "m{number ^ 1}"'
    for of in range(objects):
        one, two = [(await api.call("GET", path.format(of))).json for api in servers]
        assert one == two
        assert_owned(one, won[of], rounds)


def assert_owned(shared: dict[str, Any], won: dict[int, set[str]], rounds: int) -> None:
    """Of each two, one got the field, and so everything it applied; the other got nothing."""
    assert sorted(number // 2 for number in won) == list(range(MANAGERS // 2))
    last = str(rounds - 1)
    expected = {f"own-{number}": last for number in won}
    expected |= {f"disputed-{number // 2}": f"{number}" for number in won}
    assert shared["data"] == expected | {"same": "x"}
    assert shared["metadata"]["labels"] == {f"l{number}": last for number in won}
    for entry in shared["metadata"]["managedFields"]:
        number = int(entry["manager"].removeprefix("m"))
        owned = {f"f:own-{number}": {}, f"f:disputed-{number // 2}": {}, "f:same": {}}
        assert entry["fieldsV1"]["f:data"] == owned
    assert len(shared["metadata"]["managedFields"]) == len(won)
    assert all(values == set(map(str, range(rounds))) for values in won.values())
