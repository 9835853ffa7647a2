"""Bearer tokens: the authenticators that know them, in order, and the answer to TokenReview.

Each kind (file, service account, bootstrap) has an authenticator of its own. A token that none of
them knows is invalid, never anonymous. A bootstrap token `<id>.<secret>` is the Secret
`bootstrap-token-<id>` in the system namespace, as tools of the reference write it; it authenticates
`system:bootstrap:<id>` in the group `system:bootstrappers`, for machines that join the cluster.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from orch.wire.bootstrap_tokens import AUTHENTICATES, GROUP, PREFIX, TOKEN, TYPE, is_past, values_of
from orch.wire.errors import unauthorized
from orch.wire.names import GROUP_BOOTSTRAPPERS, USER_BOOTSTRAP_PREFIX
from orch.wire.records.authentication import Identity, TokenReviewStatus, known, user_info

MAX_LENGTH = 16 * 1024  # a header has at most half of it
_SHOWN, _SHOWN_CHARS = 20, 200  # audiences in a refusal


class TokenRefused(Exception):
    """The token is of a known kind, but invalid; the text says why."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of a token; `audiences` are those it was issued for, None when it names none."""

    identity: Identity
    audiences: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Bound:
    """The account a token is for, and the objects it is bound to (lower-case kind, name, uid)."""

    namespace: str
    account: str
    account_uid: str
    objects: tuple[tuple[str, str, str], ...] = ()


# None: not a token of this kind. May raise TokenRefused.
TokenAuthenticator = Callable[[str], Holder | None]


# Asked last, given a token and the wanted audiences. TokenRefused where it knows no such token.
RemoteAuthenticator = Callable[[str, Sequence[str]], Awaitable[Holder]]


class Tokens:
    """The authenticators in the order they are asked; `audiences` are the server's own names."""

    def __init__(
        self,
        authenticators: Sequence[TokenAuthenticator],
        audiences: Sequence[str],
        remote: RemoteAuthenticator | None = None,
    ) -> None:
        self._authenticators = tuple(authenticators)
        self._audiences = tuple(audiences)
        self._remote = remote

    async def authenticate(self, token: str) -> Identity:
        """The sender of a request with this token; ApiError 401, which does not disclose why."""
        try:
            return (await self._check(token, self._audiences))[0]
        except TokenRefused:
            raise unauthorized() from None

    async def review(self, token: str, audiences: Sequence[str]) -> TokenReviewStatus:
        """For a service that received the token; `audiences` are its names, or empty."""
        try:
            identity, matched = await self._check(token, tuple(audiences) or self._audiences)
        except TokenRefused as error:
            return TokenReviewStatus(authenticated=False, error=str(error))
        return TokenReviewStatus(
            authenticated=True, user=user_info(identity), audiences=list(matched)
        )

    async def _check(self, token: str, wanted: tuple[str, ...]) -> tuple[Identity, tuple[str, ...]]:
        """The first authenticator that knows the token decides; TokenRefused."""
        if len(token) > MAX_LENGTH:
            raise TokenRefused(f"the token is longer than {MAX_LENGTH} characters")
        if not token.isascii():
            raise TokenRefused("a token has no characters outside ASCII")
        refusals = []
        for authenticate in self._authenticators:
            try:
                holder = authenticate(token)
            except TokenRefused as error:
                refusals.append(str(error))
                continue
            if holder is not None:
                return known(holder.identity), _matching(holder, wanted, self._audiences)
        if self._remote is not None and not refusals:
            holder = await self._remote(token, wanted)
            return known(holder.identity), _matching(holder, wanted, self._audiences)
        raise TokenRefused("; ".join(refusals) or "invalid bearer token")


def _matching(holder: Holder, wanted: tuple[str, ...], own: tuple[str, ...]) -> tuple[str, ...]:
    """The wanted audiences that the token is valid for; TokenRefused when there are none."""
    good_for = own if holder.audiences is None else holder.audiences
    known_as = frozenset(good_for)
    matched = tuple(audience for audience in wanted if audience in known_as)
    if not matched:
        raise TokenRefused(
            f"token audiences {_shown(good_for)} is invalid for the target audiences"
            f" {_shown(wanted)}"
        )
    return matched


def _shown(audiences: Sequence[str]) -> list[str]:
    """The first of them: a review may name megabytes."""
    return [audience[:_SHOWN_CHARS] for audience in audiences[:_SHOWN]]


# The Secret of a name in the system namespace, as JSON data.
FindSecret = Callable[[str], Mapping[str, Any] | None]


def authenticator(find: FindSecret, now: Callable[[], datetime]) -> TokenAuthenticator:
    def authenticate(token: str) -> Holder | None:
        matched = TOKEN.fullmatch(token)
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
    values = values_of(stored)
    if stored["metadata"].get("deletionTimestamp") or stored.get("type") != TYPE:
        raise TokenRefused(f"{name} is not in force")
    if values.get("token-id") != token_id or not hmac.compare_digest(
        values.get("token-secret", "").encode(), secret.encode()
    ):
        raise TokenRefused("invalid bearer token")
    if values.get(AUTHENTICATES) != "true":
        raise TokenRefused(f"{name} is not for authentication")
    if "expiration" in values and (not values["expiration"] or is_past(values["expiration"], now)):
        raise TokenRefused(f"{name} has expired")
    groups = list(filter(None, map(str.strip, values.get("auth-extra-groups", "").split(","))))
    if not all(GROUP.fullmatch(group) for group in groups):
        raise TokenRefused(f"{name} names groups outside system:bootstrappers")
    return Identity(f"{USER_BOOTSTRAP_PREFIX}{token_id}", (GROUP_BOOTSTRAPPERS, *groups))
