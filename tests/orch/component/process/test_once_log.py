"""Causes, outages and their bounds."""

from __future__ import annotations

import asyncio
import logging
import tracemalloc

import pytest

from orch.component.process.once_log import MAX_CAUSES, MAX_SUBJECTS, SILENCE_S, OnceLog

log = logging.getLogger(__name__)


@pytest.fixture(autouse=True)
def _everything_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)


def test_a_cause_is_logged_once_until_the_subject_recovers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    once = OnceLog(log)
    for cause in ("refused", "refused", "too slow", "refused"):
        once.failed("cannot ask %s: %s", "them", cause)
    once.recovered()
    once.failed("cannot ask %s: %s", "them", "refused")
    assert caplog.messages == [
        "cannot ask them: refused",
        "cannot ask them: too slow",
        "cannot ask them: refused",
    ]


@pytest.mark.looptime
async def test_a_recovery_is_logged_once_with_the_duration_of_the_outage(
    caplog: pytest.LogCaptureFixture,
) -> None:
    once = OnceLog(log)
    once.recovered("nothing was wrong")
    once.failed("down")
    await asyncio.sleep(90)
    once.failed("still down")
    await asyncio.sleep(30)
    once.recovered("%s is up", "it")
    once.recovered("%s is up", "it")
    assert caplog.messages == ["down", "still down", "it is up (after 120.0 s)"]


def test_levels_and_the_place_of_a_line_are_those_of_its_user(
    caplog: pytest.LogCaptureFixture,
) -> None:
    once = OnceLog(log, logging.ERROR)
    once.failed("100% broken")
    once.recovered("mended")
    assert [record.levelno for record in caplog.records] == [logging.ERROR, logging.INFO]
    assert {record.filename for record in caplog.records} == {"test_once_log.py"}


def test_an_error_that_is_given_is_logged_with_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    OnceLog(log).failed("broken", error=ValueError("why"))
    assert caplog.records[0].exc_info is not None
    assert caplog.records[0].exc_info[0] is ValueError


def test_a_given_cause_decides_what_is_the_same(caplog: pytest.LogCaptureFixture) -> None:
    once = OnceLog(log)
    for age_s in range(5):
        once.failed("no answer for %d s", age_s, cause="silent")
    assert caplog.messages == ["no answer for 0 s"]


def test_subjects_fail_and_recover_by_themselves(caplog: pytest.LogCaptureFixture) -> None:
    once = OnceLog(log)
    for subject in ("a", "b", "a", "b"):
        once.failed("broken", subject=subject)
    once.recovered(subject="a")
    for subject in ("a", "b"):
        once.failed("broken", subject=subject)
    assert len(caplog.messages) == 3


def test_subjects_that_are_not_retained_begin_anew(caplog: pytest.LogCaptureFixture) -> None:
    once = OnceLog(log)
    for subject in ("a", "b"):
        once.failed("%s is broken", subject, subject=subject)
    once.retain(["b", "c"])
    for subject in ("a", "b"):
        once.failed("%s is broken", subject, subject=subject)
    assert caplog.messages == ["a is broken", "b is broken", "a is broken"]


@pytest.mark.looptime
async def test_an_outage_with_too_many_causes_says_so_and_is_silent_for_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    once = OnceLog(log)
    for number in range(10 * MAX_CAUSES):
        once.failed("refused for the %dth time", number)
    assert len(caplog.messages) == MAX_CAUSES + 1
    assert caplog.messages[-1] == "further causes of this are not logged for 600 s"
    await asyncio.sleep(SILENCE_S)
    once.failed("a new cause")
    once.failed("a new cause")
    assert caplog.messages[MAX_CAUSES + 1 :] == ["a new cause"]


def test_a_cause_takes_a_few_bytes_however_long_it_is() -> None:
    logger = logging.Logger("not handled", logging.CRITICAL)
    once = OnceLog(logger)
    tracemalloc.start()
    for subject in range(20):
        for number in range(MAX_CAUSES):
            once.failed(f"{number}" + "x" * 100_000, subject=subject)
    held_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held_bytes < 200_000


def test_subjects_beyond_the_bound_share_an_outage(caplog: pytest.LogCaptureFixture) -> None:
    once = OnceLog(log)
    subjects = range(MAX_SUBJECTS + 100)
    for _ in range(3):
        for subject in subjects:
            once.failed("broken", subject=subject)
        once.retain(subjects)
    assert len(caplog.messages) == MAX_SUBJECTS + 1
