"""/statusz, /flagz and /configz: text and records, golden forms, redaction."""

import argparse
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from pydantic import BaseModel

from orch.component.diagnostics import zpages
from orch.component.diagnostics.zpages import ZPages
from orch.component.flags.features import Features
from orch.component.flags.stability import parse_release
from orch.component.secret import Secret
from orch.wire.names import VERSION

STARTED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NOW = STARTED + timedelta(hours=27, minutes=4, seconds=9.7)
ON = Features({"ComponentStatusz": True, "ComponentFlagz": True})
STATUSZ = {"Accept": "application/json;v=v1alpha1;g=config.orch.io;as=Statusz"}
FLAGZ = {"Accept": "application/json;v=v1alpha1;g=config.orch.io;as=Flagz"}
FLAGS = {"port": "10250", "config": "", "token": str(Secret("hunter2")), "a<b": "x+y"}

Client = TestClient[web.Request, web.Application]


def application(features: Features = ON) -> web.Application:
    pages = ZPages("nodeagent", FLAGS, start_s=STARTED.timestamp(), now=lambda: NOW)
    app = web.Application()
    for path in ("/healthz", "/healthz/{check}", "/metrics/slis", "/pods", "/api/{path:.*}", "/"):
        app.router.add_get(path, pages.flagz)
    app.router.add_routes([zpages.configz("agentconfig", lambda: {"port": 1})])
    app.router.add_routes(pages.routes(features))
    return app


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with TestClient(TestServer(application())) as made:
        yield made


async def test_statusz_is_text_for_people(client: Client) -> None:
    response = await client.get("/statusz")
    assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    lines = (await response.text()).split("\n")
    assert lines[:2] == ["", "nodeagent statusz"]
    assert lines[2].startswith("Warning: ")
    assert lines[3] == ""
    delimiter = re.fullmatch(r"Started(.+?) Fri Jan  2 03:04:05 UTC 2026", lines[4])
    assert delimiter is not None
    d = delimiter[1]
    assert d in (":", ": ", "=", " ")
    assert lines[5] == f"Up{d} 27 hr 04 min 09 sec"
    assert lines[6].startswith(f"Go version{d} python3.")
    assert lines[7:] == [
        f"Binary version{d} {VERSION.replace('+', '&#43;')}",
        f"Emulation version{d} 1.35",
        f"Paths{d} /configz /flagz /healthz /metrics",
        "",
    ]


async def test_the_delimiter_differs_from_one_page_to_another(client: Client) -> None:
    pages = {await (await client.get("/statusz")).text() for _ in range(60)}
    assert len(pages) == 4


async def test_statusz_as_a_record(client: Client) -> None:
    response = await client.get("/statusz", headers=STATUSZ)
    assert response.headers["Content-Type"] == STATUSZ["Accept"]
    record = await response.json()
    assert record.pop("goVersion").startswith("python3.")
    assert record == {
        "kind": "Statusz",
        "apiVersion": "config.orch.io/v1alpha1",
        "metadata": {"name": "nodeagent"},
        "startTime": "2026-01-02T03:04:05Z",
        "uptimeSeconds": 97449,
        "binaryVersion": VERSION,
        "emulationVersion": "1.35",
        "minimumCompatibilityVersion": "1.34",
        "paths": ["/configz", "/flagz", "/healthz", "/metrics"],
    }


async def test_a_clock_set_back_gives_no_negative_uptime() -> None:
    pages = ZPages("x", {}, start_s=NOW.timestamp(), now=lambda: STARTED)
    app = web.Application()
    app.router.add_routes(pages.routes(ON))
    async with TestClient(TestServer(app)) as client:
        assert (await (await client.get("/statusz", headers=STATUSZ)).json())["uptimeSeconds"] == 0


async def test_flagz_lists_all_flags_sorted_and_hides_secrets(client: Client) -> None:
    text = await (await client.get("/flagz")).text()
    lines = text.split("\n")
    assert lines[1] == "nodeagent flagz"
    assert lines[4:] == ["a<b=x+y", "config=", "port=10250", "token=CLASSIFIED", ""]
    record = await (await client.get("/flagz", headers=FLAGZ)).json()
    assert record == {
        "kind": "Flagz",
        "apiVersion": "config.orch.io/v1alpha1",
        "metadata": {"name": "nodeagent"},
        "flags": {"a<b": "x+y", "config": "", "port": "10250", "token": "CLASSIFIED"},
    }


