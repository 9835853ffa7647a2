"""`orchctl` beside an unmodified `kubectl` on the same server: a table of commands, one result.

What a command prints must agree (but for blanks at the end of lines and ages that tick), and what
it leaves stored. Where kubectl says a thing in other words on purpose, only the effect is compared.
"""

from __future__ import annotations

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
from tests.e2e.apiserver import ApiServer, Kubectl, running
from tests.e2e.harness import eventually
from tests.orch.ctl.conftest import Result, run_command

KUBECTL = shutil.which("kubectl")
pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")

NODE = """
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {disk: ssd, orch.io/os: linux}}
status:
  conditions: [{type: Ready, status: "True"}]
  capacity: {cpu: "2", memory: 4Gi}
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


class Both:
    """The two commands, as the same administrator of the same server."""

    def __init__(self, server: ApiServer, folder: Path) -> None:
        assert KUBECTL is not None
        self.kubeconfig = str(server.directory / "kubeconfig")
        self.kubectl = Kubectl(KUBECTL, Path(self.kubeconfig), folder / "cache")
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
    folder = tmp_path_factory.mktemp("apiserver")
    authority = Authority(folder / "accounts", now=datetime.now(UTC))
    key = authority.issue(Subject("accounts", "accounts", ())).key_file
    signing = f"--service-account-signing-key-file={key}"
    with running(folder, "--serve-upstream-aliases", signing) as server:
        both = Both(server, folder)
        objects = "---".join((NODE, POD.replace("NAME", "shown"), DATA, ROLE))
        both.ours("create", "-f", both.file(objects))
        yield server


@pytest.fixture
def both(server: ApiServer, tmp_path: Path) -> Both:
    return Both(server, tmp_path)


def plain(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


PATHS = "{range .items[*]}{.metadata.name}={.spec.nodeName};{end}"
SAME = [
    "get all", "get pods -L app,none --show-labels", "get pods --no-headers",
    "get nodes --sort-by .metadata.name", "get ns --sort-by={.metadata.creationTimestamp} -o name",
    "get node/n1 pod/shown -o name", "get pods --show-kind", "get cm settings",
    "get cm,sa -A -o name", "get events", "get pod shown -o jsonpath={.spec.containers[*].name}",
    f"get pods -o 'jsonpath={PATHS}'",
    "get pods -o custom-columns=NAME:.metadata.name,ENV:.spec.containers[*].env,NO:.none",
    "get pods -l app=none", "get --raw /healthz", "get --raw /version",
    "get node n1 -o 'jsonpath={.metadata.labels.orch\\.io/os}'", "events", "events --for pod/shown",
    "label node n1 --list", "label nodes n1 disk=ssd", "annotate pod shown note=x",
    "auth can-i get pods", "auth can-i '*' '*'", "auth can-i create nodes --subresource=proxy",
    "auth can-i get /metrics", "auth can-i delete pods --as nobody",
    "auth can-i get pods -A --as nobody", "auth whoami", "auth whoami --as jane --as-group ops",
    "config get-contexts", "config current-context", "config view --minify -o json",
    "config get-contexts -o name", "wait pod/shown --for jsonpath={.metadata.name}=shown",
    "wait pod/gone --for delete", "wait node/n1 --for condition=Ready",
    "label pods --all seen=yes --dry-run=server",
    "delete pod shown --dry-run=server",
    "api-resources --namespaced=false -o name", "api-resources --api-group= --no-headers",
    "api-resources --verbs=list,watch -o name", "cordon n1 --dry-run=server",
    "delete pod shown --dry-run=client -o name",
    "patch node n1 --dry-run=server -p {} -o name", "get leases -A",
    "describe pod shown", "describe node n1", "describe cm,ns", "describe sa default",
    "describe role reader", "describe pods sho",
]  # fmt: skip
ONLY_THE_ANSWER = ("auth can-i",)  # kubectl warns on standard output of what it was asked about


@pytest.mark.parametrize("line", SAME)
def test_the_same_words_print_the_same(both: Both, line: str) -> None:
    words = shlex.split(line)
    for attempt in range(3):  # an age may tick over between the two
        theirs = subprocess.run(
            both.kubectl.command(*words), capture_output=True, text=True, timeout=30
        )
        ours = run_command(*words, "--kubeconfig", both.kubeconfig)
        same = normal(ours.out, line) == normal(theirs.stdout, line)
        if same or attempt == 2:
            break
    assert (ours.code, normal(ours.out, line)) == (theirs.returncode, normal(theirs.stdout, line))


def normal(text: str, line: str) -> Any:
    if "-o json" in line and "jsonpath" not in line:
        return _without_empty(json.loads(text))
    if line.startswith(ONLY_THE_ANSWER):
        return text.split()[0] if text else ""
    return plain(text)


def _without_empty(value: Any) -> Any:
    """Equal data: kubectl writes `preferences: {}` and the like where there is nothing."""
    if isinstance(value, dict):
        return {k: _without_empty(v) for k, v in value.items() if v not in ({}, None, "", [])}
    return [_without_empty(item) for item in value] if isinstance(value, list) else value


CHANGES: list[tuple[str, str, list[str]]] = [
    ("label", "pod changed", ["label pod changed tier=front app-"]),
    ("relabel", "pod changed", ["label pod changed app=db --overwrite"]),
    ("annotate", "pod changed", ["annotate pod changed a=b note-"]),
    ("taint", "node n1",
     ["taint nodes n1 own=db:NoSchedule slow:NoExecute", "taint node n1 slow-"]),
    ("untaint", "node n1", ["taint node n1 a=b:NoSchedule", "taint node n1 a:NoSchedule-"]),
    ("cordon", "node n1", ["cordon n1", "cordon n1"]),
    ("replace", "pod changed", ["replace -f FILE"]),
    ("replace anew", "cm settings2", ["apply -f MAP", "replace --force -f MAP"]),
    ("apply", "pod changed", ["apply -f FILE", "apply -f FILE"]),
    ("patch", "pod changed", ["patch pod changed --type=json -p "
                              '[{"op":"remove","path":"/metadata/labels/app"}]']),
    ("patch", "pod changed", ["patch pod changed -p "
                              '{"spec":{"containers":[{"name":"c","image":"busybox:2"}]}}']),
    ("patch the status", "pod changed", ["patch pod changed --subresource=status -p "
                                         '{"status":{"phase":"Running"}}']),
    ("make a map", "cm settings2", ["create configmap settings2 --from-literal a=b=c"]),
    ("make a map of a file", "cm settings2", ["create cm settings2 --from-file x=MAP"]),
    ("make a secret", "secret made",
     ["create secret generic made --from-literal a=b", "delete secret made"]),
    ("make a namespace", "ns made", ["create namespace made", "delete ns made"]),
    ("make an account", "sa made", ["create sa made", "delete sa made"]),
    ("delete", "cm settings2", ["create -f MAP", "delete cm settings2"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "what", "lines"), CHANGES, ids=[name for name, _, _ in CHANGES])
def test_the_same_words_leave_the_same(both: Both, name: str, what: str, lines: list[str]) -> None:
    """Each command starts from the same objects; output and what is stored are compared."""
    files = {
        "FILE": both.file(POD.replace("NAME", "changed").replace("app: web", "app: other")),
        "MAP": both.file(DATA.replace("settings", "settings2"), "map.yaml"),
    }
    ends = []
    for run in (both.kubectl, lambda *words: both.ours(*words).out.strip()):
        begin(both)
        told = [plain(run(*(placed(word, files) for word in line.split()))) for line in lines]
        ends.append((told, stored(both, what)))
    begin(both)
    assert ends[1] == ends[0]


def placed(word: str, files: dict[str, str]) -> str:
    """A word with the name of a file in the place of FILE or MAP."""
    key, equals, name = word.rpartition("=")
    return f"{key}{equals}{files.get(name, name)}"


def begin(both: Both) -> None:
    """The node as it was made, and a fresh pod."""
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
        both.ours("label", "pod", "watched", "app-")
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


def test_it_works_where_kubectl_cannot(both: Both) -> None:
    """Groups that kubectl has compiled in under another name."""
    both.ours("create", "clusterrole", "made", "--verb=get", "--non-resource-url=/metrics")
    words = ("create", "clusterrolebinding", "made", "--clusterrole", "made")
    both.ours(*words, "--user", "jane", "--serviceaccount", "default:web")
    assert both.ours("auth", "can-i", "get", "/metrics", "--as", "jane").out == "yes\n"
    token = both.ours("create", "token", "default", "--duration", "1h").out.strip()
    told = run_command("auth", "whoami", "--token", token, "-s", both.address(),
                       "--insecure-skip-tls-verify").out  # fmt: skip
    assert "system:serviceaccount:default:default" in told
    role = both.ours("describe", "role", "reader").out
    assert "[get list]" in role
    assert both.ours("auth", "can-i", "--list").out.startswith("Resources")
    assert "reader" in both.ours("get", "roles.rbac.authorization.orch.io").out
    local = ("patch", "--local", "-f", both.file(ROLE), "--type", "merge", "-p", "rules: []")
    assert yaml.safe_load(both.ours(*local, "-o", "yaml").out)["rules"] == []
    both.kubectl.run("get", "pods", "-o", "jsonpath={.x[", code=1)
    secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {key: hidden}\n"
    both.ours("create", "-f", both.file(secret))
    shown = both.ours("describe", "secret", "s").out
    assert ("key:  6 bytes" in shown, "hidden" in shown) == (True, False)
