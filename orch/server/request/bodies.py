"""Request bodies made into JSON data, by their content type.

Without a content type a body is JSON: `kubectl create --raw` sends none. Null fields are dropped:
to the clients of this API null means "not said".

Request bodies in protobuf, as newer clients send them for some kinds, read into JSON data.

The envelope is read here; the kinds are in `protobufkinds`, a Pod in `protobufpods`. Answers are
always JSON.
"""

from __future__ import annotations

from typing import Any

import orjson

from orch.server.request import media, protobuf_kinds
from orch.server.request.protobuf_kinds import KINDS
from orch.server.request.protobuf_wire import Field, Message, message, octets, read_message, text
from orch.wire.errors import ApiError, bad_request
from orch.wire.patch.data import MAX_DEPTH

MAGIC = b"k8s\x00"
_TYPE_META = {1: Field("apiVersion", text), 2: Field("kind", text)}
_UNKNOWN = {1: Field("typeMeta", message(_TYPE_META)), 2: Field("raw", octets)}


def decode(body: bytes) -> dict[str, Any]:
    """The object in the envelope, as JSON data with its kind and apiVersion.

    ApiError 400 for what is not protobuf, 415 for a kind that is only taken as JSON.
    """
    if not body.startswith(MAGIC):
        raise bad_request("the body is not in the protobuf envelope its content type promises")
    try:
        envelope = read_message(memoryview(body)[len(MAGIC) :], _UNKNOWN)
        kind = envelope.get("typeMeta", {}).get("kind", "")
        table = _table(kind)
        if table is not None:
            document = read_message(memoryview(envelope.get("raw", b"")), table)
            return {**envelope["typeMeta"], **document}
    except (ValueError, OverflowError, OSError, RecursionError) as error:
        raise bad_request(f"the protobuf body cannot be decoded: {error}") from None
    raise ApiError(
        415,
        "UnsupportedMediaType",
        f"objects of kind {kind!r} are not accepted as protobuf: send application/json",
    )


def _table(kind: str) -> Message | None:
    return protobuf_kinds.pod() if kind == "Pod" else KINDS.get(kind)


ACCEPTED = (media.JSON, media.PROTOBUF)
_AS_JSON = (media.JSON, "")
_INT64_MAX = 2**63 - 1  # less than the least is a float, of which records take none


def decode_object(body: bytes, content_type: str) -> dict[str, Any]:
    """The object in a body; ApiError 400, 415. The caller may change it."""
    kind = media.parse_media(content_type).type
    if kind == media.PROTOBUF:
        return decode(body)
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


def drop_nulls(value: Any, depth: int = 0) -> Any:
    """JSON data without the fields that are null: to a client, null means it said nothing.

    ApiError 400 for data nested deeper than any object is, and for numbers that no client reads.
    """
    kind = type(value)
    if kind is dict or kind is list:
        if depth >= MAX_DEPTH:
            raise bad_request(f"the object is nested deeper than {MAX_DEPTH} levels")
        below = depth + 1
        if kind is list:
            return [one if type(one) is str else drop_nulls(one, below) for one in value]
        return {
            name: one if type(one) is str else drop_nulls(one, below)  # most are texts
            for name, one in value.items()
            if one is not None
        }
    if kind is int and value > _INT64_MAX:
        raise bad_request(f"the number {value} does not fit into 64 bits with a sign")
    return value
