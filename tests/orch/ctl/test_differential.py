"""`orchctl` and an unmodified `kubectl` against the real API server: same words, same effect.

Only where kubectl can do the thing at all; error texts differ on purpose (ours say what to do).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.apiserver import ApiServer, Kubectl, running
from tests.orch.ctl.conftest import Result, run_command

KUBECTL = shutil.which("kubectl")
pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1", "labels": {"orch.io/os": "linux"}},
    "status": {
        "conditions": [{"type": "Ready", "status": "True"}],
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        "nodeInfo": {"kubeletVersion": "v1.35.0", "osImage": "Debian", "kernelVersion": "6.1"},
    },
}
LEASE = {
    "apiVersion": "coordination.orch.io/v1",
    "kind": "Lease",
    "metadata": {"name": "n1", "namespace": "orch-node-lease"},
    "spec": {"holderIdentity": "n1", "leaseDurationSeconds": 40},
}


def _pod(name: str, image: str = "busybox:1", **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {
            "nodeName": "n1",
            "containers": [
                {"name": "c", "image": image, "env": [{"name": "A", "value": "1"}]},
                {"name": "d", "image": image},
            ],
        },
    }


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    directory = tmp_path_factory.mktemp("apiserver")
    with running(directory) as server:
        for number, record in enumerate((NODE, LEASE, _pod("shown", labels={"app": "x"}))):
            path = directory / f"{number}.json"
            path.write_text(json.dumps(record))
            made = run_command("create", "-f", str(path), "--kubeconfig", _kubeconfig(server))
            assert made.code == 0, made.err
        yield server


def _kubeconfig(server: ApiServer) -> str:
    return str(server.directory / "kubeconfig")


class Both:
    """The two commands, as the same administrator of the same server."""

    def __init__(self, server: ApiServer, folder: Path) -> None:
        assert KUBECTL is not None
        self._kubeconfig = _kubeconfig(server)
        self.folder = folder
        self.kubectl = Kubectl(KUBECTL, Path(self._kubeconfig), folder / "cache")

    def ours(self, *words: str) -> Result:
        return run_command(*words, "--kubeconfig", self._kubeconfig)

    def say_the_same(self, *words: str) -> str:
        """Run both; what they print must agree but for blanks at the end of lines."""
        for attempt in range(1, 4):  # an age may tick over between the two
            theirs = _stripped(self.kubectl(*words))
            ours = self.ours(*words)
            assert ours.code == 0, ours.err
            if _stripped(ours.out) == theirs or attempt == 3:
                assert _stripped(ours.out) == theirs
                break
        return theirs

    def stored(self, *words: str) -> Any:
        return json.loads(self.kubectl("get", *words, "-o", "json"))

    def file(self, record: dict[str, Any]) -> str:
        path = self.folder / "object.json"
        path.write_text(json.dumps(record))
        return str(path)


def _stripped(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


@pytest.fixture
def both(server: ApiServer, tmp_path: Path) -> Both:
    return Both(server, tmp_path)


@pytest.mark.parametrize(
    "words",
    [
        "nodes", "no -o wide", "node n1", "node/n1 pod/shown", "nodes -o name", "pods",
        "po -o wide", "pods -A", "pods,nodes", "pods -l app=x", "pods -l app=y", "pods -n nowhere",
        "pods -A --field-selector spec.nodeName=n1", "ns", "namespaces -o name", "events -A",
        "leases.coordination.orch.io -n orch-node-lease", "leases -A -o name", "pods,leases -A",
        "pods --show-managed-fields -o name", "pod shown --ignore-not-found",
        "pod gone --ignore-not-found", "pods gone --ignore-not-found -o json",
    ],
)  # fmt: skip
def test_tables_and_names_are_the_same(both: Both, words: str) -> None:
    both.say_the_same("get", *words.split())


@pytest.mark.parametrize(
    "words", ["node n1", "pods", "pods -A", "leases -A", "pod shown", "pods -l a=b"]
)
def test_yaml_and_json_hold_the_same_data(both: Both, words: str) -> None:
    theirs = both.stored(*words.split())
    assert json.loads(both.ours("get", *words.split(), "-o", "json").out) == theirs
    assert yaml.safe_load(both.ours("get", *words.split(), "-o", "yaml").out) == theirs


def test_resource_types_are_the_same(both: Both) -> None:
    both.say_the_same("api-resources")
    both.say_the_same("api-resources", "-o", "name")


def test_the_server_s_version_is_the_same(both: Both) -> None:
    (theirs,) = [line for line in both.kubectl("version").splitlines() if "Server" in line]
    assert both.ours("version").lines[1] == theirs
    shown = json.loads(both.ours("version", "-o", "json").out)["serverVersion"]
    assert shown == json.loads(both.kubectl("get", "--raw", "/version"))


def test_the_configuration_is_the_same(both: Both) -> None:
    ours, theirs = (
        yaml.safe_load(text)
        for text in (both.ours("config", "view").out, both.kubectl("config", "view"))
    )
    assert {key: ours[key] for key in ("clusters", "users")} == {
        key: theirs[key] for key in ("clusters", "users")
    }


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (_pod("p", labels={"a": "1"}), _pod("p", "busybox:2", labels={"b": "2"})),
        (_pod("p", annotations={"a": "1", "b": "2"}), _pod("p", annotations={"b": "3"})),
        (_pod("p"), _pod("p")),
    ],
)
def test_applied_objects_end_up_the_same(
    both: Both, first: dict[str, Any], then: dict[str, Any]
) -> None:
    ends = []
    for apply in (both.kubectl, lambda *words: both.ours(*words).out.strip()):
        words = [apply("apply", "-f", both.file(record)) for record in (first, then)]
        stored = both.stored("pod", "p")
        annotations = stored["metadata"].get("annotations", {})
        kept = {k: v for k, v in annotations.items() if "last-applied" not in k}
        ends.append((words, stored["metadata"].get("labels"), kept, stored["spec"]))
        both.kubectl("delete", "pod", "p", "--force", "--grace-period=0")
    assert ends[0] == ends[1]


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        ("strategic", {"spec": {"containers": [{"name": "c", "image": "busybox:3"}]}}),
        ("strategic", {"metadata": {"labels": {"x": "y"}, "finalizers": ["orch.io/f"]}}),
        ("merge", {"metadata": {"labels": {"x": "y"}, "annotations": None}}),
        ("json", [{"op": "add", "path": "/metadata/labels", "value": {"x": "y"}}]),
        ("strategic", {}),
    ],
)
def test_patched_objects_end_up_the_same(both: Both, kind: str, patch: Any) -> None:
    ends = []
    words = ("patch", "pod", "p", "--type", kind, "-p", json.dumps(patch))
    for change in (both.kubectl, lambda *words: both.ours(*words).out.strip()):
        both.kubectl("create", "-f", both.file(_pod("p", annotations={"a": "b"})))
        told = change(*words)
        stored = both.stored("pod", "p")
        metadata = {k: stored["metadata"].get(k) for k in ("labels", "annotations", "finalizers")}
        ends.append((told, metadata, stored["spec"]))
        both.kubectl("patch", "pod", "p", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        both.kubectl("delete", "pod", "p", "--force", "--grace-period=0")
    assert ends[0] == ends[1]


def test_dry_runs_on_the_server_store_nothing(both: Both) -> None:
    before = both.stored("node", "n1")
    words = ("patch", "node", "n1", "-p", '{"metadata":{"labels":{"dry":"run"}}}', "-o", "json")
    ours = json.loads(both.ours(*words, "--dry-run=server").out)
    assert ours["metadata"]["labels"]["dry"] == "run"
    assert both.stored("node", "n1") == before
    made = both.ours("create", "-f", both.file(_pod("dry")), "--dry-run=server")
    assert made.out == "pod/dry created (server dry run)\n"
    assert both.ours("get", "pod", "dry").code == 1


def test_nodes_are_cordoned_in_the_same_words(both: Both) -> None:
    for command in ("cordon", "uncordon"):
        theirs = [both.kubectl(command, "n1"), both.kubectl(command, "n1")]
        both.kubectl("uncordon" if command == "cordon" else "cordon", "n1")
        ours = [both.ours(command, "n1").out.strip() for _ in range(2)]
        assert ours == theirs
    assert "unschedulable" not in both.stored("node", "n1").get("spec", {})


def test_an_object_is_deleted_and_gone(both: Both) -> None:
    both.kubectl("create", "-f", both.file(_pod("p")))
    result = both.ours("delete", "pod", "p", "--force", "--grace-period=0")
    assert (result.code, result.out) == (0, 'pod "p" force deleted\n')
    assert both.ours("get", "pod", "p").code == 1


def test_a_misspelt_field_is_refused_by_name(both: Both) -> None:
    wrong = _pod("wrong")
    wrong["spec"]["containers"][0]["imagee"] = "x"
    result = both.ours("create", "-f", both.file(wrong))
    assert result.code == 1
    assert 'unknown field "spec.containers[0].imagee"' in result.err
    assert result.err.count("\n") == 1


def test_a_node_and_a_pod_are_described(both: Both) -> None:
    node = both.ours("describe", "node", "n1")
    assert (node.code, node.err) == (0, "")
    assert "  HolderIdentity:  n1" in node.lines
    assert any(line.split()[:2] == ["default", "shown"] for line in node.lines)
    pod = both.ours("describe", "pod", "shown")
    assert (pod.code, pod.err) == (0, "")
    assert "Labels:       app=x" in pod.lines


def test_the_server_s_name_and_authority_are_verified(both: Both) -> None:
    stranger = both.ours("get", "nodes", "--certificate-authority", "/etc/hostname")
    assert stranger.code == 1
    assert "cannot use the authority /etc/hostname" in stranger.err
    other = both.ours("get", "nodes", "--tls-server-name", "example.com")
    assert other.code == 1
    assert "certificate verify failed" in other.err
    assert "--tls-server-name" in other.err
    assert both.ours("get", "nodes", "--insecure-skip-tls-verify").code == 0


def test_unknown_credentials_are_told_from_a_missing_server(both: Both, server: ApiServer) -> None:
    address = f"https://127.0.0.1:{server.port}"
    authority = str(server.directory / "pki" / "ca.crt")
    words = ("get", "pods", "--certificate-authority", authority, "--token", "unknown")
    refused = run_command(*words, "--server", address)
    assert refused.code == 1
    assert refused.err.startswith("error: Unauthorized; check the credentials in")
    away = run_command(*words, "--server", "https://127.0.0.1:1")
    assert away.err.startswith("error: cannot reach https://127.0.0.1:1: connection refused;")
