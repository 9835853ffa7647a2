from __future__ import annotations

import asyncio
import gzip
import re

import aiohttp
import orjson
import pytest

from orch.server.handlers.call import deleted_status, success_status, warning_headers
from orch.server.objects.document import encode
from orch.server.storage.base import Stored
from orch.wire.records.kinds import LEASES, NODES
from tests.orch.server.harness import Api

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ('unknown field "a"', r'299 - "unknown field \"a\""'),
        ("a\r\nSet-Cookie: b", '299 - "a??Set-Cookie: b"'),
        ("ü\ud800", r'299 - "\\xfc\\ud800"'),
    ],
)
def test_a_warning_is_one_line_of_plain_text(text: str, header: str) -> None:
    assert warning_headers([text, text]) == [header]


def test_many_and_long_warnings_are_cut() -> None:
    headers = warning_headers([f"{number}{'x' * 300}" for number in range(100)])
    assert len(headers) == 16
    assert sum(map(len, headers)) < 5000


async def test_a_large_list_arrives_whole_with_its_length(api: Api) -> None:
    for number in range(4):
        record = {
            "kind": "ConfigMap",
            "apiVersion": "v1",
            "metadata": {"name": f"c{number}"},
            "data": {"k": f"{number}" * 300_000},
        }
        assert (await api.call("POST", CONFIG_MAPS, record)).status == 201
    answer = await api.call("GET", CONFIG_MAPS, headers={"Accept-Encoding": "identity"})
    assert answer.status == 200
    assert answer.headers["Content-Length"] == str(len(answer.body))
    assert not {"Vary", "Content-Encoding"} & answer.headers.keys()
    assert [len(item["data"]["k"]) for item in answer.json["items"]] == [300_000] * 4
    head = await api.call("HEAD", CONFIG_MAPS)
    assert (head.status, head.body) == (200, b"")
    page = (await api.call("GET", "/metrics")).text
    assert "apiserver_response_sizes_sum" in page


TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@pytest.mark.parametrize(
    ("query", "accept", "packed"),
    [
        ("", "application/json", True),
        ("/c1", "application/json", True),
        ("?includeObject=Object", TABLE, True),
        ("?watch=true&timeoutSeconds=1", "application/json", False),
        ("?limit=1&fieldSelector=metadata.name%3Dsmall", "application/json", False),
    ],
)
async def test_large_answers_are_compressed_for_who_takes_that_but_no_watches(
    api: Api, query: str, accept: str, packed: bool
) -> None:
    record = {"kind": "ConfigMap", "apiVersion": "v1"}
    for name, size in (("c1", 300_000), ("c2", 150_000), ("small", 10)):
        body = {**record, "metadata": {"name": name}, "data": {"k": name[-1] * size}}
        assert (await api.call("POST", CONFIG_MAPS, body)).status == 201
    path = CONFIG_MAPS + query
    plain = await api.call("GET", path, accept=accept, headers={"Accept-Encoding": "br"})
    assert "Content-Encoding" not in plain.headers
    asked = {"Accept": accept, "Accept-Encoding": "br, gzip;q=0.5"}
    async with api.session("admin").get(api.url(path), headers=asked) as response:
        assert response.headers.get("Content-Encoding") == ("gzip" if packed else None)
        assert response.headers.get("Vary") == ("Accept-Encoding" if packed else None)
        assert _of_no_age(await response.read()) == _of_no_age(plain.body)
    received = gzip.decompress(await _raw(api, path, accept)) if packed else plain.body
    assert _of_no_age(received) == _of_no_age(plain.body)


def _of_no_age(table: bytes) -> bytes:
    """The same whenever it was asked for: the last column is an age."""
    return re.sub(rb'"\d+s"', b'"0s"', table)


async def _raw(api: Api, path: str, accept: str) -> bytes:
    """The body as it is sent."""
    connector = aiohttp.TCPConnector(ssl=api.context("admin"))
    async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session:
        sent = {"Accept": accept, "Accept-Encoding": "gzip"}
        async with session.get(api.url(path), headers=sent) as response:
            body = await response.read()
    assert len(body) < 20_000
    return body


@pytest.mark.slow
async def test_others_are_served_while_a_slow_client_reads(api: Api) -> None:
    record = {"kind": "ConfigMap", "apiVersion": "v1", "data": {"k": "x" * 900_000}}
    for number in range(12):
        await api.call("POST", CONFIG_MAPS, record | {"metadata": {"name": f"c{number}"}})
    async with api.session("admin").get(api.url(CONFIG_MAPS)) as slow:
        async with asyncio.timeout(20):
            for _ in range(5):
                assert (await api.call("GET", f"{CONFIG_MAPS}/c1")).status == 200
        assert len(orjson.loads(await slow.read())["items"]) == 12


def test_success_is_a_status_with_an_optional_code() -> None:
    assert orjson.loads(success_status()) == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
    }
    assert orjson.loads(success_status(201))["code"] == 201


def test_a_deletion_names_exactly_what_went() -> None:
    document = {"kind": "K", "apiVersion": "v1", "metadata": {"name": "x", "uid": "u"}}
    stored = Stored("/k/x", 1, encode(document))
    assert orjson.loads(deleted_status(LEASES, stored))["details"] == {
        "name": "x",
        "group": "coordination.orch.io",
        "kind": "leases",
        "uid": "u",
    }
    assert "group" not in orjson.loads(deleted_status(NODES, stored))["details"]
