"""Findings as text, as JSON, and as an exit code."""

import json
from typing import Any

import pytest

from orch.component.diagnostics.findings import (
    Finding,
    as_json,
    as_text,
    exit_code,
    fail,
    note,
    ok,
    warn,
)

CODES = [
    ([], 0),
    ([ok("a", "fine"), note("b", "odd", "look")], 0),
    ([ok("a", "fine"), warn("b", "lost", "do")], 2),
    ([warn("b", "lost", "do"), fail("c", "broken", "do")], 1),
]


@pytest.mark.parametrize(("findings", "code"), CODES)
def test_the_worst_finding_decides_the_exit_code(findings: list[Finding], code: int) -> None:
    assert exit_code(findings) == code


@pytest.mark.parametrize("report", [note, warn, fail])
def test_a_finding_without_advice_is_an_error(report: Any) -> None:
    with pytest.raises(ValueError, match="the finding disk has no advice: full"):
        report("disk", "full", "")


def test_text_has_a_line_per_finding_with_its_advice_below() -> None:
    text = as_text([ok("kernel", "release 6.1"), fail("lock file", "taken", "stop the other")])
    assert text == (
        "ok    kernel     release 6.1\n"
        "fail  lock file  taken\n"
        "                 -> stop the other\n"
        "\n"
        "1 fail, 0 warn, 0 note, 1 ok\n"
    )


def test_control_characters_in_findings_are_escaped() -> None:
    assert "\x1b" not in as_text([ok("x", "\x1b[2J\nfail  forged")])
    assert len(as_text([ok("x", "a\nb")]).splitlines()) == 3


def test_json_holds_the_findings_and_the_exit_code() -> None:
    assert json.loads(as_json([warn("a", "lost", "do")])) == {
        "exitCode": 2,
        "findings": [{"check": "a", "verdict": "warn", "message": "lost", "advice": "do"}],
    }
