"""Pressure text → values; forms from Documentation/accounting/psi.rst."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.psi import NO_STALL, Pressure, PressureLine, has_no_averages, parse_pressure

SOME = PressureLine(0.06, 0.20, 0.64, 17128472)
ZERO = PressureLine(0.0, 0.0, 0.0, 0)
USUAL = "some avg10=0.06 avg60=0.20 avg300=0.64 total=17128472\n"
FULL = "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(USUAL + FULL, Pressure(SOME, ZERO), id="both lines"),
        pytest.param(USUAL, Pressure(SOME, None), id="cpu before Linux 5.13"),
        pytest.param(FULL + USUAL, Pressure(SOME, ZERO), id="other order"),
        pytest.param(USUAL.strip() + " new=1\n" + FULL, Pressure(SOME, ZERO), id="unknown key"),
        pytest.param("most avg10=1\n" + USUAL + FULL, Pressure(SOME, ZERO), id="unknown line"),
        pytest.param(
            USUAL + "full avg10=x avg60=0 avg300=0 total=0\n",
            Pressure(SOME, None),
            id="malformed full",
        ),
        pytest.param(USUAL + FULL.strip(), Pressure(SOME, ZERO), id="no last newline"),
        pytest.param(
            "some avg10=100.00 avg60=0.00 avg300=0.00 total=18446744073709551615\n" + FULL,
            Pressure(PressureLine(100.0, 0.0, 0.0, 2**64 - 1), ZERO),
            id="64-bit extreme",
        ),
        pytest.param("", None, id="empty"),
        pytest.param(FULL, None, id="irq has no some line"),
        pytest.param("some avg10=0.06 avg60=0.20 avg300=0.64\n", None, id="no total"),
        pytest.param(USUAL.replace("17128472", "18446744073709551616"), None, id="beyond 64 bits"),
        pytest.param(USUAL.replace("0.06", "nan"), None, id="not a number"),
        pytest.param(USUAL.replace("0.06", "1.2.3") + FULL, None, id="two points"),
        pytest.param(USUAL.replace("17128472", "-1"), None, id="negative"),
    ],
)
def test_reads_what_the_kernel_writes_and_nothing_else(text: str, expected: object) -> None:
    assert parse_pressure(text) == expected
    assert parse_pressure(text.encode()) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (FULL, True),
        (FULL.replace("full", "some").replace("total=0", "total=17") + FULL, True),
        (USUAL + FULL, False),
        (FULL + FULL.replace("avg300=0.00", "avg300=0.01"), False),
        (FULL.replace("avg10=0.00", "avg10=10.00"), False),
    ],
)
def test_whether_all_averages_have_fallen_to_zero(text: str, expected: bool) -> None:
    assert has_no_averages(text.encode()) is expected


def test_no_stall_at_all_is_one_value_for_all() -> None:
    text = "some " + FULL[5:] + FULL
    assert parse_pressure(text) is parse_pressure(text.encode()) is NO_STALL
    assert Pressure(ZERO, ZERO) == NO_STALL


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_no_pressure_or_whole_lines(data: bytes) -> None:
    for line in parse_pressure(data) or ():
        assert line is None or all(number >= 0 for number in line)
    after_a_line = parse_pressure(USUAL.encode() + data)
    assert after_a_line and after_a_line.some == SOME


_AVERAGE = st.decimals(min_value=0, max_value=100, places=2)
_TOTAL = st.integers(0, 2**64 - 1)


@given(
    st.tuples(_AVERAGE, _AVERAGE, _AVERAGE, _TOTAL), st.tuples(_AVERAGE, _AVERAGE, _AVERAGE, _TOTAL)
)
def test_every_value_comes_back_as_it_was_written(some: tuple, full: tuple) -> None:
    text = "".join(
        f"{kind} avg10={a} avg60={b} avg300={c} total={total}\n"
        for kind, (a, b, c, total) in (("some", some), ("full", full))
    )
    parsed = parse_pressure(text)
    assert parsed is not None
    assert parsed.some == tuple(map(float, some[:3])) + some[3:]
    assert parsed.full == tuple(map(float, full[:3])) + full[3:]
