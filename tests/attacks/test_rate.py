"""Changes of tenants come at a rate, however they are sent, and large ones of nodes."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator

import pytest

from tests.attacks import harness
from tests.attacks.harness import NODE, OPERATOR, TENANT, Attacked, head

RATE = 20  # changes a second
LARGE = 105_000  # bytes, which count as more than four changes
TIMES = 6
BURST_S = 0.3
LEAST_S = (TIMES - 1) * 4 / RATE - BURST_S  # all but the last are waited for
MERGE = "application/merge-patch+json"
OBJECTS = f"/api/v1/namespaces/{TENANT}/configmaps"


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    directory = tmp_path_factory.mktemp("rate")
    signing = f"--service-account-signing-key-file={directory / 'pki' / 'server.key'}"
    rate = f"--tenant-changes-per-second={RATE}"
    with harness.attacked(directory, signing, rate) as running:
        yield running


def large(name: str) -> dict[str, object]:
    return {"metadata": {"name": name}, "data": {"k": "x" * LARGE}}


def create(target: Attacked, number: int) -> int:
    return target.ask(TENANT, "POST", OBJECTS, large(f"created{number}")).status


def create_in_chunks(target: Attacked, number: int) -> int:
    body = json.dumps(large(f"chunked{number}")).encode()
    told = head(TENANT, "POST", OBJECTS, 0, "Connection: close")
    with target.open() as connection:
        connection.sendall(told.replace(b"Content-Length: 0", b"Transfer-Encoding: chunked"))
        connection.sendall(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
        return int(connection.recv(100).split()[1])


def patch(target: Attacked, number: int) -> int:
    sent = {"data": {"n": str(number)}}
    path = f"{OBJECTS}/stored{number}"
    return target.ask(TENANT, "PATCH", path, sent, Content_Type=MERGE).status


def delete(target: Attacked, number: int) -> int:
    return target.ask(TENANT, "DELETE", f"{OBJECTS}/stored{number}").status


def bind_token(target: Attacked, number: int) -> int:
    """To a large object, which is read for it."""
    secret = {"metadata": {"name": "large"}, "data": {"k": "x" * (LARGE + LARGE % 4)}}
    target.make(OBJECTS.replace("configmaps", "secrets"), secret)
    path = OBJECTS.replace("configmaps", "serviceaccounts/default/token")
    spec = {"boundObjectRef": {"kind": "Secret", "apiVersion": "v1", "name": "large"}}
    return target.ask(TENANT, "POST", path, {"spec": spec}).status


@pytest.mark.parametrize("change", [create, create_in_chunks, patch, delete, bind_token])
def test_large_changes_take_their_time_also_without_lasting_connections(
    target: Attacked, change: Callable[[Attacked, int], int]
) -> None:
    target.make(OBJECTS, large("kept"), *(large(f"stored{number}") for number in range(TIMES)))
    time.sleep(4.6 * TIMES / RATE)  # until the changes of the test before are forgotten
    began_s = time.monotonic()
    for number in range(TIMES):
        assert change(target, number) in (200, 201)
    assert time.monotonic() - began_s >= LEAST_S
    began_s = time.monotonic()
    for _ in range(10 * RATE):
        assert target.ask(TENANT, "GET", f"{OBJECTS}/kept").status == 200
    assert time.monotonic() - began_s < 10, "reads have no rate"


@pytest.mark.parametrize("query", ["", "?dryRun=All"])
def test_a_collection_is_deleted_at_the_rate_of_its_objects(target: Attacked, query: str) -> None:
    path = OBJECTS.replace("configmaps", "secrets")
    target.make(path, *({"metadata": {"name": f"s{number}"}} for number in range(160)))
    time.sleep(160 / 4 / RATE)  # until the changes of the test before are forgotten
    began_s = time.monotonic()
    assert target.ask(TENANT, "DELETE", path + query).status == 200
    assert time.monotonic() - began_s >= 128 / 4 / RATE - BURST_S


def test_tokens_are_signed_at_the_rate_of_changes(target: Attacked) -> None:
    path = f"/api/v1/namespaces/{TENANT}/serviceaccounts/default/token"
    time.sleep(10 / RATE)
    began_s = time.monotonic()
    for _ in range(2 * RATE):
        assert target.ask(TENANT, "POST", path, {}).status == 201
    assert time.monotonic() - began_s >= 2 - 1 / RATE - BURST_S


def test_a_nodes_large_changes_have_a_rate_and_its_small_ones_none(target: Attacked) -> None:
    """Small patches of its own large Node made others' p99 90 ms."""
    own = http.client.HTTPSConnection("127.0.0.1", target.port, context=target.context(target.node))

    def patch(change: object) -> int:
        body = json.dumps(change)
        own.request("PATCH", f"/api/v1/nodes/{NODE}", body, {"Content-Type": MERGE})
        answer = own.getresponse()
        answer.read()
        return answer.status

    began_s = time.monotonic()
    for number in range(10 * RATE):
        assert patch({"metadata": {"annotations": {"n": f"{number}"}}}) == 200
    assert time.monotonic() - began_s < 8
    assert patch({"spec": {"more": "x" * LARGE}}) == 200
    began_s = time.monotonic()
    for number in range(TIMES):
        assert patch({"metadata": {"annotations": {"n": f"{number}"}}}) == 200
    assert time.monotonic() - began_s >= LEAST_S
    own.close()


def test_the_operator_has_no_rate(target: Attacked) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    began_s = time.monotonic()
    for number in range(10 * RATE):
        assert (
            target.ask(OPERATOR, "POST", path, {"metadata": {"name": f"o{number}"}}).status == 201
        )
    assert time.monotonic() - began_s < 8
