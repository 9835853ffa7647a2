"""Impersonation: the Impersonate-* headers, checked before anything else is authorized; pure.

The right is the verb `impersonate` on `users`, `groups`, `serviceaccounts`, `uids` and
`userextras/<key>`, each by name (apiserver §5). A request that asks for it without the right is
refused, never answered with the caller's own rights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import unquote

from orch.server.authz.authorizer import Authorizer, forbidden
from orch.server.request.attributes import RequestInfo, is_text
from orch.wire.errors import bad_request
from orch.wire.names import (
    AUTHENTICATION_GROUP,
    GROUP_AUTHENTICATED,
    GROUP_SERVICE_ACCOUNTS,
    GROUP_UNAUTHENTICATED,
    USER_ANONYMOUS,
    USER_SERVICE_ACCOUNT_PREFIX,
)
from orch.wire.records.authentication import Identity
from orch.wire.validation import is_dns1123_label, is_dns1123_subdomain

PREFIX = "impersonate-"
_EXTRA = "impersonate-extra-"


def impersonate(identity: Identity, headers: Mapping[str, str], authorizer: Authorizer) -> Identity:
    """Whom the request acts as: `identity`, unless it has Impersonate-* headers.

    ApiError 400 for groups, uid or extra without a user, and for what is no text; 403 without the
    right.
    """
    wanted = _wanted(headers)
    if not wanted:
        return identity
    user = _last(wanted, "impersonate-user")
    if not user:
        raise bad_request(
            "requested impersonation of groups, uid or extra without impersonating a user"
        )
    asked = wanted.get("impersonate-group", ())
    acting = Identity(
        user,
        _groups(user, asked),
        _last(wanted, "impersonate-uid"),
        {
            unquote(name[len(_EXTRA) :]).lower(): tuple(values)
            for name, values in wanted.items()
            if name.startswith(_EXTRA)
        },
    )
    for info in _needed(acting, asked):
        decision = authorizer.decide(identity, info)
        if not decision.allowed:
            raise forbidden(identity, info, decision.reason)
    return acting


def _needed(acting: Identity, groups: Sequence[str]) -> Iterator[RequestInfo]:
    """The requests that the caller must be allowed: one for each part of the identity."""
    account = _account_of(acting.name)
    if account:
        yield _info("serviceaccounts", account[1], namespace=account[0])
    else:
        yield _info("users", acting.name)
    for group in groups:
        yield _info("groups", group)
    if acting.uid:
        yield _info("uids", acting.uid, group=AUTHENTICATION_GROUP)
    for key, values in acting.extra.items():
        for value in values:
            yield _info("userextras", value, group=AUTHENTICATION_GROUP, subresource=key)


def _info(resource: str, name: str, **others: str) -> RequestInfo:
    return RequestInfo(
        "impersonate", "", is_resource=True, version="v1", resource=resource, name=name, **others
    )


def _account_of(user: str) -> tuple[str, str] | None:
    """Namespace and name of the service account behind a user name; None where none can be of that
    name.
    """
    if not user.startswith(USER_SERVICE_ACCOUNT_PREFIX):
        return None
    namespace, colon, name = user[len(USER_SERVICE_ACCOUNT_PREFIX) :].partition(":")
    is_account = colon and is_dns1123_label(namespace) and is_dns1123_subdomain(name)
    return (namespace, name) if is_account else None


def _wanted(headers: Mapping[str, str]) -> dict[str, list[str]]:
    wanted: dict[str, list[str]] = {}
    for name, value in headers.items():  # a multi-dict gives a repeated header more than once
        if name.lower().startswith(PREFIX):
            if not is_text(value):
                raise bad_request(f"the header {name} is not UTF-8")
            wanted.setdefault(name.lower(), []).append(value)
    return wanted


def _last(wanted: Mapping[str, list[str]], name: str) -> str:
    values = wanted.get(name)
    return values[-1] if values else ""


def _groups(user: str, asked: Sequence[str]) -> tuple[str, ...]:
    """The requested groups; a service account gets its own unless groups are requested."""
    groups = tuple(asked)
    account = _account_of(user)
    if account and not groups:
        groups = (GROUP_SERVICE_ACCOUNTS, f"{GROUP_SERVICE_ACCOUNTS}:{account[0]}")
    implied = GROUP_UNAUTHENTICATED if user == USER_ANONYMOUS else GROUP_AUTHENTICATED
    return groups if implied in groups else (*groups, implied)
