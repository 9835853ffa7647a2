"""The manual page that a wheel gets, read as `man` reads it."""

from __future__ import annotations

import shutil
import subprocess

import pytest

import hatch_build
from orch.ctl import command_table

GROFF = shutil.which("groff")


def test_the_page_has_every_command_with_its_options_and_examples() -> None:
    page = hatch_build.page()
    assert page.startswith(".TH ORCHCTL")
    for words, entry in command_table.walk():
        shown = f".SS \\fBorchctl {' '.join(words)}\\fR\n{entry.text}"
        assert shown.replace("-", "\\-") in page
    assert "\\-\\-pressure" in page
    assert "orchctl checkpoint shop/web" in page


@pytest.mark.skipif(GROFF is None, reason="groff is not installed")
def test_the_page_can_be_read() -> None:
    words = [str(GROFF), "-man", "-Tutf8", "-ww", "-Kutf8"]
    done = subprocess.run(words, input=hatch_build.page(), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "ORCHCTL(1)" in done.stdout
