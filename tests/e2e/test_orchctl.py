"""`orchctl` beside an unmodified `kubectl` on the same server: a table of commands, one result.

What a command prints must agree (but for blanks at the end of lines and ages that tick), and what
it leaves stored. Where kubectl says a thing in other words on purpose, only the effect is compared.
"""

from __future__ import annotations

import base64
import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from orch.component.pki import Authority, Subject
from orch.ctl import command_table
from tests.e2e import miniagent, orchctltable
from tests.e2e.apiserver import ApiServer, Kubectl, newest_kubectl, running
from tests.e2e.harness import eventually
from tests.e2e.orchctltable import normal, without_empty
from tests.orch.ctl.conftest import Result, run_command

KUBECTL = newest_kubectl()
pytestmark = [
    pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed"),
    pytest.mark.seconds(50),
]

OBJECTS = """
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {disk: ssd, orch.io/os: linux}}
status:
  conditions: [{type: Ready, status: "True"}]
  capacity: {cpu: "2", memory: 4Gi}
  addresses: [{type: InternalIP, address: 127.0.0.1}]
  daemonEndpoints: {nodeagentEndpoint: {Port: PORT}}
---
apiVersion: v1
kind: Pod
metadata: {name: pair, labels: {app: two}}
spec:
  nodeName: n1
  initContainers: [{name: i, image: "busybox:1"}]
  containers: [{name: c, image: "busybox:1"}, {name: d, image: "busybox:1"}]
---
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: NAME, labels: {app: web}, annotations: {note: x}}
spec:
  nodeName: n1
  containers: [{name: c, image: "busybox:1", env: [{name: A, value: "1"}]}]
"""
DATA = """
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {mode: fast}
"""
ROLE = """
apiVersion: rbac.authorization.orch.io/v1
kind: Role
metadata: {name: reader}
rules: [{apiGroups: [""], resources: [pods], verbs: [get, list]}]
"""
OBJECTS += "---".join((POD.replace("NAME", "shown"), DATA, ROLE))


class Both:
    """The two commands, as the same administrator of the same server."""

    def __init__(self, server: ApiServer, folder: Path) -> None:
        assert KUBECTL is not None
        self.kubeconfig = str(server.directory / "kubeconfig")
        self.kubectl = Kubectl(KUBECTL, Path(self.kubeconfig), server.directory / "cache")
        self.folder = folder

    def ours(self, *words: str, code: int = 0) -> Result:
        result = run_command(*words, "--kubeconfig", self.kubeconfig)
        assert result.code == code, result.out + result.err
        return result

    def address(self) -> str:
        config = yaml.safe_load(Path(self.kubeconfig).read_text())
        return str(config["clusters"][0]["cluster"]["server"])

    def stored(self, *words: str) -> Any:
        found = json.loads(self.kubectl("get", *words, "-o", "json"))
        for name in ("uid", "resourceVersion", "creationTimestamp", "generation"):
            found["metadata"].pop(name, None)
        return found

    def file(self, text: str, name: str = "object.yaml") -> str:
        path = self.folder / name
        path.write_text(text)
        return str(path)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """With a node whose agent answers, its pods, and the names of groups that kubectl asks for."""
    folder = tmp_path_factory.mktemp("apiserver")
    authority = Authority(folder / "pki", now=datetime.now(UTC))
    key = authority.issue(Subject("accounts", "accounts", ())).key_file
    arguments = (
        "--serve-upstream-aliases", f"--service-account-signing-key-file={key}",
        "--node-proxy-allow-loopback", f"--nodeagent-certificate-authority={authority.ca_file}",
    )  # fmt: skip
    agent = miniagent.serving(authority.issue(Subject("agent", "agent", (), ("n1",))))
    with agent as (port, _), running(folder, *arguments) as server:
        both = Both(server, folder)
        (folder / "objects.yaml").write_text(OBJECTS.replace("PORT", str(port)))
        both.ours("create", "-f", str(folder / "objects.yaml"))
        yield server


@pytest.fixture
def both(server: ApiServer, tmp_path: Path) -> Both:
    return Both(server, tmp_path)


