"""Log lines about repeated failures: each cause once, then the recovery and how long it took.

An outage belongs to a subject that the caller names, or there is a single one. The number of
causes per outage and of subjects is bounded, and each cause takes a few bytes: a server may word
each refusal differently, and at length.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Hashable
from dataclasses import dataclass, field

MAX_CAUSES = 20  # of one outage, before it is silent for SILENCE_S
SILENCE_S = 600.0
MAX_SUBJECTS = 1000  # with outages of their own; further subjects share one

_OTHERS = object()  # the subjects beyond MAX_SUBJECTS


@dataclass(slots=True)
class _Outage:
    since_s: float
    full_s: float = 0.0  # when the last of MAX_CAUSES was logged
    causes: set[int] = field(default_factory=set)  # hashes of those already logged


class OnceLog:
    """Failures go to `log` at `level`, recoveries at INFO. Threads may repeat a line."""

    def __init__(self, log: logging.Logger, level: int = logging.WARNING) -> None:
        self._log = log
        self._level = level
        self._outages: dict[Hashable, _Outage] = {}

    def failed(
        self,
        text: str,
        *args: object,
        subject: Hashable = None,
        cause: Hashable = None,
        error: BaseException | None = None,
    ) -> None:
        """Log `text % args`, unless the outage of `subject` has logged this cause before.

        `cause` is the whole message unless given: give it where the message holds figures or names.
        `error` adds its traceback.
        """
        now_s = _now_s()
        if subject not in self._outages and len(self._outages) >= MAX_SUBJECTS:
            subject = _OTHERS
        outage = self._outages.setdefault(subject, _Outage(now_s))
        key = hash((text, *map(str, args)) if cause is None else cause)
        if key in outage.causes:
            return
        if len(outage.causes) == MAX_CAUSES:
            if now_s < outage.full_s + SILENCE_S:
                return
            outage.causes.clear()
        outage.causes.add(key)
        self._log.log(self._level, text, *args, exc_info=error, stacklevel=2)
        if len(outage.causes) == MAX_CAUSES:
            outage.full_s = now_s
            cut = "further causes of this are not logged for %d s"
            self._log.log(self._level, cut, SILENCE_S, stacklevel=2)

    def recovered(self, text: str = "", *args: object, subject: Hashable = None) -> None:
        """End the outage of `subject`, and log `text` with its duration; else do nothing."""
        outage = self._outages.pop(subject, None)
        if outage is not None and text:
            lasted_s = max(_now_s() - outage.since_s, 0.0)
            self._log.info(f"{text} (after %.1f s)", *args, lasted_s, stacklevel=2)

    def retain(self, subjects: Collection[Hashable]) -> None:
        """Drop the outages of all others, which are gone or work again; nothing is logged."""
        for gone in self._outages.keys() - {*subjects, _OTHERS}:
            del self._outages[gone]


def _now_s() -> float:
    """The loop's time, which tests move; in a thread the clock that loops have by default."""
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return time.monotonic()
