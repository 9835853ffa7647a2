"""Request bodies in protobuf, as newer clients send them for some kinds, read into JSON data.

The envelope is read here; the kinds are in `protobufkinds`, a Pod in `protobufpods`. Answers are
always JSON.
"""

from __future__ import annotations

from typing import Any

from orch.server import protobufpods
from orch.server.protobufkinds import KINDS
from orch.server.protobufwire import Field, Message, message, octets, read_message, text
from orch.wire.errors import ApiError, bad_request

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
    return protobufpods.pod() if kind == "Pod" else KINDS.get(kind)
