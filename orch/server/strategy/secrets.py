"""Secrets: values in base64, of a type that says which ones must be there; pure.

`stringData` is taken over into `data` and never stored. The types are those clients write
(`kubectl create secret`), from the reference's pkg/apis/core/validation.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

from orch.server import fieldcauses as causes
from orch.server.strategy import datakeys
from orch.server.strategy.base import Document, Strategy
from orch.wire.errors import Cause
from orch.wire.kinds import SECRETS

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


def _prepare_create(document: Document) -> None:
    document["type"] = document.get("type") or OPAQUE
    _take_over_texts(document)


def _prepare_update(new: Document, old: Document) -> None:
    new["type"] = new.get("type") or old.get("type") or OPAQUE
    _take_over_texts(new)


def _take_over_texts(document: Document) -> None:
    texts = document.pop("stringData", None) or {}
    if texts:
        encoded = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
        document["data"] = {**(document.get("data") or {}), **encoded}


def _validate(new: Document, old: Document | None) -> list[Cause]:
    found = list(_data_causes(new))
    if old is not None and new["type"] != old.get("type"):
        found.append(causes.invalid_value("type", new["type"], "field is immutable"))
    found.extend(datakeys.frozen_causes(new, old, "data"))
    return found


def _data_causes(new: Document) -> Iterator[Cause]:
    data = new.get("data") or {}
    yield from datakeys.key_causes("data", data)
    yield from datakeys.size_causes("data", data)
    yield from _type_causes(new, data)


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
        json.loads(base64.b64decode(encoded))
    except (ValueError, RecursionError):
        return False
    return True


STRATEGY = Strategy(
    SECRETS,
    paths=("type",),
    prepare_create=_prepare_create,
    prepare_update=_prepare_update,
    validate=_validate,
)
