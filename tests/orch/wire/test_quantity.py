from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch.wire import quantity

MAX = 2**63 - 1


# Accepted forms and values: apimachinery api/resource/quantity_test.go (TestQuantityParse).
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", "0"),
        ("0n", "0"),
        ("-0", "0"),
        ("1", "1"),
        ("+1", "1"),
        ("100", "100"),
        (".5", "0.5"),
        ("5.", "5"),
        ("1.5Gi", str(3 * 2**29)),
        ("1Ki", "1024"),
        ("8Ki", "8192"),
        ("7Mi", str(7 * 2**20)),
        ("6Gi", str(6 * 2**30)),
        ("5Ti", str(5 * 2**40)),
        ("4Pi", str(4 * 2**50)),
        ("3Ei", str(3 * 2**60)),
        ("5n", "5e-9"),
        ("4u", "4e-6"),
        ("3m", "0.003"),
        ("9", "9"),
        ("8k", "8000"),
        ("50k", "50000"),
        ("7M", "7e6"),
        ("6G", "6e9"),
        ("5T", "5e12"),
        ("40T", "4e13"),
        ("300T", "3e14"),
        ("2P", "2e15"),
        ("1E", "1e18"),
        ("1E-3", "0.001"),
        ("1e3", "1000"),
        ("1E6", "1e6"),
        ("1.01E", "1.01e18"),
        ("-3.01e-3", "-0.00301"),
        ("0.1n", "1e-9"),
        ("1.1n", "2e-9"),
        ("-0.1n", "-1e-9"),
        ("100E", str(MAX)),
        ("-100Ei", str(-MAX)),
        ("1e999999999", str(MAX)),
        ("1e-999999999", "1e-9"),
        ("0e999999999", "0"),
        (2, "2"),
        (0.5, "0.5"),
        (-1, "-1"),
        (1e22, str(MAX)),
    ],
)
def test_a_quantity_has_its_exact_value(text: str | int | float, value: str) -> None:
    assert quantity.parse_quantity(text) == Decimal(value)


@pytest.mark.parametrize(
    "text",
    [
        "", "1.1.M", "1+1.0M", "0.1mi", "0.1am", "aoeu", ".5i", "1i", "-3.01i", "-3.01e-",
        " 1", "1 ", "1\n", ".", "+", "--1", "1KiB", "1kb", "1_000", "1e", "Ki", "\u0661",
        "NaN", "inf", "1e9999999999", "9" * 200, True, float("nan"), float("inf"),
    ],
)  # fmt: skip
def test_what_is_not_a_quantity_is_refused_with_its_text(text: str | float) -> None:
    with pytest.raises(ValueError, match="is not a quantity") as error:
        quantity.parse_quantity(text)
    assert repr(str(text)[:100])[:-1] in str(error.value)


@pytest.mark.parametrize(
    ("text", "milli"),
    [("250m", 250), ("1", 1000), ("0.0001", 1), ("1n", 1), ("1500u", 2), (2, 2000)],
)
def test_thousandths_are_rounded_up(text: str, milli: int) -> None:
    assert quantity.to_milli(text) == milli


@pytest.mark.parametrize(
    ("text", "n"),
    [("1Ki", 1024), ("1500m", 2), ("100M", 10**8), ("1n", 1), (512, 512), ("3Ei", 3 * 2**60)],
)
def test_bytes_are_rounded_up(text: str, n: int) -> None:
    assert quantity.to_bytes(text) == n


@pytest.mark.parametrize(
    ("n", "text"),
    [
        (0, "0"), (1, "1"), (1000, "1000"), (1024, "1Ki"), (1536, "1536"), (123 * 1024, "123Ki"),
        (2**20, "1Mi"), (3 * 2**30, "3Gi"), (2**63, "8Ei"), (-2048, "-2Ki"),
    ],
)  # fmt: skip
def test_bytes_print_with_the_largest_binary_suffix_that_is_exact(n: int, text: str) -> None:
    assert quantity.format_bytes(n) == text


@pytest.mark.parametrize(
    ("m", "text"),
    [
        (0, "0"),
        (1, "1m"),
        (250, "250m"),
        (1000, "1"),
        (2000, "2"),
        (1500, "1500m"),
        (4 * 10**6, "4k"),
        (-500, "-500m"),
    ],
)
def test_thousandths_print_with_the_largest_decimal_suffix_that_is_exact(m: int, text: str) -> None:
    assert quantity.format_milli(m) == text


@given(st.integers(-MAX, MAX))
def test_printed_bytes_read_back_as_the_same_number(n: int) -> None:
    assert quantity.to_bytes(quantity.format_bytes(n)) == n


@given(st.integers(-MAX, MAX))
def test_printed_thousandths_read_back_as_the_same_number(m: int) -> None:
    assert quantity.to_milli(quantity.format_milli(m)) == m


@given(st.text(alphabet="0123456789.+-eEinumkKMG", max_size=12))
def test_any_text_is_either_refused_or_within_the_limits(text: str) -> None:
    try:
        value = quantity.parse_quantity(text)
    except ValueError:
        return
    assert -MAX <= value <= MAX
    assert value == value.quantize(Decimal("1e-9"))
