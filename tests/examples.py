"""How many examples a law is tried with."""

from __future__ import annotations

from hypothesis import settings

_USUAL = 100  # of a law that names no number, under hypothesis's own profile
_LEAST = 5


def examples(number: int) -> int:
    """`number`, or under a profile with fewer examples than usual as many fewer, but five."""
    return min(number, max(_LEAST, number * settings.default.max_examples // _USUAL))
