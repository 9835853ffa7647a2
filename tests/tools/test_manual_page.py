"""The manual pages and completions that a wheel gets, read as `man` and the shells read them."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from orch.ctl import command_table
from orch.wire.names import VERSION
from tools.packages import manual

GROFF = shutil.which("groff")
FILES = manual.files()
PAGES = {path: text for path, text in FILES.items() if "/man/" in path}
PROGRAMS = {
    "nodeagent": 8,
    "nodeagent-mounts": 8,
    "orch-apiserver": 8,
    "orch-controller-manager": 8,
    "orch-up": 1,
    "orchctl": 1,
}


def test_every_program_has_a_page_and_completions() -> None:
    for name, section in PROGRAMS.items():
        page = FILES[f"share/man/man{section}/{name}.{section}"]
        assert page.startswith(f'.TH {name.upper()} "{section}"'.replace("-", "\\-"))
        assert VERSION in page
        assert name in FILES[f"share/bash-completion/completions/{name}"]
        assert FILES[f"share/zsh/vendor-completions/_{name}"].startswith(f"#compdef {name}")


def test_the_client_s_page_has_every_command_with_its_options_and_examples() -> None:
    page = FILES["share/man/man1/orchctl.1"]
    for words, entry in command_table.walk():
        shown = f".SS \\fBorchctl {' '.join(words)}\\fR\n{entry.text}"
        assert shown.replace("-", "\\-") in page
    assert "\\-\\-pressure" in page
    assert "orchctl checkpoint shop/web" in page


@pytest.mark.skipif(GROFF is None, reason="groff is not installed")
@pytest.mark.parametrize("path", PAGES)
def test_the_page_can_be_read(path: str) -> None:
    words = [str(GROFF), "-man", "-Tutf8", "-ww", "-Wbreak", "-Kutf8"]
    done = subprocess.run(words, input=PAGES[path], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    name, section = path.rsplit("/", 1)[1].rsplit(".", 1)
    assert f"{name.upper()}({section})" in done.stdout


def test_bash_completes_an_option_of_the_agent() -> None:
    script = FILES["share/bash-completion/completions/nodeagent"]
    line = "COMP_WORDS=(nodeagent --kube); COMP_CWORD=1; _shtab_nodeagent; echo ${COMPREPLY[@]}"
    done = subprocess.run(["bash", "-c", f"{script}\n{line}"], capture_output=True, text=True)
    assert done.stdout.split() == ["--kubeconfig"], done.stderr
