"""Resource quantities: `250m`, `1.5Gi`, `1e3`, 2 — text to numbers and back.

The grammar, the cap at 2^63-1 and the rounding away from zero below one nano-unit are those of
apimachinery `api/resource/quantity.go`. Values are exact decimals, never binary floats.
"""

from __future__ import annotations

import decimal
import functools
import re
from decimal import Decimal

_TEXT = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]{1,9}))?",
    re.ASCII,
)
_MAX_LENGTH = 128
_MAX = Decimal(2**63 - 1)
_NANO = Decimal("1e-9")
_BINARY = {
    name: Decimal(1024**power) for power, name in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)
}
_DECIMAL = {
    name: Decimal(10) ** power
    for name, power in (
        ("n", -9), ("u", -6), ("m", -3), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15),
        ("E", 18),
    )
}  # fmt: skip
_SCALES = {"": Decimal(1), **_DECIMAL, **_BINARY}
_EXACT = decimal.Context(prec=400, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)


def parse_quantity(text: str | int | float) -> Decimal:
    """The exact value, between -(2^63-1) and 2^63-1, to the nano-unit; ValueError names the text.

    Numbers are accepted because YAML has them for an unquoted `1` or `0.5`.
    """
    shown = str(text)
    found = _parsed(shown) if len(shown) <= _MAX_LENGTH and not isinstance(text, bool) else None
    if found is None:
        raise ValueError(
            f"{shown[:_MAX_LENGTH]!r} is not a quantity: write a number with an optional suffix "
            "(n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei) or exponent"
        )
    return found


@functools.lru_cache(16_384)  # the same few are read again and again, of some pods thousands
def _parsed(text: str) -> Decimal | None:
    """None for what is no quantity."""
    match = _TEXT.fullmatch(text)
    if match is None:
        return None
    number = Decimal(match["number"])
    if match["exponent"]:
        scaled = _capped(number, int(match["exponent"]))
    else:
        scaled = _EXACT.multiply(number, _SCALES[match["suffix"] or ""])
    capped = max(-_MAX, min(_MAX, scaled))
    return capped.quantize(_NANO, rounding=decimal.ROUND_UP, context=_EXACT).normalize(_EXACT)


def _capped(number: Decimal, exponent: int) -> Decimal:
    """number x 10^exponent without ever building a huge or a tiny value."""
    if not number:
        return number
    if number.adjusted() + exponent > 20:
        return _MAX.copy_sign(number)
    if number.adjusted() + exponent < -20:
        return _NANO.copy_sign(number)
    return number.scaleb(exponent, _EXACT)


@functools.lru_cache(4096, typed=True)
def to_milli(text: str | int | float) -> int:
    """Thousandths, rounded up: `0.5` → 500, `1n` → 1."""
    return _rounded_up(parse_quantity(text) * 1000)


def to_bytes(text: str | int | float) -> int:
    """Whole units, rounded up: `1Ki` → 1024, `1500m` → 2."""
    return _rounded_up(parse_quantity(text))


def _rounded_up(value: Decimal) -> int:
    return int(value.to_integral_value(rounding=decimal.ROUND_UP))


def format_bytes(n: int) -> str:
    """The canonical binary form: the largest suffix that is exact (`123Ki`, `1000`)."""
    suffix = ""
    for name in _BINARY:
        if n == 0 or n % 1024:
            break
        n //= 1024
        suffix = name
    return f"{n}{suffix}"


def format_milli(m: int) -> str:
    """The canonical decimal form of thousandths: 250 → `250m`, 2000 → `2`, 4000000 → `4k`."""
    if m == 0:
        return "0"
    suffixes = iter(("m", "", "k", "M", "G", "T", "P", "E"))
    suffix = next(suffixes)
    while m % 1000 == 0 and suffix != "E":
        m //= 1000
        suffix = next(suffixes)
    return f"{m}{suffix}"
