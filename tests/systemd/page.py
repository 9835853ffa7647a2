"""Shared by the tests of the packages: the packages, and the commands of docs/install.md."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/install.md"
SYSTEMS = Path(os.environ.get("TEST_DEBIAN_BASE") or ROOT / ".test" / "debian")
WORK = Path(os.environ.get("TEST_PACKAGES_WORK") or ROOT / ".test" / "packages")


def build(*words: str) -> None:
    """Build packages of this tree."""
    command = [sys.executable, "-m", "tools.packages", *words, "--work", str(WORK)]
    subprocess.run(command, cwd=ROOT, check=True)


def blocks(heading: str) -> list[str]:
    """The blocks of commands of a section, as they stand there."""
    section = PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
