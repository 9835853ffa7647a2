"""FakeReviews: an API server's answers on tokens and rights, for agents tested without one.

Stands where `nodeagent.authreviews.ApiReviews` does and passes the same contract tests.
"""

from __future__ import annotations

from nodeagent.auth.reviews import ReviewError
from orch.wire.records.authentication import Identity, known


class FakeReviews:
    """`tokens` are the good ones, `rights` are (user or group, verb, subresource)."""

    def __init__(self) -> None:
        self.tokens: dict[str, Identity] = {}
        self.rights: set[tuple[str, str, str]] = set()
        self.gone = False
        self.asked: list[tuple[str, ...]] = []

    async def review_token(self, token: str) -> Identity | None:
        self.asked.append(("token", token))
        self._require_server()
        found = self.tokens.get(token)
        return known(found) if found else None

    async def review_access(self, identity: Identity, verb: str, subresource: str) -> bool:
        self.asked.append((identity.name, verb, subresource))
        self._require_server()
        subjects = (identity.name, *identity.groups)
        return any((subject, verb, subresource) in self.rights for subject in subjects)

    def _require_server(self) -> None:
        if self.gone:
            raise ReviewError("connection refused")
