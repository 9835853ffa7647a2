"""The lines that docs/troubleshooting.md promises, for the tests that stage its mistakes."""

from __future__ import annotations

import re
from pathlib import Path

_PAGE = (Path(__file__).parents[1] / "docs" / "troubleshooting.md").read_text()
# Of each mistake, the line of its row.
PROMISED: dict[str, str] = dict(
    re.findall(r"^\| ([^|]+) \| `(.+?)` \| [^|]+ \|$", _PAGE, re.MULTILINE)
)
UNIT = "a server's unit is skipped"  # staged in tests/systemd/test_booted.py


def says(output: str, mistake: str) -> bool:
    """Whether the promised line of a mistake stands in the output."""
    pieces = [re.escape(piece) for piece in PROMISED[mistake].split("…")]
    return re.search(".*".join(pieces), output) is not None
