"""Errors as HTTP responses: the one place where an ApiError becomes a status code and a body.

`api_errors` responds with Status records (the API server), `text_errors` with plain text (the
agent, as its clients expect). An unexpected exception is logged with its traceback, and its details
stay out of the response.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import orjson
from aiohttp import web
from aiohttp.typedefs import Middleware

from orch.wire.errors import ApiError

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
TEXT = "text/plain; charset=utf-8"

_HTTP_ERRORS = {
    405: ("MethodNotAllowed", "the server does not allow this method on the requested resource"),
    413: ("RequestEntityTooLarge", "the request body is larger than the server accepts"),
}


def render_status(error: ApiError) -> web.Response:
    """The Status record with its HTTP code, and Retry-After where the error names a delay."""
    body = orjson.dumps(error.to_status())
    response = web.Response(status=error.code, body=body, content_type="application/json")
    return _with_retry_after(response, error)


def render_text(text: str, *, status: int = 200) -> web.Response:
    """A plain text response, marked so that no browser guesses another type."""
    headers = {"Content-Type": TEXT, "X-Content-Type-Options": "nosniff"}
    return web.Response(status=status, body=text.encode(), headers=headers)


def _render_error_text(error: ApiError) -> web.Response:
    return _with_retry_after(render_text(error.message, status=error.code), error)


def _with_retry_after(response: web.Response, error: ApiError) -> web.Response:
    if error.retry_after_s is not None:
        response.headers["Retry-After"] = str(error.retry_after_s)
    return response


def _answering(render: Callable[[ApiError], web.Response]) -> Middleware:
    """The middleware that responds to errors as `render` does."""

    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except Exception as error:
            return answer_error(request, error, render)

    return answer


api_errors = _answering(render_status)
text_errors = _answering(_render_error_text)


def answer_error(
    request: web.Request, error: Exception, render: Callable[[ApiError], web.Response]
) -> web.Response:
    """The response for an error of a handler; redirections and disconnects are re-raised."""
    match error:
        case ApiError():
            _refuse_if_started(request, error)
            return render(error)
        case web.HTTPException() if error.status >= 400:
            return _from_router(error, render)
        case web.HTTPException() | ConnectionError():
            try:
                raise error
            finally:
                del error  # it holds this frame: the whole request would stay as garbage
    log.error("%s %s failed unexpectedly", request.method, request.path, exc_info=error)
    _refuse_if_started(request, error)
    return render(ApiError(500, "InternalError", "Internal error occurred: see the log"))


def _from_router(
    error: web.HTTPException, render: Callable[[ApiError], web.Response]
) -> web.Response:
    if error.status == 404:
        return render_text("404 page not found\n", status=404)
    reason, text = _HTTP_ERRORS.get(error.status, ("BadRequest", error.reason))
    response = render(ApiError(error.status, reason, text))
    if "Allow" in error.headers:
        response.headers["Allow"] = error.headers["Allow"]
    return response


def _refuse_if_started(request: web.Request, error: Exception) -> None:
    """Cut the connection if the response has started, since it can no longer be replaced."""
    if request.writer.output_size > 0:
        raise ConnectionError(f"the answer broke off: {error}") from error
