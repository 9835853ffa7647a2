"""The text of `orchctl describe` for namespaces and what pods are configured by; pure.

A secret's values are never shown, only their sizes.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

from orch.ctl import sheet
from orch.wire import raw
from orch.wire.tables.layout import NONE

Record = Mapping[str, Any]
_TOKEN = "kubernetes.io/service-account-token"  # noqa: S105 - a type
_ACCOUNT = "kubernetes.io/service-account"
_CONDITIONS = ("Type", "Status", "LastTransitionTime", "Reason", "Message")


def namespace(record: Record) -> list[str]:
    conditions = [
        (
            raw.text(condition, "type"),
            raw.text(condition, "status"),
            sheet.moment(raw.text(condition, "lastTransitionTime")),
            raw.text(condition, "reason"),
            raw.text(condition, "message"),
        )
        for condition in raw.records(record, "status", "conditions")
    ]
    return [
        *sheet.head(record, namespaced=False),
        sheet.field("Status", raw.text(record, "status", "phase")),
        *(sheet.table("Conditions", _CONDITIONS, conditions) if conditions else []),
    ]


def config_map(record: Record) -> list[str]:
    lines = [*sheet.head(record), "", "Data", "===="]
    for key, value in sorted(raw.mapping(record, "data").items()):
        lines += [f"{key}:", "----", str(value), ""]
    binary = sorted(raw.mapping(record, "binaryData").items())
    sizes = [f"{key}: {_size(value)} bytes" for key, value in binary]
    return [*lines, "", "BinaryData", "====", *sizes, ""]


def secret(record: Record) -> list[str]:
    data = sorted(raw.mapping(record, "data").items())
    sizes = [sheet.field(key, f"{_size(value)} bytes") for key, value in data]
    kind = sheet.field("Type", raw.text(record, "type"))
    return [*sheet.head(record), "", kind, "", "Data", "====", *sizes]


def _size(value: Any) -> int:
    try:
        return len(base64.b64decode(str(value)))
    except binascii.Error:
        return len(str(value))


def service_account(record: Record, secrets: Sequence[Record] | None) -> list[str]:
    """`secrets` are those of its namespace; None when they may not be listed."""
    known = None if secrets is None else {_name(secret) for secret in secrets}
    tokens = [_name(secret) for secret in secrets or () if _is_token_of(secret, record)]
    return [
        *sheet.head(record),
        *_secrets("Image pull secrets:", _named(record, "imagePullSecrets"), known),
        *_secrets("Mountable secrets: ", _named(record, "secrets"), known),
        *_secrets("Tokens:            ", tokens, known),
    ]


def _secrets(title: str, names: Sequence[str], known: set[str] | None) -> list[str]:
    if not names:
        return [sheet.line(title, NONE)]
    shown = [f"{n} (not found)" if known is not None and n not in known else n for n in names]
    rest = [sheet.line(" " * len(title), name) for name in shown[1:]]
    return [sheet.line(title, shown[0]), *rest]


def _named(record: Record, member: str) -> list[str]:
    return [raw.text(item, "name") for item in raw.records(record, member)]


def _name(record: Record) -> str:
    return raw.text(record, "metadata", "name")


def _is_token_of(secret: Record, account: Record) -> bool:
    notes = raw.mapping(secret, "metadata", "annotations")
    uid = raw.text(account, "metadata", "uid")
    return (
        raw.text(secret, "type") == _TOKEN
        and notes.get(f"{_ACCOUNT}.name") == _name(account)
        and notes.get(f"{_ACCOUNT}.uid") == uid
    )
