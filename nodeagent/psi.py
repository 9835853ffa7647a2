"""Parses pressure stall information (PSI); pure.

A file has a line `some` (at least one task stalled) and usually a line `full` (all of them):
`some avg10=0.12 avg60=0.05 avg300=0.01 total=4242`. Averages are percentages of wall-clock time,
`total` is in microseconds. Source: Documentation/accounting/psi.rst.
Named tuples, not dataclasses: they cost half as much, and a sampling pass creates thousands.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

USEC_PER_S = 1_000_000
RESOURCES = ("cpu", "memory", "io")
_UINT64_MAX = 2**64 - 1
_LINE = rb"avg10=([0-9.]{1,9}) avg60=([0-9.]{1,9}) avg300=([0-9.]{1,9}) total=([0-9]{1,20})\n"
_new = tuple.__new__  # a named tuple's own constructor takes twice as long
_USUAL = re.compile(rb"some " + _LINE + rb"full " + _LINE).fullmatch


class PressureLine(NamedTuple):
    """`avg*` in percent of wall-clock time, 0 to 100."""

    avg10: float
    avg60: float
    avg300: float
    total_usec: int


class Pressure(NamedTuple):
    """`full` is None where the kernel does not report it (cpu before 5.13)."""

    some: PressureLine
    full: PressureLine | None


NO_STALL = Pressure(PressureLine(0.0, 0.0, 0.0, 0), PressureLine(0.0, 0.0, 0.0, 0))
_NO_STALL_TEXT = (
    b"some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
    b"full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
)


class _Averages(dict[bytes, float]):
    """Text → number, cached: float() costs more than the rest of a line's parsing.

    The kernel writes two decimals, so there are some ten thousand different texts.
    """

    def __missing__(self, text: bytes) -> float:
        value = float(text)
        if len(self) < _MAX_AVERAGES:
            self[text] = value
        return value


_MAX_AVERAGES = 10_001
_AVERAGES = _Averages()


def parse_pressure(text: str | bytes) -> Pressure | None:
    """The content of a `*.pressure` file; None when it holds no readable `some` line.

    Unknown lines and keys are ignored, and so is a line with a malformed or missing value.
    """
    data = text.encode("utf-8", "replace") if isinstance(text, str) else text
    if data == _NO_STALL_TEXT:  # most cgroups, most of the time
        return NO_STALL
    match = _USUAL(data)
    if match is None:
        return _parse_unusual(data)
    a, b, c, total, d, e, f, full_total = match.groups()
    try:
        some = _new(PressureLine, (_AVERAGES[a], _AVERAGES[b], _AVERAGES[c], int(total)))
        full = _new(PressureLine, (_AVERAGES[d], _AVERAGES[e], _AVERAGES[f], int(full_total)))
    except ValueError:  # 1.2.3
        return _parse_unusual(data)
    if some[3] > _UINT64_MAX or full[3] > _UINT64_MAX:
        return _parse_unusual(data)
    return _new(Pressure, (some, full))


def has_no_averages(data: bytes) -> bool:
    """Whether every average in the content of a `*.pressure` file is zero."""
    return data.count(b"=0.00 ") == data.count(b"avg")


def _parse_unusual(data: bytes) -> Pressure | None:
    lines = {}
    for line in data.splitlines():
        kind, _, rest = line.partition(b" ")
        parsed = _parse_line(rest) if kind in (b"some", b"full") else None
        if parsed is not None:
            lines[kind] = parsed
    some = lines.get(b"some")
    return Pressure(some, lines.get(b"full")) if some is not None else None


def _parse_line(text: bytes) -> PressureLine | None:
    pairs = dict(pair.partition(b"=")[::2] for pair in text.split())
    try:
        line = PressureLine(
            float(pairs[b"avg10"]),
            float(pairs[b"avg60"]),
            float(pairs[b"avg300"]),
            int(pairs[b"total"]),
        )
    except (KeyError, ValueError):
        return None
    is_valid = 0 <= line.total_usec <= _UINT64_MAX and all(map(math.isfinite, line[:3]))
    return line if is_valid else None