@pytest.mark.parametrize(("page", "accept"), [("statusz", STATUSZ), ("flagz", FLAGZ)])
async def test_an_emulated_release_has_only_the_forms_it_had(
    page: str, accept: dict[str, str]
) -> None:
    pages = ZPages("nodeagent", FLAGS, emulated=parse_release("1.34"))
    app = web.Application()
    app.router.add_routes(pages.routes(ON))
    async with TestClient(TestServer(app)) as client:
        refused = await client.get(f"/{page}", headers=accept)
        assert refused.status == 406
        message = (await refused.json())["message"]
        assert message == "only the following media types are accepted: text/plain"
        assert (await client.get(f"/{page}")).status == 200
        either = {"Accept": f"{accept['Accept']}, text/plain"}
        assert (await client.get(f"/{page}", headers=either)).content_type == "text/plain"


@pytest.mark.parametrize("page", ["statusz", "flagz"])
@pytest.mark.parametrize("accept", ["application/json", "application/xml", "text/html"])
async def test_what_cannot_be_given_is_406_with_a_status_record(
    client: Client, page: str, accept: str
) -> None:
    response = await client.get(f"/{page}", headers={"Accept": accept})
    assert response.status == 406
    status = await response.json()
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 406, "NotAcceptable")
    assert f"as={page.capitalize()}, text/plain" in status["message"]


async def test_people_at_terminals_get_indented_records(client: Client) -> None:
    for change in ({"User-Agent": "curl/8.0"}, {"User-Agent": "Mozilla/5.0 (X11)"}):
        response = await client.get("/flagz", headers={**FLAGZ, **change})
        assert (await response.text()).startswith('{\n  "kind"')
    assert (await (await client.get("/flagz?pretty=1", headers=FLAGZ)).text()).startswith("{\n")
    assert (await (await client.get("/flagz", headers=FLAGZ)).text()).startswith('{"kind"')


@pytest.mark.parametrize(
    ("gates", "statusz", "flagz"),
    [
        ({}, 404, 404),
        ({"ComponentStatusz": True}, 200, 404),
        ({"ComponentFlagz": True}, 404, 200),
        ({"AllAlpha": True}, 200, 200),
    ],
)
async def test_a_page_exists_only_with_its_gate(
    gates: dict[str, bool], statusz: int, flagz: int
) -> None:
    async with TestClient(TestServer(application(Features(gates)))) as client:
        assert (await client.get("/statusz")).status == statusz
        assert (await client.get("/flagz")).status == flagz


async def test_configz_is_a_record_by_name(client: Client) -> None:
    response = await client.get("/configz")
    assert response.headers["Content-Type"] == "application/json"
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert await response.json() == {"agentconfig": {"port": 1}}


class Settings(BaseModel):
    headers: dict[str, list[Secret]]


async def test_configz_shows_no_secret() -> None:
    settings = Settings.model_validate({"headers": {"Authorization": ["hunter2"]}})
    app = web.Application()
    app.router.add_routes([zpages.configz("x", lambda: settings.model_dump(mode="json"))])
    async with TestClient(TestServer(app)) as client:
        assert await (await client.get("/configz")).json() == {
            "x": {"headers": {"Authorization": ["CLASSIFIED"]}}
        }


def test_flags_come_from_the_parser_with_their_values_as_text() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-p", "--port", type=int, default=10250)
    parser.add_argument("--config")
    parser.add_argument("--quiet", action="store_true")
    parser.add_argument("--labels", type=dict[str, str])
    parser.add_argument("--suites", nargs="*")
    parser.add_argument("--token", type=Secret)
    values = parser.parse_args(["--token", "hunter2", "--suites", "a", "b", "--quiet"])
    values.labels = {"b": True, "a": "1"}
    shown: dict[str, Any] = zpages.flags_of(parser, values)
    assert shown == {
        "port": "10250",
        "config": "",
        "quiet": "true",
        "labels": "a=1,b=true",
        "suites": "a,b",
        "token": "CLASSIFIED",
    }
