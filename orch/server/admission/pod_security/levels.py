"""Levels, versions and policies of pod security, and the namespace labels that choose them; pure.

As the reference's k8s.io/pod-security-admission/api. Each label is known under this service's own
prefix and the reference's, and stored as it was written; two that differ count as unreadable.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from orch.wire import causes
from orch.wire.errors import Cause
from orch.wire.names import POD_SECURITY_PREFIX, POD_SECURITY_PREFIX_UPSTREAM

LEVELS = PRIVILEGED, BASELINE, RESTRICTED = ("privileged", "baseline", "restricted")
MODES = ENFORCE, AUDIT, WARN = ("enforce", "audit", "warn")
LATEST = sys.maxsize  # as a minor version: newer than every other
_PREFIXES = (POD_SECURITY_PREFIX_UPSTREAM, POD_SECURITY_PREFIX)
_VERSION = re.compile(r"v1\.(0|[1-9][0-9]{0,17})")

T = TypeVar("T")


class LevelVersion(NamedTuple):
    """A level as a release 1.`minor` defined it."""

    level: str = PRIVILEGED
    minor: int = LATEST

    def __str__(self) -> str:
        return f"{self.level}:{self.version}"

    @property
    def version(self) -> str:
        return "latest" if self.minor == LATEST else f"v1.{self.minor}"

    def is_like(self, other: LevelVersion) -> bool:
        """Whether both judge alike: the version of `privileged` means nothing."""
        return self == other or self.level == other.level == PRIVILEGED


class PodPolicy(NamedTuple):
    """What is refused, what is put on record, and what the client is warned of."""

    enforce: LevelVersion = LevelVersion()
    audit: LevelVersion = LevelVersion()
    warn: LevelVersion = LevelVersion()

    @property
    def is_privileged(self) -> bool:
        return all(mode.level == PRIVILEGED for mode in self)

    def is_like(self, other: PodPolicy) -> bool:
        return all(mine.is_like(theirs) for mine, theirs in zip(self, other, strict=True))


def is_stricter(level: str, other: str) -> bool:
    return LEVELS.index(level) > LEVELS.index(other)


def parse_level(text: str) -> str:
    """ValueError with the reference's text."""
    if text not in LEVELS:
        raise ValueError(f"must be one of {', '.join(LEVELS)}")
    return text


def parse_version(text: str) -> int:
    """The minor version, or LATEST; ValueError with the reference's text."""
    if text == "latest":
        return LATEST
    found = _VERSION.fullmatch(text)
    if found is None:
        raise ValueError('must be "latest" or "v1.x"')
    return int(found[1])


def has_label(labels: Mapping[str, str], mode: str) -> bool:
    """Whether the level or the version of a mode is chosen by a label."""
    return any(f"{prefix}{mode}{end}" in labels for prefix in _PREFIXES for end in ("", "-version"))


def policy_of(
    labels: Mapping[str, str], defaults: PodPolicy
) -> tuple[PodPolicy, tuple[Cause, ...]]:
    """The policy that labels choose, and what is wrong with them.

    A label that cannot be read counts as `restricted` for what is enforced, as `privileged`
    elsewhere, and as the latest version.
    """
    problems: list[Cause] = []
    modes = []
    given: dict[str, bool] = {}  # whether what was given can be read
    for mode, default in zip(MODES, defaults, strict=True):
        known = len(problems)
        instead = RESTRICTED if mode == ENFORCE else PRIVILEGED
        level = _read(labels, mode, parse_level, instead, problems)
        if level is not None:
            given[mode] = len(problems) == known
        minor = _read(labels, f"{mode}-version", parse_version, LATEST, problems)
        if minor is not None:
            given[f"{mode}-version"] = True
        modes.append(
            LevelVersion(
                default.level if level is None else level, default.minor if minor is None else minor
            )
        )
    policy = PodPolicy(*modes)
    return policy._replace(warn=_warn(policy, given)), tuple(problems)


def _warn(policy: PodPolicy, given: Mapping[str, bool]) -> LevelVersion:
    """Without a label of its own, warnings follow a stricter level that is enforced."""
    enforce, warn = policy.enforce, policy.warn
    if WARN in given or not given.get(ENFORCE) or not is_stricter(enforce.level, warn.level):
        return warn
    return warn._replace(level=enforce.level) if f"{WARN}-version" in given else enforce


def _read(
    labels: Mapping[str, str],
    name: str,
    parse: Callable[[str], T],
    instead: T,
    problems: list[Cause],
) -> T | None:
    """The value of a label, `instead` of one that cannot be read; None without a label."""
    found = {key: labels[key] for prefix in _PREFIXES if (key := prefix + name) in labels}
    if not found:
        return None
    wrong = [*_wrong(found, parse)]
    problems += wrong
    return instead if wrong else parse(next(iter(found.values())))


def _wrong(found: Mapping[str, str], parse: Callable[[str], object]) -> Iterator[Cause]:
    first, *others = found
    for key, value in found.items():
        try:
            parse(value)
        except ValueError as error:
            yield causes.invalid_value(f"metadata.labels[{key}]", value, str(error))
    for key in others:
        if found[key] != found[first]:
            why = f"must be the same as {first}, which is {found[first]}"
            yield causes.invalid_value(f"metadata.labels[{key}]", found[key], why)
