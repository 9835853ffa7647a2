"""Decisions that need an answer from elsewhere, in code that cannot wait for it; pure.

Whoever decides raises `Unanswered`; whoever may wait has the question asked, and lets everything be
decided again, this time with the answer. Without webhooks nothing is ever raised.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from orch.wire.errors import ApiError

MOST = 64  # questions of one decision: each rule, group or authorizer may be one

Result = TypeVar("Result")


class Unanswered(Exception):
    """`ask` gets the answer, and keeps it for long enough to decide again."""

    def __init__(self, ask: Callable[[], Awaitable[None]]) -> None:
        super().__init__("a webhook has to be asked first")
        self.ask = ask


async def answered(decide: Callable[[], Result]) -> Result:
    """`decide()`, again after each question of it that was unanswered; ApiError 503."""
    for _ in range(MOST + 1):
        try:
            return decide()
        except Unanswered as missing:
            ask = missing.ask
        await ask()
    text = "too many questions to webhooks are needed to authorize this"
    raise ApiError(503, "ServiceUnavailable", text, retry_after_s=1)
