"""The two text formats: what is escaped, how numbers and stamps are written."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from nodeagent.metrics import text
from nodeagent.metrics.text import Page


@pytest.mark.parametrize(
    ("value", "written"),
    [(10.0, "10"), (10, "10"), (0.5, "0.5"), (2**64 - 1, "18446744073709551615"), (1e20, "1e+20")],
)
def test_numbers_are_written_as_short_as_they_can_be_read_back(value: float, written: str) -> None:
    assert text.number(value) == written


@given(st.floats(allow_nan=False))
def test_every_number_comes_back(value: float) -> None:
    assert float(text.number(value)) == value or math.isinf(value)


@given(st.dictionaries(st.sampled_from(["a", "b"]), st.text(max_size=20), min_size=1))
def test_label_values_survive_both_parsers(labels: dict[str, str]) -> None:
    labels = {key: value.encode("utf-8", "replace").decode() for key, value in labels.items()}
    for parse, is_openmetrics in ((prometheus, False), (openmetrics, True)):
        page = Page(openmetrics=is_openmetrics)
        page.family("m", "Help.")
        page.sample("m", text.label_block(**labels), 1)
        written = page.render().decode()
        if any(
            ord(character) in (0x0B, 0x0C, 0x0D, *range(0x1C, 0x1F), 0x85, 0x2028, 0x2029)
            for value in labels.values()
            for character in value
        ):
            continue  # the Python parsers split lines there; Prometheus itself does not
        (family,) = parse(written)
        assert family.samples[0].labels == labels


def test_a_broken_surrogate_does_not_break_the_page() -> None:
    page = Page()
    page.family("m", "Help.")
    page.sample("m", text.label_block(a="\ud800"), 1)
    assert b'm{a="?"} 1\n' in page.render()


def test_openmetrics_differs_in_family_names_stamps_and_the_last_line() -> None:
    plain, modern = Page(), Page(openmetrics=True)
    for page in (plain, modern):
        page.family("a_total", 'Say "x"\n\\', stability="STABLE")
        page.sample("a_total", "", 1.5, page.stamp(1_624_396_278_302_999_999))
    assert plain.render() == (
        b'# HELP a_total [STABLE] Say "x"\\n\\\\\n# TYPE a_total counter\n'
        b"a_total 1.5 1624396278302\n"
    )
    assert modern.render() == (
        b'# HELP a [STABLE] Say \\"x\\"\\n\\\\\n# TYPE a counter\n'
        b"a_total 1.5 1624396278.302\n# EOF\n"
    )


def test_label_blocks_are_built_once_and_dropped_when_a_page_does_not_use_them() -> None:
    built = []

    def build(*key: str) -> str:
        built.append(key)
        return "-".join(key)

    cache = text.LabelCache(build)
    for _ in range(3):
        assert (cache("a", "b"), cache("c")) == ("a-b", "c")
        cache.end_page()
    assert built == [("a", "b"), ("c",)]
    for number in range(100):
        cache(str(number))
        cache.end_page()
    assert len(cache) == 1
