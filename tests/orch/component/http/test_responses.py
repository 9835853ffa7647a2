import asyncio
import logging
from collections.abc import Awaitable, Callable

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient

from orch.component.http import responses
from orch.wire import errors
from orch.wire.errors import ApiError
from tests.garbage import is_left_by

Client = TestClient[web.Request, web.Application]
MakeClient = Callable[[web.Application], Awaitable[Client]]


async def boom(_request: web.Request) -> web.Response:
    raise ZeroDivisionError("secret detail")


async def missing(_request: web.Request) -> web.Response:
    raise errors.not_found("pods", "web")


async def busy(_request: web.Request) -> web.Response:
    raise ApiError(429, "TooManyRequests", "too many", retry_after_s=7)


async def moved(_request: web.Request) -> web.Response:
    raise web.HTTPFound("/elsewhere")


async def half(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    response.content_length = 100
    await response.prepare(request)
    await response.write(b"half")
    raise errors.expired("too late")


def app(middleware: object) -> web.Application:
    app = web.Application(middlewares=[middleware])  # type: ignore[list-item]
    for handler in (boom, missing, busy, moved, half):
        app.router.add_get(f"/{handler.__name__}", handler)
    return app


@pytest.fixture
async def api(aiohttp_client: MakeClient) -> Client:
    return await aiohttp_client(app(responses.api_errors))


@pytest.fixture
async def text(aiohttp_client: MakeClient) -> Client:
    return await aiohttp_client(app(responses.text_errors))


async def test_an_api_error_becomes_its_status_record(api: Client) -> None:
    response = await api.get("/missing")
    assert response.status == 404
    assert response.content_type == "application/json"
    assert orjson.loads(await response.read()) == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'pods "web" not found',
        "reason": "NotFound",
        "details": {"name": "web", "kind": "pods"},
        "code": 404,
    }


async def test_a_delay_is_also_a_header(api: Client) -> None:
    response = await api.get("/busy")
    assert (response.status, response.headers["Retry-After"]) == (429, "7")


async def test_the_agents_errors_are_plain_text(text: Client) -> None:
    response = await text.get("/missing")
    assert response.status == 404
    assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert await response.text() == 'pods "web" not found'


async def test_an_unexpected_error_is_logged_and_not_shown(
    api: Client, text: Client, caplog: pytest.LogCaptureFixture
) -> None:
    for client in (api, text):
        caplog.clear()
        response = await client.get("/boom")
        assert response.status == 500
        assert "secret detail" not in await response.text()
        (record,) = caplog.records
        assert record.getMessage() == "GET /boom failed unexpectedly"
        assert record.exc_info is not None


async def test_an_unknown_path_gets_the_text_clients_know(api: Client, text: Client) -> None:
    for client in (api, text):
        response = await client.get("/nope")
        assert (response.status, await response.text()) == (404, "404 page not found\n")


async def test_a_wrong_method_names_the_right_ones(api: Client) -> None:
    response = await api.delete("/missing")
    assert (response.status, response.headers["Allow"]) == (405, "GET,HEAD")
    assert (await response.json())["reason"] == "MethodNotAllowed"


async def test_a_redirect_is_no_error(api: Client) -> None:
    response = await api.get("/moved", allow_redirects=False)
    assert (response.status, response.headers["Location"]) == (302, "/elsewhere")


async def test_an_answer_under_way_is_cut_not_followed_by_another(api: Client) -> None:
    from aiohttp import ClientPayloadError

    response = await api.get("/half")
    assert response.status == 200
    with pytest.raises(ClientPayloadError):
        await response.read()


async def test_a_client_that_goes_away_is_not_an_error(caplog: pytest.LogCaptureFixture) -> None:
    async def gone(_request: web.Request) -> web.Response:
        raise ConnectionResetError

    request = object()
    with caplog.at_level(logging.INFO), pytest.raises(ConnectionResetError):
        await responses.api_errors(request, gone)  # type: ignore[arg-type]
    assert caplog.records == []


async def test_a_stop_of_the_server_is_not_an_error() -> None:
    async def cancelled(_request: web.Request) -> web.Response:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await responses.api_errors(object(), cancelled)  # type: ignore[arg-type]


async def test_a_client_that_has_gone_leaves_no_garbage() -> None:
    async def answer() -> None:
        try:
            raise ConnectionResetError
        except ConnectionError as error:
            responses.answer_error(None, error, responses.render_status)  # type: ignore[arg-type]

    assert not await is_left_by(answer)
