"""Acting as somebody else: the Impersonate-* headers, checked before anything is decided; pure.

Only the administrators' group may impersonate here. A request that asks for it without the right is
refused, never answered with the caller's own rights. Rules: apiserver authentication/impersonation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import unquote

from orch.wire.errors import bad_request, forbidden
from orch.wire.identity import Identity
from orch.wire.names import (
    GROUP_AUTHENTICATED,
    GROUP_MASTERS,
    GROUP_UNAUTHENTICATED,
    USER_ANONYMOUS,
)

_PREFIX = "impersonate-"
_EXTRA = "impersonate-extra-"


def impersonate(identity: Identity, headers: Mapping[str, str]) -> Identity:
    """Who the request is from: `identity`, or whom it asks to be.

    ApiError 400 when groups, uid or extra come without a user, 403 without the right.
    """
    wanted = _wanted(headers)
    if not wanted:
        return identity
    user = _last(wanted, "impersonate-user")
    if not user:
        raise bad_request(
            "requested impersonation of groups, uid or extra without impersonating a user"
        )
    if GROUP_MASTERS not in identity.groups:
        raise forbidden(
            f'users "{user}" is forbidden: User "{identity.name}" cannot impersonate resource '
            '"users" in API group "" at the cluster scope'
        )
    return Identity(
        user,
        _groups(user, wanted.get("impersonate-group", ())),
        _last(wanted, "impersonate-uid"),
        {
            unquote(name[len(_EXTRA) :]): tuple(values)
            for name, values in wanted.items()
            if name.startswith(_EXTRA)
        },
    )


def _wanted(headers: Mapping[str, str]) -> dict[str, list[str]]:
    wanted: dict[str, list[str]] = {}
    for name, value in headers.items():  # a multi-dict gives a repeated header more than once
        if name.lower().startswith(_PREFIX):
            wanted.setdefault(name.lower(), []).append(value)
    return wanted


def _last(wanted: Mapping[str, list[str]], name: str) -> str:
    values = wanted.get(name)
    return values[-1] if values else ""


def _groups(user: str, asked: Sequence[str]) -> tuple[str, ...]:
    groups = tuple(asked)
    everybody = GROUP_UNAUTHENTICATED if user == USER_ANONYMOUS else GROUP_AUTHENTICATED
    return groups if everybody in groups else (*groups, everybody)
