"""Lines of numbers: their heights, their gaps, their size."""

from __future__ import annotations

import re
from math import inf, isnan, nan
from xml.etree.ElementTree import tostring

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.overview.chart import HEIGHT, chart, thinned

NUMBERS = st.lists(st.one_of(st.just(nan), st.floats(0, 1e12)), max_size=60)


def paths(values: list[float], top: float = 1.0, **more: bool) -> list[str]:
    return [path.get("d", "") for path in chart(values, top, "x", **more).iter("path")]


def test_a_value_at_the_top_is_high_and_one_of_nothing_low() -> None:
    assert paths([0, 1, 0.5], is_filled=False) == ["M0 23L1 1L2 12"]


def test_a_flat_line_has_two_points() -> None:
    assert paths([0.5] * 60, is_filled=False) == ["M0 12L59 12"]


def test_what_is_unknown_leaves_a_gap_and_a_single_value_a_dot() -> None:
    assert paths([nan, 0, 1, nan, 1], is_filled=False) == ["M1 23L2 1M4 1h.5"]
    assert paths([nan, nan]) == []


def test_the_area_reaches_the_ground() -> None:
    assert paths([0, 1])[0] == "M0 24V23L1 1V24z"


@pytest.mark.parametrize("top", [0.0, -1.0, inf])
def test_an_odd_top_breaks_nothing(top: float) -> None:
    assert paths([1.0, 2.0], top, is_filled=False) == ["M0 23L1 23"]


@given(NUMBERS, st.floats(0, 1e12))
def test_every_point_is_within_and_a_chart_is_small(values: list[float], top: float) -> None:
    text = tostring(chart(values, top, "x"), "unicode")
    assert len(text) < 2000
    assert "nan" not in text
    for number in re.findall(r"[ V](\d+)", "".join(paths(values, top))):
        assert 0 <= int(number) <= HEIGHT


@given(NUMBERS)
def test_thinned_keeps_the_highest(values: list[float]) -> None:
    known = [value for value in values if not isnan(value)]
    kept = [value for value in thinned(values) if not isnan(value)]
    assert max(kept, default=None) == max(known, default=None)
    assert len(thinned(values)) == (len(values) + 1) // 2
