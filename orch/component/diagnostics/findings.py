"""The findings of a doctor: verdict, message and advice per check, as text or JSON; pure.

`ok` needs nothing, `note` is worth knowing, `warn` is a feature lost or about to be, `fail` keeps
the program from working.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from orch.component.terminal import visible

Severity = Literal["ok", "note", "warn", "fail"]

EXIT_OK, EXIT_FAIL, EXIT_WARN = 0, 1, 2
_ORDER: tuple[Severity, ...] = ("fail", "warn", "note", "ok")


@dataclass(frozen=True, slots=True)
class Finding:
    """`advice` says what to do next; required (ValueError) unless the verdict is `ok`."""

    check: str
    verdict: Severity
    message: str
    advice: str = ""

    def __post_init__(self) -> None:
        if self.verdict != "ok" and not self.advice:
            raise ValueError(f"the finding {self.check} has no advice: {self.message}")


def ok(check: str, message: str) -> Finding:
    return Finding(check, "ok", message)


def note(check: str, message: str, advice: str) -> Finding:
    return Finding(check, "note", message, advice)


def warn(check: str, message: str, advice: str) -> Finding:
    return Finding(check, "warn", message, advice)


def fail(check: str, message: str, advice: str) -> Finding:
    return Finding(check, "fail", message, advice)


def exit_code(findings: Iterable[Finding]) -> int:
    """1 when something fails, else 2 when there is a warning, else 0."""
    verdicts = {finding.verdict for finding in findings}
    if "fail" in verdicts:
        return EXIT_FAIL
    return EXIT_WARN if "warn" in verdicts else EXIT_OK


def as_text(findings: Sequence[Finding]) -> str:
    """A line per finding, its advice below it, and the totals at the end."""
    width = max((len(finding.check) for finding in findings), default=0)
    lines = []
    for finding in findings:
        message = visible(finding.message)
        lines.append(f"{finding.verdict:<4}  {finding.check:<{width}}  {message}")
        if finding.advice:
            lines.append(f"{'':<{width + 8}}-> {visible(finding.advice)}")
    counts = [f"{_count(findings, verdict)} {verdict}" for verdict in _ORDER]
    return "\n".join([*lines, "", ", ".join(counts), ""])


def as_json(findings: Sequence[Finding]) -> str:
    """`{"exitCode", "findings": [{check, verdict, message, advice}]}`."""
    record = {"exitCode": exit_code(findings), "findings": list(map(asdict, findings))}
    return json.dumps(record, indent=2) + "\n"


def _count(findings: Sequence[Finding], verdict: Severity) -> int:
    return sum(finding.verdict == verdict for finding in findings)
