"""Each request has a name, so that what the log says of it can be found from the client's side.

The caller's own (`X-Request-Id`) where it is a plain word, else a new one; it goes back in the
answer and into every log line written while the request is handled (`log`).
"""

from __future__ import annotations

import random
import re
from collections.abc import Awaitable, Callable

from aiohttp import web

from orch.component.log import request_name

HEADER = "X-Request-Id"

_PLAIN = re.compile(r"[A-Za-z0-9._-]{1,64}")


def current() -> str:
    """The name of the request that is handled here; "" outside of any."""
    return request_name.get()


@web.middleware
def named(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> Awaitable[web.StreamResponse]:
    """Name the request; aiohttp gives each one a context of its own."""
    request_name.set(_name(request.headers.get(HEADER, "")))
    return handler(request)


def show(response: web.StreamResponse) -> None:
    """Tell the caller the name; before the headers are sent."""
    if name := request_name.get():
        response.headers[HEADER] = name


def _name(asked: str) -> str:
    if asked and _PLAIN.fullmatch(asked):
        return asked
    return f"{random.getrandbits(64):016x}"
