"""The words that a press of Tab offers; the shells themselves press it in tests/e2e."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from orch.ctl.settings import completion
from tests.fakes.http_api import Answer, HttpApi
from tests.orch.ctl.conftest import run_command

CHECKS = {"bash": ["bash", "-n"], "zsh": ["zsh", "-n"], "fish": ["fish", "--no-execute"]}
LINES = {
    "unc": ["uncordon"],
    "auth ": ["can-i"],
    "config use": ["use-context"],
    "create t": ["token"],
    "create -n shop t": ["token"],
    "create --k": ["--kubeconfig"],
    "checkpoint l": ["list"],
    "checkpoint -n shop w": ["web", "web-2"],
    "drain n": ["n1", "n2"],
    "node summary ": ["n1", "n2"],
    "get po": ["pods"],
    "get pods web -n sh": ["shop"],
    "-n shop get pods w": ["web", "web-2"],
    "-n shop get pod/w": ["pod/web", "pod/web-2"],
    "get pods -n shop w": ["web", "web-2"],
    "get pods -o name -n shop web d": ["db"],
    "auth can-i get po": ["pods"],
    "logs -n shop d": ["db"],
    "get --namespace=s": ["--namespace=shop"],
    "patch --type m": ["merge"],
    "patch pod web --type=j": ["--type=json"],
    "get pods -o cus": ["custom-columns="],
    "version -o ": ["json", "yaml"],
    "completion ": ["bash", "fish", "zsh"],
    "get --sort": ["--sort-by"],
    "--tls": ["--tls-server-name"],
    "frobnicate x": [],
    "config use-context w": ["work"],
    "get --cluster ": ["c"],
}
# Reads lines from its input, and prints the words that each is completed with.
PROGRAM = """
import contextlib, json, os, sys
from orch.ctl.settings import completion
os.environ.update(_ARGCOMPLETE="1", _ARGCOMPLETE_IFS="\\n")
os.environ["_ARGCOMPLETE_STDOUT_FILENAME"] = sys.argv[1]
completion.TIMEOUT_S = float(sys.argv[2])
for line in json.load(sys.stdin):
    os.environ.update(COMP_LINE=line, COMP_POINT=str(len(line)))
    with contextlib.suppress(SystemExit):
        completion.answer_shell()
    with open(sys.argv[1]) as answer:
        print(json.dumps(sorted(word.strip() for word in answer.read().split("\\n") if word)))
"""


async def _completed(
    tmp_path: Path, lines: list[str], *, within_s: float = 30.0
) -> list[list[str]]:
    """The words for each line, from one process: argcomplete uses descriptors of its own.

    A busy machine may take longer than a second for answers that nobody holds back.
    """
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", PROGRAM, str(tmp_path / "answer"), str(within_s)],
        input=json.dumps(lines), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(autouse=True)
def _objects(api: HttpApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("web", "web-2", "db"):
        api.put(f"/api/v1/namespaces/shop/pods/{name}", {"metadata": {"name": name}})
    for name in ("n1", "n2"):
        api.put(f"/api/v1/nodes/{name}", {"metadata": {"name": name}})
    api.put("/api/v1/namespaces/shop", {"metadata": {"name": "shop"}})
    (tmp_path / "config").write_text(
        f"clusters: [{{name: c, cluster: {{server: '{api.url}'}}}}]\n"
        "contexts: [{name: work, context: {cluster: c}}]\ncurrent-context: work\n"
    )
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))


@pytest.mark.slow
async def test_words_that_fit_are_offered(tmp_path: Path) -> None:
    found = await _completed(tmp_path, [f"orchctl {line}" for line in LINES])
    assert dict(zip(LINES, found, strict=True)) == LINES


@pytest.mark.slow
async def test_types_that_have_no_list_are_not_offered(api: HttpApi, tmp_path: Path) -> None:
    types = [{"name": "pods", "verbs": ["get", "list"]}, {"name": "reviews", "verbs": ["create"]}]
    api.answers["GET", "/api/v1"] = Answer({"resources": types})
    assert await _completed(tmp_path, ["orchctl get "]) == [["pods"]]


@pytest.mark.slow
async def test_without_a_server_nothing_is_offered(tmp_path: Path) -> None:
    lines = ["get pods xyz", "get xyz", "get pod/xyz", "drain xyz"]
    words = [f"orchctl --server http://127.0.0.1:1 {line}" for line in lines]
    assert await _completed(tmp_path, words) == [[]] * 4


@pytest.mark.slow
async def test_a_server_whose_list_never_ends_is_not_waited_for(
    api: HttpApi, tmp_path: Path
) -> None:
    """Each answer comes at once, and each says that there is another page."""
    api.answers["GET", "/api/v1/nodes"] = Answer(
        {"kind": "NodeList", "items": [], "metadata": {"continue": "more"}}
    )
    lines = ["orchctl drain n"]
    assert await _completed(tmp_path, lines, within_s=completion.TIMEOUT_S) == [[]]


@pytest.mark.parametrize("shell", CHECKS)
def test_a_shell_can_read_its_script(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "script").write_text(run_command("completion", shell).out)
    subprocess.run([*CHECKS[shell], str(tmp_path / "script")], check=True)
