"""ConfigMaps and Secrets: named values, bounded in total, immutable on request; LimitRanges; pure.

`stringData` of a Secret is merged into `data` and never stored. A Secret's type says which values
it must have; the types are those clients write (`kubectl create secret`), from the reference's
pkg/apis/core/validation.
"""

from __future__ import annotations

import base64
import itertools
import re
from collections.abc import Iterator, Mapping

import orjson

from orch.server.strategy.base import Document, Strategy
from orch.wire import causes
from orch.wire.errors import Cause
from orch.wire.podrules import limit_ranges
from orch.wire.records.kinds import CONFIG_MAPS, LIMIT_RANGES, SECRETS

MAX_BYTES = 1024 * 1024
_KEY_MAX = 253
_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_VALID_KEY = re.compile(rf"(?!\.(?:\.|$))[-._a-zA-Z0-9]{{1,{_KEY_MAX}}}")
_KEY_TEXT = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
    " (e.g. 'key.name', or 'KEY_NAME', or 'key-name', regex used for validation is"
    " '[-._a-zA-Z0-9]+')"
)


def key_causes(field: str, values: Mapping[str, str]) -> Iterator[Cause]:
    """Invalid names of values, which become names of files."""
    for key in itertools.filterfalse(_VALID_KEY.fullmatch, values):
        path = f"{field}[{key}]"
        if len(key) > _KEY_MAX:
            yield causes.invalid_value(path, key, f"must be no more than {_KEY_MAX} characters")
        if not _KEY.fullmatch(key):
            yield causes.invalid_value(path, key, _KEY_TEXT)
        elif key in (".", "..") or key.startswith(".."):
            yield causes.invalid_value(path, key, "must not be '.' or begin with '..'")


def size_causes(path: str, *values: Mapping[str, str]) -> Iterator[Cause]:
    """Whether the values are too large in total; base64 counts as the decoded bytes."""
    *texts, encoded = values
    size = sum(len("".join(data.values()).encode()) for data in texts)
    size += sum(len(value) * 3 // 4 for value in encoded.values())
    if size > MAX_BYTES:
        yield causes.too_long(path, f"may not be more than {MAX_BYTES} bytes")


def frozen_causes(new: Document, old: Document | None, *fields: str) -> Iterator[Cause]:
    """Changes to an object that was declared immutable."""
    if old is None or not old.get("immutable"):
        return
    why = "field is immutable when `immutable` is set"
    if not new.get("immutable"):
        yield causes.forbidden("immutable", why)
    for field in fields:
        if (new.get(field) or {}) != (old.get(field) or {}):
            yield causes.forbidden(field, why)


def _validate(new: Document, old: Document | None) -> Iterator[Cause]:
    texts, encoded = new.get("data") or {}, new.get("binaryData") or {}
    yield from key_causes("data", texts)
    yield from key_causes("binaryData", encoded)
    for key in texts.keys() & encoded.keys():
        yield causes.invalid_value(f"data[{key}]", key, "duplicate of key present in binaryData")
    yield from size_causes("data", texts, encoded)
    yield from frozen_causes(new, old, "data", "binaryData")


CONFIG_MAP_STRATEGY = Strategy(CONFIG_MAPS, validate=_validate)

OPAQUE = "Opaque"
TOKEN = "kubernetes.io/service-account-token"  # noqa: S105 - a type
ACCOUNT_ANNOTATION = "kubernetes.io/service-account.name"
_ALL_OF = {
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
}
_JSON_KEYS = (".dockercfg", ".dockerconfigjson")
_BASIC_AUTH = "kubernetes.io/basic-auth"


def _prepare(new: Document, old: Document | None = None) -> None:
    new["type"] = new.get("type") or (old or {}).get("type") or OPAQUE
    texts = new.pop("stringData", None) or {}
    if texts:
        encoded = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
        new["data"] = {**(new.get("data") or {}), **encoded}


def _validate_secret(new: Document, old: Document | None) -> Iterator[Cause]:
    data = new.get("data") or {}
    yield from key_causes("data", data)
    yield from size_causes("data", data)
    yield from _type_causes(new, data)
    if old is not None and new["type"] != old.get("type"):
        yield causes.invalid_value("type", new["type"], "field is immutable")
    yield from frozen_causes(new, old, "data")


def _type_causes(new: Document, data: dict[str, str]) -> Iterator[Cause]:
    kind = new["type"]
    for key in _ALL_OF.get(kind, ()):
        if key not in data:
            yield causes.required(f"data[{key}]")
        elif key in _JSON_KEYS and not _is_json(data[key]):
            yield causes.invalid_value(f"data[{key}]", "<secret contents redacted>", "is not JSON")
    if kind == _BASIC_AUTH and not {"username", "password"} & data.keys():
        yield causes.required("data[username]")
        yield causes.required("data[password]")
    annotations = new["metadata"].get("annotations") or {}
    if kind == TOKEN and not annotations.get(ACCOUNT_ANNOTATION):
        yield causes.required(f"metadata.annotations[{ACCOUNT_ANNOTATION}]")


def _is_json(encoded: str) -> bool:
    try:
        orjson.loads(base64.b64decode(encoded))
    except ValueError:
        return False
    return True


SECRET_STRATEGY = Strategy(
    SECRETS,
    paths=("type",),
    prepare_create=_prepare,
    prepare_update=_prepare,
    validate=_validate_secret,
)


def _complete_update(new: Document, _old: Document) -> None:
    limit_ranges.complete(new)


def _validate_range(new: Document, _old: Document | None) -> Iterator[Cause]:
    yield from limit_ranges.range_causes(new)


LIMIT_RANGE_STRATEGY = Strategy(
    LIMIT_RANGES,
    prepare_create=limit_ranges.complete,
    prepare_update=_complete_update,
    validate=_validate_range,
)
