"""Request bodies parsed into JSON data, by their content type.

Without a content type a body is JSON: `kubectl create --raw` sends none. Null fields are dropped:
to the clients of this API null means "not set".
"""

from __future__ import annotations

from typing import Any

import orjson

from orch.component import yaml_file
from orch.server.request import media, protobuf
from orch.wire.errors import ApiError, bad_request
from orch.wire.patch.patch import MAX_DEPTH

MAX_BYTES = 3 * 1024 * 1024  # of one body, or of one stored object
YAML_MAX_BYTES = 2 * MAX_BYTES  # of what is written in YAML: an object and what is added to it
_YAML_BODY_BYTES = MAX_BYTES // 6  # the parser reads a long text in one go: 10 ms for this much
MAX_VALUES = 20_000  # likewise; most work grows with their number
MAX_PATCH_VALUES = 60_000  # of a JSON patch: 10,000 operations with their fields
MAX_RECORDED_VALUES = 4 * MAX_VALUES  # of an object with its `managedFields`
_RECORD = b'"managedFields"'
ACCEPTED = (media.JSON, media.YAML, media.PROTOBUF)
_AS_JSON = (media.JSON, "")
_INT64_MAX = 2**63 - 1  # below the minimum JSON gives a float, which records refuse


def decode_object(body: bytes, content_type: str, wanted: str = "object") -> dict[str, Any]:
    """The object in a body; ApiError 400, 415. The caller may change it. YAML is for `json_of`.
    `wanted` is its kind, for refusals.
    """
    kind = media.parse_media(content_type).type
    if kind == media.PROTOBUF:
        return protobuf.decode(body)
    if kind not in _AS_JSON:
        raise media.unknown_format(ACCEPTED)
    unrecognized = f"the object provided is unrecognized (must be of type {wanted})"
    data = loads(body, f"{unrecognized}: couldn't get version/kind; json parse error")
    if not isinstance(data, dict):
        raise bad_request(f"{unrecognized}: it is no JSON object")
    decoded: dict[str, Any] = drop_nulls(data)
    return decoded


def is_yaml(content_type: str, body: bytes = b"") -> bool:
    """Whether a body is for `json_of`; what is applied may be JSON as well."""
    kind = media.parse_media(content_type).type
    return kind == media.YAML or (kind == media.APPLY_PATCH and not _is_json(body))


def _is_json(body: bytes) -> bool:
    """Whether a body is JSON; YAML may begin as JSON does."""
    if len(body) > MAX_BYTES:
        return True  # refused for its size
    if body.lstrip()[:1] != b"{":
        return False
    try:
        require_bounded(body)
        return isinstance(orjson.loads(body), dict)
    except orjson.JSONDecodeError:
        return False
    except ApiError:
        return True  # refused for its values


def json_of(body: bytes) -> bytes:
    """A YAML body as JSON; takes up to a third of a second. ApiError 400, 413."""
    if len(body) > _YAML_BODY_BYTES:
        raise too_large(f"is larger than {_YAML_BODY_BYTES} bytes in YAML: send it as JSON")
    try:
        value = yaml_file.parse_yaml(body, source="the request body", most=MAX_VALUES).value
        return orjson.dumps(value)
    except (yaml_file.YamlError, orjson.JSONEncodeError) as error:
        raise bad_request(f"couldn't read the request body as YAML: {error}") from None


def yaml_of(body: bytes | bytearray) -> bytes:
    """A JSON answer as YAML, in the same time; ApiError 406 for more than any object is."""
    most = MAX_RECORDED_VALUES
    large = len(body) > YAML_MAX_BYTES
    if large or (values_in(body) > most and values_in(structure(bytes(body))) > most):
        raise media.not_acceptable((media.JSON,))
    return f"{yaml_file.dump(orjson.loads(body))}\n".encode()


def loads(body: bytes, failed: str, most: int = MAX_VALUES) -> Any:
    """The JSON data in a body; ApiError 400 begins with `failed`, 413 for too many values: more
    are allowed in one that says who set which field.
    """
    require_bounded(body, max(most, MAX_RECORDED_VALUES) if _RECORD in body else most)
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise bad_request(f"{failed}: {error}") from None


def values_in(body: bytes | bytearray) -> int:
    """The number of values in a body, at most: commas and brackets in texts count as well."""
    if body.startswith(protobuf.MAGIC):
        return len(body) // 4
    return len(body) - len(body.translate(None, b",[{"))  # four times as quick as counting each


def require_bounded(body: bytes, most: int = MAX_VALUES) -> None:
    """ApiError 413 for a JSON text that is too long or has too many values; does not parse it."""
    if len(body) > MAX_BYTES:
        raise too_large(f"is larger than {MAX_BYTES} bytes")
    if values_in(body) > most and values_in(structure(body)) > most:
        raise too_large(f"has more than {most} values")


def structure(body: bytes) -> bytes:
    """A JSON text without what is in its texts; all of it when it has more texts than it may."""
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")  # only the ends of texts are left
    if plain.count(b'"') > 4 * MAX_PATCH_VALUES:  # a name and a text for each value
        return body
    return b"".join(plain.split(b'"')[::2])


def too_large(how: str) -> ApiError:
    text = f"the object {how}: put less into one object"
    return ApiError(413, "RequestEntityTooLarge", text)


def drop_nulls(value: Any, depth: int = 0) -> Any:
    """JSON data without the fields that are null: to clients, null means not set.

    ApiError 400 for data nested too deeply, and for numbers that no client can read.
    """
    kind = type(value)
    if kind is dict or kind is list:
        if depth >= MAX_DEPTH:
            raise bad_request(f"the object is nested deeper than {MAX_DEPTH} levels")
        below = depth + 1
        if kind is list:
            return [item if type(item) is str else drop_nulls(item, below) for item in value]
        return {
            name: item if type(item) is str else drop_nulls(item, below)  # most are texts
            for name, item in value.items()
            if item is not None
        }
    if kind is int and value > _INT64_MAX:
        raise bad_request(f"the number {value} does not fit into 64 bits with a sign")
    return value
