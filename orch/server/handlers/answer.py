"""The answers of resource requests: bodies with their headers, codes and warnings.

The Status record of what went well; pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import orjson
from aiohttp import web

from orch.component.http.sliced_response import respond
from orch.server.handlers import render
from orch.server.handlers.call import Call
from orch.server.handlers.render import Rendering
from orch.server.objects.document import decode
from orch.server.request import media
from orch.server.request.attributes import is_true
from orch.server.storage.base import Stored
from orch.wire.records.kinds import Resource

_WARNINGS_MAX = 4096  # characters in all
_WARNING_MAX = 256
_PRETTY_AGENTS = ("curl", "Wget", "Mozilla/5.0")


def rendering_of(call: Call, now: datetime) -> Rendering:
    """The form the client wants; ApiError 400 or 406 when there is no such form."""
    return Rendering(
        call.strategy.resource,
        media.negotiate(call.request.headers.get("Accept", "")),
        now,
        render.parse_include_object(call.request.query.get("includeObject", "")),
        call.info.alias,
    )


def answer_object(
    call: Call,
    rendering: Rendering,
    stored: Stored,
    *,
    status: int = 200,
    warnings: Sequence[str] = (),
) -> web.Response:
    body = render.render_object(rendering, stored)
    return answer(call, rendering, body, status=status, warnings=warnings)


def answer(
    call: Call,
    rendering: Rendering,
    body: bytes,
    *,
    status: int = 200,
    warnings: Sequence[str] = (),
) -> web.Response:
    """JSON, indented for those who read it with their eyes; one Warning header per warning."""
    if _wants_pretty(call.request):
        body = render.indented(body)
    headers = {
        "Content-Type": rendering.representation.content_type,
        "Cache-Control": "no-cache, private",
    }
    response = respond(status, body, headers)
    if warnings:
        for header in warning_headers(warnings):
            response.headers.add("Warning", header)
    return response


def warning_headers(warnings: Sequence[str]) -> list[str]:
    """One header each, as long as they are few and short; the texts may quote what a caller sent.

    From 4 KiB in all on each is cut to 256 characters, and what is beyond another 4 KiB left out.
    """
    texts = [_printable(warning) for warning in dict.fromkeys(warnings)]
    if sum(map(len, texts)) > _WARNINGS_MAX:
        texts = [text[:_WARNING_MAX] for text in texts][: _WARNINGS_MAX // _WARNING_MAX]
    quoted = (text.replace("\\", "\\\\").replace('"', '\\"') for text in texts)
    return [f'299 - "{text}"' for text in quoted]


def _printable(text: str) -> str:
    ascii_text = text.encode("ascii", "backslashreplace").decode()
    return "".join(one if one.isprintable() else "?" for one in ascii_text)


def _wants_pretty(request: web.Request) -> bool:
    asked = request.query.get("pretty")
    if asked is not None:
        return is_true(asked)
    return request.headers.get("User-Agent", "").startswith(_PRETTY_AGENTS)


def success_status(code: int | None = None, details: dict[str, Any] | None = None) -> bytes:
    status: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
    }
    if details:
        status["details"] = details
    if code is not None:
        status["code"] = code
    return orjson.dumps(status)


def deleted_status(resource: Resource, stored: Stored) -> bytes:
    """What was deleted; clients wait for the end of exactly this uid."""
    metadata = decode(stored)["metadata"]
    details = {"name": metadata["name"], "kind": resource.plural, "uid": metadata["uid"]}
    if resource.group:
        details["group"] = resource.group
    return success_status(details=details)