@pytest.fixture(scope="module")
def files(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The files that stand in the rows by their names."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "tree" / "below").mkdir(parents=True)
    for path, text in (
        ("map.yaml", DATA.replace("settings", "settings2")),
        ("tree/a.yaml", DATA.replace("settings", "first")),
        ("tree/below/b.json", json.dumps(yaml.safe_load(DATA.replace("settings", "second")))),
    ):
        (folder / path).write_text(text)
    named = {"MAP": "map.yaml", "TREE": "tree"}
    return {
        **{word: str(folder / path) for word, path in named.items()},
        "OBJECTS": str(server.directory / "objects.yaml"),
    }


def plain(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def theirs(both: Both, words: list[str]) -> subprocess.CompletedProcess[str]:
    command = both.kubectl.command(*words)
    return subprocess.run(command, capture_output=True, text=True, timeout=60, input="")


@pytest.mark.parametrize("line", orchctltable.SAME)
def test_the_same_words_print_the_same(both: Both, files: dict[str, str], line: str) -> None:
    words = [placed(word, files) for word in shlex.split(line)]
    for attempt in range(3):  # an age may become longer by a digit between the two
        other = theirs(both, words)
        ours = run_command(*words, "--kubeconfig", both.kubeconfig)
        same = normal(ours.out, line) == normal(other.stdout, line)
        if same or attempt == 2:
            break
    assert normal(ours.out, line) == normal(other.stdout, line)
    assert ours.code == other.returncode, (ours.err, other.stderr)


@pytest.mark.parametrize("line", orchctltable.REFUSED)
def test_the_same_words_are_refused(both: Both, files: dict[str, str], line: str) -> None:
    words = [placed(word, files) for word in shlex.split(line)]
    assert theirs(both, words).returncode == 1
    result = run_command(*words, "--kubeconfig", both.kubeconfig)
    assert (result.code in (1, 2), result.out) == (True, "")
    said = [line for line in result.err.splitlines() if not line.startswith("Defaulted")]
    assert len(said) == 1, result.err


def test_every_command_that_kubectl_has_stands_in_a_row(both: Both) -> None:
    missing = {
        " ".join(words)
        for words, _ in command_table.walk()
        if words[-1] in subcommands(both, words[:-1])
        and not any(row[: len(words)] == list(words) for row in orchctltable.rows())
    }
    assert missing - orchctltable.ELSEWHERE.keys() == set(), "write a row for it"
    assert len(subcommands(both, ())) > 20, "kubectl does not tell its commands"


def subcommands(both: Both, words: tuple[str, ...]) -> set[str]:
    told = theirs(both, ["__complete", *words, ""]).stdout
    return {line.partition("\t")[0] for line in told.splitlines()}


def test_versions_are_told_under_the_same_names(both: Both) -> None:
    for form, load in (("json", json.loads), ("yaml", yaml.safe_load)):
        ours = load(both.ours("version", "-o", form).out)
        other = load(both.kubectl("version", "-o", form))
        assert ours["serverVersion"] == other["serverVersion"]
        assert ours["clientVersion"].keys() <= other["clientVersion"].keys()
    lines = both.ours("version").lines
    assert lines[0].startswith("Client Version: v")
    assert lines[1] in both.kubectl("version").splitlines()


def test_tokens_say_the_same(both: Both) -> None:
    words = ("create", "token", "default", "--audience", "a", "--duration", "20m",
             "--bound-object-kind", "Pod", "--bound-object-name", "shown")  # fmt: skip
    claims = [claims_of(run(*words)) for run in (both.kubectl, lambda *w: both.ours(*w).out)]
    for one in claims:
        one["lasts_s"] = one.pop("exp") - one["iat"]
        for name in ("iat", "nbf", "jti"):
            one.pop(name)
    assert claims[1] == claims[0]
    assert claims[0]["lasts_s"] == 1200


def claims_of(token: str) -> Any:
    body = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))


@pytest.mark.parametrize(
    ("name", "what", "lines"), orchctltable.CHANGES, ids=[row[0] for row in orchctltable.CHANGES]
)
def test_the_same_words_leave_the_same(
    both: Both, files: dict[str, str], name: str, what: str, lines: list[str]
) -> None:
    """Each command starts from the same objects; output and what is stored are compared."""
    changed = POD.replace("NAME", "changed").replace("app: web", "app: other")
    named = {**files, "FILE": both.file(changed)}
    ends = []
    for run in (both.kubectl, lambda *words: both.ours(*words).out):
        begin(both, what)
        told = [normal(run(*(placed(word, named) for word in line.split())), "") for line in lines]
        ends.append((told, stored(both, what)))
    begin(both, what)
    assert ends[1] == ends[0]


def placed(word: str, files: dict[str, str]) -> str:
    """A word with the path of a file in the place of its name in the rows."""
    key, equals, name = word.rpartition("=")
    return f"{key}{equals}{files.get(name, name)}"


def begin(both: Both, what: str) -> None:
    """The node as it was made, a fresh pod, and nothing of what is to be made."""
    patch = '{"metadata":{"labels":{"disk":"ssd"}},"spec":{"taints":null,"unschedulable":null}}'
    both.ours("patch", "node", "n1", "--type=merge", "-p", patch)
    both.ours("delete", "pod", "changed", "--force", "--grace-period=0", "--ignore-not-found")
    both.ours("delete", "cm", "settings2", "--ignore-not-found")
    made = both.file(POD.replace("NAME", "changed"), "begin.yaml")
    both.ours("create", "-f", made)


