"""What `nodeagent doctor` found: one finding per thing looked at, and what to do about it; pure.

`ok` needs nothing, `note` is worth knowing, `warn` is a feature lost or about to be, `fail` keeps
the agent from its work.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from orch.component.terminal import visible

Verdict = Literal["ok", "note", "warn", "fail"]

EXIT_OK, EXIT_FAIL, EXIT_WARN = 0, 1, 2
_ORDER: tuple[Verdict, ...] = ("fail", "warn", "note", "ok")


@dataclass(frozen=True, slots=True)
class Finding:
    """`advice` is what to do next; empty where nothing is to be done, ValueError elsewhere."""

    check: str
    verdict: Verdict
    message: str
    advice: str = ""

    def __post_init__(self) -> None:
        if self.verdict != "ok" and not self.advice:
            raise ValueError(f"nothing says what to do about {self.check}: {self.message}")


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
    """One line per finding in the order of the checks, advice below it, and a sum at the end."""
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
    record = {"exitCode": exit_code(findings), "findings": [asdict(one) for one in findings]}
    return json.dumps(record, indent=2) + "\n"


def _count(findings: Sequence[Finding], verdict: Verdict) -> int:
    return sum(finding.verdict == verdict for finding in findings)
