"""Bootstrap tokens: `abcdef.0123456789abcdef`, kept as Secrets, for machines that join a cluster.

A token is the Secret `bootstrap-token-<id>` in the system namespace, as tools of the reference
write it. It makes its bearer `system:bootstrap:<id>` in the group `system:bootstrappers`.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from orch.server.tokens import Holder, TokenAuthenticator, TokenRefused
from orch.wire import times
from orch.wire.identity import Identity
from orch.wire.names import GROUP_BOOTSTRAPPERS

TYPE = "bootstrap.kubernetes.io/token"
PREFIX = "bootstrap-token-"
_TOKEN = re.compile(r"([a-z0-9]{6})\.([a-z0-9]{16})")
_GROUP = re.compile(r"system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]")

# The Secret of a name in the system namespace, as JSON data.
FindSecret = Callable[[str], Mapping[str, Any] | None]


def authenticator(find: FindSecret, now: Callable[[], datetime]) -> TokenAuthenticator:
    def authenticate(token: str) -> Holder | None:
        matched = _TOKEN.fullmatch(token)
        if matched is None:
            return None
        token_id, secret = matched.groups()
        stored = find(PREFIX + token_id)
        if stored is None:
            return None
        return Holder(_identity(stored, token_id, secret, now()))

    return authenticate


def _identity(stored: Mapping[str, Any], token_id: str, secret: str, now: datetime) -> Identity:
    """TokenRefused says why, without the secret."""
    name = f"the bootstrap token {token_id}"
    values = {key: _text(value) for key, value in (stored.get("data") or {}).items()}
    if stored["metadata"].get("deletionTimestamp") or stored.get("type") != TYPE:
        raise TokenRefused(f"{name} is not in force")
    if values.get("token-id") != token_id or not hmac.compare_digest(
        values.get("token-secret", "").encode(), secret.encode()
    ):
        raise TokenRefused("invalid bearer token")
    if values.get("usage-bootstrap-authentication") != "true":
        raise TokenRefused(f"{name} is not for authentication")
    if "expiration" in values and _is_past(values["expiration"], now):
        raise TokenRefused(f"{name} has expired")
    groups = [one.strip() for one in values.get("auth-extra-groups", "").split(",") if one.strip()]
    if not all(_GROUP.fullmatch(group) for group in groups):
        raise TokenRefused(f"{name} names groups that are none of bootstrappers")
    return Identity(f"system:bootstrap:{token_id}", (GROUP_BOOTSTRAPPERS, *groups))


def _is_past(text: str, now: datetime) -> bool:
    """An expiration that cannot be read has passed."""
    try:
        return times.parse_time(text) <= now
    except ValueError:
        return True


def _text(value: Any) -> str:
    try:
        return base64.b64decode(value, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, TypeError, ValueError):
        return ""