def stored(both: Both, what: str) -> Any:
    try:
        found = both.stored(*what.split())
    except AssertionError:
        return None
    annotations = found["metadata"].get("annotations", {})
    kept = {key: value for key, value in annotations.items() if "last-applied" not in key}
    found["metadata"]["annotations"] = kept
    found.get("status", {}).pop("startTime", None)
    return found


def test_a_drain_moves_the_same_pods(both: Both) -> None:
    words = ("drain", "n1", "--force", "--delete-emptydir-data", "--ignore-daemonsets",
             "--pod-selector", "app=moved", "--grace-period=0")  # fmt: skip
    ends = []
    for run in (both.kubectl, lambda *words: both.ours(*words).out):
        both.ours("create", "-f", both.file(POD.replace("NAME", "moved").replace("web", "moved")))
        told = plain(run(*words)).splitlines()
        both.ours("uncordon", "n1")
        ends.append([line for line in told if not line.startswith("Warning")])
        assert both.ours("get", "pods", "-l", "app=moved", "-o", "name").out == ""
    assert ends[1] == ends[0]


def test_a_watch_shows_the_same_rows(both: Both) -> None:
    words = ("get", "pods", "-l", "app=watched", "-w", "--output-watch-events", "--no-headers")
    orchctl = [shutil.which("orchctl", path=_scripts()) or "orchctl", *words]
    commands = ([*orchctl, "--kubeconfig", both.kubeconfig], both.kubectl.command(*words))
    outputs = [both.folder / "ours", both.folder / "theirs"]
    watching = [_started(*pair) for pair in zip(commands, outputs, strict=True)]
    try:
        text = POD.replace("NAME", "watched").replace("app: web", "app: watched")
        both.ours("create", "-f", both.file(text))
        eventually(lambda: all(o.read_text() for o in outputs), within_s=20, what="both watch")
        both.ours("patch", "pod", "watched", "--subresource=status", "-p",
                  '{"status":{"phase":"Failed"}}')  # fmt: skip
        gone = '{"metadata":{"labels":null}}'
        both.ours("patch", "pod", "watched", "--type=merge", "-p", gone)
        eventually(lambda: all("DELETED" in o.read_text() for o in outputs), within_s=20,
                   what="both saw it go")  # fmt: skip
    finally:
        for process in watching:
            process.terminate()
            process.wait(timeout=10)
        both.ours("delete", "pod", "watched", "--force", "--grace-period=0")
    ours, theirs = ([line.split()[:4] for line in o.read_text().splitlines()] for o in outputs)
    assert ours == theirs


def _started(command: list[str], output: Path) -> subprocess.Popen[bytes]:
    with output.open("wb") as sink:
        return subprocess.Popen(command, stdout=sink)


def _scripts() -> str:
    return str(Path(sys.executable).parent)


BEGUN = """
apiVersion: v1
kind: Config
clusters:
- {name: c1, cluster: {server: "https://one", certificate-authority-data: Y2E=}}
- {name: c2, cluster: {server: "https://two"}}
users:
- {name: u1, user: {token: secret}}
- {name: u2, user: {username: jane, password: secret}}
contexts:
- {name: one, context: {cluster: c1, user: u1, namespace: shop}}
- {name: two, context: {cluster: c2, user: u2}}
current-context: one
"""


@pytest.mark.parametrize("line", orchctltable.CONFIG)
def test_the_same_words_show_and_change_a_kubeconfig(tmp_path: Path, line: str) -> None:
    file = tmp_path / "config"
    words = ["config", *shlex.split(line), f"--kubeconfig={file}"]
    ends = []
    for name in ("kubectl", "orchctl"):
        file.write_text(BEGUN)
        if name == "kubectl":
            command = [str(KUBECTL), *words]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            told = (done.returncode, done.stdout)
        else:
            result = run_command(*words)
            told = (result.code, result.out)
        form = "-o yaml" if line.startswith("view") else ""
        ends.append((told[0], normal(told[1], f"config {line} {form}"), kept(file)))
    assert ends[1] == ends[0]


def kept(file: Path) -> Any:
    """The content of a kubeconfig, whatever the order of its entries."""
    data = without_empty(yaml.safe_load(file.read_text()))
    by_name = {"clusters", "users", "contexts"} & data.keys()
    return {**data, **{key: sorted(data[key], key=lambda one: one["name"]) for key in by_name}}
