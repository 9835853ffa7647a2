"""Request bodies made into JSON data, by their content type.

Without a content type a body is JSON: `kubectl create --raw` sends none. Null fields are dropped:
to the clients of this API null means "not said".
"""

from __future__ import annotations

from typing import Any

import orjson

from orch.server import media, protobuf
from orch.server.resources.metadata import drop_nulls
from orch.wire.errors import bad_request

ACCEPTED = (media.JSON, media.PROTOBUF)
_AS_JSON = (media.JSON, "")


def decode_object(body: bytes, content_type: str) -> dict[str, Any]:
    """The object in a body; ApiError 400, 415. The caller may change it."""
    kind = media.parse_media(content_type).type
    if kind == media.PROTOBUF:
        return protobuf.decode(body)
    if kind not in _AS_JSON:
        raise media.unknown_format(ACCEPTED)
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise bad_request(f"couldn't read the request body as JSON: {error}") from None
    if not isinstance(data, dict):
        raise bad_request("the request body must be a JSON object")
    decoded: dict[str, Any] = drop_nulls(data)
    return decoded
