"""The JSON of `/pressure`: what it says, and that it never exceeds 2 kB."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.pressure.causes.cause import Cause
from nodeagent.pressure.evidence import Subject
from nodeagent.pressure.report import MAX_BYTES, render
from nodeagent.psi import Pressure, PressureLine
from nodeagent.stats.samples import CgroupSample, NodeSample, Sample
from tests.fakes.activities import activity, machine

NOW_NS = 1_800_000_000_000_000_000
LINE = PressureLine(80.5, 60.25, 40.0, 1)
NODE = NodeSample(CgroupSample(NOW_NS, cpu_pressure=Pressure(LINE, None)))
SAMPLE = Sample(NOW_NS, NODE)
WHO = Subject("shop", "web", "app")


def caused(*suffers: Subject, culprit: Subject = WHO, **more: Any) -> Cause:
    return Cause("cpu", "busy", culprit, suffers, 0.5, 0.876, "does", "next")._replace(**more)


def report(*found: Cause) -> dict[str, Any]:
    throttled = activity("capped", throttled=0.6, stalls={"cpu": 0.6})
    seen = machine(throttled, stalls={"cpu": 0.8})
    answer = render("n1", SAMPLE, seen, found, {("cpu", "busy", WHO): NOW_NS - 60 * 10**9})
    return dict(json.loads(answer))


def test_a_cause_is_shown_with_its_beginning() -> None:
    shown = report(caused(Subject(service="a.service"), WHO))
    assert shown["kind"] == "NodePressure"
    assert shown["time"] == "2027-01-15T08:00:00Z"
    assert shown["causes"] == [
        {
            "resource": "cpu",
            "kind": "busy",
            "since": "2027-01-15T07:59:00Z",
            "culprit": {"namespace": "shop", "pod": "web", "container": "app"},
            "does": "does",
            "nextStep": "next",
            "confidence": 0.88,
            "sufferers": 2,
            "suffers": [
                {"service": "a.service"},
                {"namespace": "shop", "pod": "web", "container": "app"},
            ],
        }
    ]


def test_cpu_pressure_is_split_into_throttled_and_contended() -> None:
    cpu = report()["resources"]["cpu"]
    assert cpu == {"some": [80.5, 60.25, 40.0], "contended": 20.0, "throttled": 60.0}


def test_before_the_second_reading_nothing_is_claimed() -> None:
    shown = json.loads(render("n1", SAMPLE, None, (), {}))
    assert (shown["windowSeconds"], shown["causes"]) == (0, [])


word = st.text(max_size=300)
anybody = st.builds(Subject, word, word, word, word)
anything = st.builds(
    Cause,
    resource=st.just("memory"),
    kind=st.just("rereads"),
    culprit=anybody,
    suffers=st.lists(anybody, max_size=9).map(tuple),
    weight=st.floats(0, 1),
    confidence=st.floats(0, 1),
    does=st.text(max_size=160),
    next_step=st.text(max_size=160),
)


@settings(max_examples=40)
@given(st.lists(anything, max_size=9))
def test_it_never_exceeds_its_bound_and_counts_what_is_left_out(found: list[Cause]) -> None:
    answer = render("n" * 63, SAMPLE, machine(), found, {})
    shown = json.loads(answer)
    assert len(answer) <= MAX_BYTES
    assert len(shown["causes"]) + shown.get("more", 0) == len(found)


def test_names_that_are_no_text_are_shown_all_the_same() -> None:
    odd = Subject(service=b"odd-\xff.service".decode("utf-8", "surrogateescape"))
    assert report(caused(culprit=odd))["causes"][0]["culprit"] == {"service": "odd-?.service"}
