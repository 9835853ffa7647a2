"""Stability of metrics: tiers, deprecation windows, and the operators' policy; pure.

A deprecated metric is hidden when its window has passed: at once for alpha, after one release for
beta, after three for stable. Hidden metrics can be shown again for one release; disabled metrics
are never registered (nodeagent.md §4.4).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from orch.wire import names

Level = Literal["INTERNAL", "ALPHA", "BETA", "STABLE"]
UNEXPECTED = "unexpected"  # replaces a label value outside its list

_WINDOW: Mapping[str, int] = {"INTERNAL": 0, "ALPHA": 0, "BETA": 1, "STABLE": 3}
_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.\d+)?(-alpha\.0)?(?:[-+].*)?")
_LABEL_KEY = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*),([a-zA-Z_][a-zA-Z0-9_]*)")


@dataclass(frozen=True, slots=True, order=True)
class Release:
    """A release of the interface; `alpha0` is the first build after the release before."""

    major: int
    minor: int
    alpha0: bool = False

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


def parse_release(text: str) -> Release:
    """`1.35`, `v1.35.0+orch.1`, `1.18.0-alpha.0`; ValueError quotes any other text."""
    found = _VERSION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a version such as 1.35")
    return Release(int(found[1]), int(found[2]), found[3] is not None)


CURRENT = parse_release(names.VERSION)


def oldest_compatible(emulated: Release) -> Release:
    """The oldest release that a program works with: the one before the release it emulates."""
    return Release(emulated.major, emulated.minor - 1)


def is_hidden(level: str, deprecated: str, current: Release = CURRENT) -> bool:
    """Whether a metric deprecated in that release has passed its window; "" means it is not."""
    if not deprecated:
        return False
    since = parse_release(deprecated)
    if since.major != current.major:
        return since.major < current.major
    end = since.minor + _WINDOW[level]
    # In the first build of a release, windows that end with it are still open.
    return end < current.minor if current.alpha0 else end <= current.minor


@dataclass(frozen=True, slots=True)
class MetricPolicy:
    """The operators' choices: disabled metrics, hidden ones shown, allowed label values."""

    disabled: frozenset[str] = frozenset()
    show_hidden: bool = False
    allowed: Mapping[str, Mapping[str, frozenset[str]]] = field(default_factory=dict)
    current: Release = CURRENT

    def fate(
        self, name: str, level: str, deprecated: str
    ) -> Literal["shown", "hidden", "disabled"]:
        """Whether a metric is shown; disabling wins over showing."""
        if name in self.disabled:
            return "disabled"
        if is_hidden(level, deprecated, self.current) and not self.show_hidden:
            return "hidden"
        return "shown"


def read_policy(
    *,
    disabled: Sequence[str] = (),
    show_hidden_for: str = "",
    allowed_labels: Mapping[str, str] | None = None,
    current: Release = CURRENT,
) -> MetricPolicy:
    """The policy from the settings' text; ValueError names an invalid setting.

    `show_hidden_for` is empty or the previous release; `allowed_labels` maps `metric,label` to the
    allowed values, comma-separated.
    """
    return MetricPolicy(
        disabled=frozenset(name.strip() for name in disabled if name.strip()),
        show_hidden=_shows_hidden(show_hidden_for, current),
        allowed=_label_lists(allowed_labels or {}),
        current=current,
    )


def _shows_hidden(text: str, current: Release) -> bool:
    if not text:
        return False
    previous = f"{current.major}.{current.minor - 1}"
    if text != previous:
        raise ValueError(f"{text!r} is not the previous release: only {previous} can be given")
    return True


def _label_lists(settings: Mapping[str, str]) -> dict[str, dict[str, frozenset[str]]]:
    lists: dict[str, dict[str, frozenset[str]]] = {}
    for key, values in settings.items():
        found = _LABEL_KEY.fullmatch(key)
        if found is None:
            raise ValueError(f"{key!r} is not METRIC,LABEL")
        allowed = frozenset(value.strip() for value in values.split(","))
        lists.setdefault(found[1], {})[found[2]] = allowed
    return lists
