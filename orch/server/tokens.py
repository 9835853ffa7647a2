"""Bearer tokens: which of the ways to know one knows this one, and whose it is.

Each way is an authenticator of its own (file, service accounts, bootstrap); this is their order,
and the answer to TokenReview. A token nobody knows is wrong, never anonymous.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orch.wire.authentication import TokenReviewStatus
from orch.wire.errors import unauthorized
from orch.wire.identity import Identity, known, user_info


class TokenRefused(Exception):
    """The token is of a kind that is known, but not good; the text says why."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Whose a token is; `audiences` are those it was made for, None when it was for no one's."""

    identity: Identity
    audiences: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Bound:
    """What a token is for: an account, and what it is bound to (kind in lower case, name, uid)."""

    namespace: str
    account: str
    account_uid: str
    objects: tuple[tuple[str, str, str], ...] = ()


# None: not a token of this kind. May raise TokenRefused.
TokenAuthenticator = Callable[[str], Holder | None]


class Tokens:
    """The authenticators in the order they are asked; `audiences` are the server's own names."""

    def __init__(
        self, authenticators: Sequence[TokenAuthenticator], audiences: Sequence[str]
    ) -> None:
        self._authenticators = tuple(authenticators)
        self._audiences = tuple(audiences)

    def authenticate(self, token: str) -> Identity:
        """Who sends a request with this token; ApiError 401 without the reason, which is ours."""
        try:
            return self._check(token, self._audiences)[0]
        except TokenRefused:
            raise unauthorized() from None

    async def review(self, token: str, audiences: Sequence[str]) -> TokenReviewStatus:
        """For somebody who was shown the token; `audiences` are names of theirs, or none."""
        try:
            identity, matched = self._check(token, tuple(audiences) or self._audiences)
        except TokenRefused as error:
            return TokenReviewStatus(authenticated=False, error=str(error))
        return TokenReviewStatus(
            authenticated=True, user=user_info(identity), audiences=list(matched)
        )

    def _check(self, token: str, wanted: tuple[str, ...]) -> tuple[Identity, tuple[str, ...]]:
        """The first authenticator that knows it decides; TokenRefused."""
        refusals = []
        for authenticate in self._authenticators:
            try:
                holder = authenticate(token)
            except TokenRefused as error:
                refusals.append(str(error))
                continue
            if holder is not None:
                return known(holder.identity), _matching(holder, wanted, self._audiences)
        raise TokenRefused("; ".join(refusals) or "invalid bearer token")


def _matching(holder: Holder, wanted: tuple[str, ...], own: tuple[str, ...]) -> tuple[str, ...]:
    """The wanted audiences the token is good for; TokenRefused when there are none."""
    good_for = own if holder.audiences is None else holder.audiences
    matched = tuple(audience for audience in wanted if audience in good_for)
    if not matched:
        raise TokenRefused(
            f"token audiences {list(good_for)} is invalid for the target audiences {list(wanted)}"
        )
    return matched
