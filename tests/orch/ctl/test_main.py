from __future__ import annotations

import os
import shlex
import subprocess
import sys

import pytest

from orch.ctl import command_table, main
from orch.ctl.command_table import Entry
from tests.fakes.http_api import HttpApi
from tests.orch.ctl.conftest import Orchctl, run_command

CLIENT_VERSION = [sys.executable, "-m", "orch.ctl.main", "version", "--client"]


@pytest.mark.parametrize("words", [(), ("get",), ("node", "top")])
def test_help_may_be_asked_for_first(words: tuple[str, ...]) -> None:
    result = run_command("help", *words)
    assert (result.code, result.out) == (0, run_command(*words, "--help").out)
    assert result.out.startswith(" ".join(("usage: orchctl", *words)))


def test_words_that_do_not_fit_are_said_before_a_server_is_looked_for() -> None:
    for words, text in (
        (("top",), "orchctl: error: there is no command 'top': did you mean 'node top'?; see"),
        (("apply", "--force-conflicts", "-f", "x"), "error: --force-conflicts only works with"),
        (("apply", "--server-side", "--dry-run=client", "-f", "x"), "error: --dry-run=client does"),
        (("cordon",), "error: name the nodes: either NODE or -l SELECTOR\n"),
        (("drain", "n1", "-l", "a=b"), "error: name the nodes: either NODE or -l SELECTOR\n"),
        (("uncordon", "pods/x"), "error: 'pods/x' is not a node: name nodes only\n"),
        (("create", "namespace", "x"), "orchctl: error: there is no 'create namespace' here: give"),
        (("create", "deployment", "x", "--image=y"),
         "orchctl: error: there is no 'create deployment' here: give the objects with -f FILE"),
        (("-n", "a", "attach", "x"), "orchctl: error: there is no command 'attach': it is one of"),
        (("create",), "error: nothing to create: give the objects with -f FILE"),
    ):  # fmt: skip
        result = run_command(*words)
        assert (result.code, result.err.count("\n")) == (2, 1)
        assert result.err.startswith(text)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "the following arguments are required: COMMAND"),
        (("frobnicate",), "there is no command 'frobnicate'; see"),
        (("gte",), "there is no command 'gte': did you mean 'get'?"),
        (("auth", "cani"), "there is no command 'cani': did you mean 'can-i'?"),
        (("auth",), "orchctl auth: error: the following arguments are required: COMMAND"),
        (("wait", "pods"), "orchctl wait: error: the following arguments are required: --for"),
        (
            ("patch", "--type", "stategic"),
            "invalid choice: 'stategic' (choose from",
        ),
        (("get", "pods", "--outptu", "yaml"), "unrecognized arguments: --outptu: did you mean "),
        (("get", "pods", "--tokne=secret"), "unrecognized arguments: --tokne: did you mean "),
        (("get", "pods", "--watch=maybe"), "--watch: takes true, false or nothing, not 'maybe'"),
        (("get", "pods", "-o", "xml"), "'xml' is not a format: use json, yaml"),
        (("get", "pods", "-o", "jsn"), "'jsn' is not a format: did you mean 'json'?"),
        (("get", "pods", "--request-timeout", "soon"), "'soon' is not a duration"),
    ],
)
def test_usage_errors_are_one_line_and_exit_code_2(words: tuple[str, ...], text: str) -> None:
    result = run_command(*words)
    assert result.code == 2
    assert text in result.err
    assert "--help" in result.err
    assert "secret" not in result.err
    assert result.err.count("\n") == 1


WALKED = [pytest.param(*pair, id=" ".join(pair[0])) for pair in command_table.walk()]


@pytest.mark.parametrize(("words", "entry"), WALKED)
def test_every_command_explains_itself(words: tuple[str, ...], entry: Entry) -> None:
    result = run_command(*words, "--help")
    assert result.code == 0
    assert f"usage: orchctl {' '.join(words)}" in result.out
    assert entry.text in result.out
    assert "--kubeconfig" in result.out
    assert f"examples:\n  orchctl {' '.join(words)}" in result.out


@pytest.mark.parametrize(("words", "entry"), WALKED)
def test_every_example_is_a_command_line(words: tuple[str, ...], entry: Entry) -> None:
    for line in entry.load().EXAMPLES.strip().splitlines():
        typed = shlex.split(line.partition(" | ")[0].partition(" > ")[0])
        assert typed[0] == "orchctl"
        command, _ = main.parse(typed[1:])
        assert callable(command.run)


@pytest.mark.parametrize("word", ["auth", "config", "node", "create", "checkpoint"])
def test_a_group_lists_its_commands(word: str) -> None:
    result = run_command(word, "--help")
    assert result.code == 0
    for lower, entry in command_table.COMMANDS[word].below.items():
        assert f"  {lower:15} {entry.text}" in result.out
    own = bool(command_table.COMMANDS[word].module)  # a command itself has examples of its own
    told = "examples:" if own else f"'orchctl {word} COMMAND --help' shows examples"
    assert told in result.out


def test_the_help_lists_every_command() -> None:
    result = run_command("--help")
    assert all(command in result.out for command in command_table.COMMANDS)
    assert "Exit codes: 0 done, 1 failed" in result.out


async def test_options_may_stand_before_and_after_the_command(
    orchctl: Orchctl, api: HttpApi
) -> None:
    for words in (
        ("-n", "x", "get", "pods"),
        ("get", "-n", "x", "pods"),
        ("get", "pods", "-n", "x"),
    ):
        await orchctl(*words)
        assert api.requests[-1].path == "/api/v1/namespaces/x/pods"


@pytest.mark.parametrize(
    ("words", "prog"),
    [
        (("create", "-n", "shop", "token"), "orchctl create token: error:"),
        (("create", "--context=c", "token"), "orchctl create token: error:"),
        (("create", "token", "-n", "shop"), "orchctl create token: error:"),
        (("config", "--kubeconfig", "x", "use"), "orchctl config use-context: error:"),
        (("checkpoint", "-c", "list"), "orchctl checkpoint: error:"),
    ],
)
def test_options_may_stand_between_the_words_of_a_command(
    words: tuple[str, ...], prog: str
) -> None:
    result = run_command(*words)
    assert (result.code, result.err.startswith(prog)) == (2, True), result.err


def test_the_client_version_needs_no_network_code_and_little_time() -> None:
    code = (
        "import sys; from orch.ctl.main import main; main(['version', '--client']);"
        "print([m for m in ('aiohttp', 'asyncio', 'pydantic', 'yaml') if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines()[1] == "[]"
    took_s = min(_cpu_seconds(CLIENT_VERSION) for _ in range(3))
    assert took_s < 0.15


def test_a_command_that_needs_only_a_connection_reads_no_records() -> None:
    code = (
        "import sys; from orch.ctl.main import parse; parse(['exec', 'web', '--', 'true']);"
        "import aiohttp; print([m for m in ('pydantic', 'yaml') if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "[]\n"


def _cpu_seconds(command: list[str]) -> float:
    """What the command computes, however busy the machine is; compiled code may be kept."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    before = os.times()
    subprocess.run(command, capture_output=True, check=True, env=environment)
    after = os.times()
    return after.children_user + after.children_system - before[2] - before[3]


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    read, write = os.pipe()
    os.close(read)
    ended = subprocess.run(CLIENT_VERSION, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (ended.returncode, ended.stderr) == (1, b"")
