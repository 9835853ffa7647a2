from __future__ import annotations

import shutil
import subprocess

import pytest

from orch.ctl import commands, manual
from tests.orch.ctl.conftest import run_command

WALKED = [words for words, _ in commands.walk()]


@pytest.mark.parametrize("words", [(), *WALKED], ids=lambda words: " ".join(words) or "all")
def test_every_page_has_its_parts(words: tuple[str, ...]) -> None:
    lines = list(manual.page(words))
    assert lines[0].startswith(".TH ORCHCTL")
    parts = [line.removeprefix(".SH ") for line in lines if line.startswith(".SH ")]
    assert parts[:2] == ["NAME", "SYNOPSIS"]
    assert [p for p in parts if p in _COMMON] == ["OPTIONS", "EXIT STATUS", "ENVIRONMENT"]
    assert all("\n" not in line for line in lines)


_COMMON = ("OPTIONS", "EXIT STATUS", "ENVIRONMENT")


def test_a_page_names_every_option_of_its_command() -> None:
    shown = run_command("man", "drain").out.replace("\\", "")
    for option in ("--ignore-daemonsets", "--grace-period SECONDS", "--kubeconfig FILE"):
        assert option in shown
    assert "orchctl drain worker-1 --force --dry-run=server" in shown


def test_the_page_of_all_names_every_command() -> None:
    shown = run_command("man").out.replace("\\", "")
    assert all(f".B orchctl {' '.join(words)}\n" in shown for words in WALKED)


def test_a_command_nearly_right_brings_up_the_right_one() -> None:
    result = run_command("man", "node", "tpo")
    assert (result.code, "no command 'node tpo': did you mean 'node top'?" in result.err) == (
        2, True,
    )  # fmt: skip


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_roff_reads_every_page_without_a_warning() -> None:
    for words in ((), *WALKED):
        text = "\n".join(manual.page(words))
        done = subprocess.run(
            ["groff", "-man", "-Tutf8", "-ww", "-z"], input=text, capture_output=True, text=True,
            check=True,
        )  # fmt: skip
        assert done.stderr == ""
