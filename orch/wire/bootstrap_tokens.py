"""Bootstrap tokens: the Secrets by which machines that join are known for a while; pure.

A token `<id>.<secret>` is the Secret `bootstrap-token-<id>` in the system namespace, as tools of
the reference write it.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from orch.wire import raw, times
from orch.wire.names import SYSTEM_NAMESPACE

TYPE = "bootstrap.kubernetes.io/token"
PREFIX = "bootstrap-token-"
TOKEN = re.compile(r"([a-z0-9]{6})\.([a-z0-9]{16})")
TOKEN_ID = re.compile(r"[a-z0-9]{6}")
GROUP = re.compile(r"system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]")
ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
AUTHENTICATES = "usage-bootstrap-authentication"

Document = Mapping[str, Any]


def secret_of(
    token: str, expiration: datetime | None, *, description: str = "", groups: Sequence[str] = ()
) -> dict[str, Any]:
    """The Secret of a token; `expiration` None: it stays. ValueError for what is no token."""
    matched = TOKEN.fullmatch(token)
    if matched is None:
        raise ValueError("a token is six characters of a-z and 0-9, a dot, and sixteen more")
    token_id, secret = matched.groups()
    given = {
        "token-id": token_id,
        "token-secret": secret,
        "expiration": times.format_time(expiration) if expiration else "",
        "description": description,
        "auth-extra-groups": ",".join(groups),
        AUTHENTICATES: "true",
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": PREFIX + token_id, "namespace": SYSTEM_NAMESPACE},
        "type": TYPE,
        "stringData": {name: value for name, value in given.items() if value},
    }


def values_of(secret: Document) -> dict[str, str]:
    """The values of a token's Secret as text; "" for what cannot be read."""
    return {name: _text(value) for name, value in raw.mapping(secret, "data").items()}


def is_past(expiration: str, now: datetime) -> bool:
    """Whether a token's time is over; one that cannot be read counts as passed, "" never is."""
    try:
        return bool(expiration) and times.parse_time(expiration) <= now
    except ValueError:
        return True


def _text(value: Any) -> str:
    try:
        return base64.b64decode(value, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, TypeError, ValueError):
        return ""
