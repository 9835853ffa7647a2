from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.http_api import HttpApi
from tests.orch.ctl.conftest import Orchctl, run_command

NODE = "/api/v1/nodes/n1"
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "finalizers": ["a", "b"], "labels": {"x": "y"}},
    "spec": {
        "containers": [
            {
                "name": "a",
                "image": "x",
                "ports": [
                    {"containerPort": 1, "protocol": "TCP"},
                    {"containerPort": 1, "protocol": "UDP"},
                ],
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
            },
            {"name": "b", "image": "z"},
        ],
        "volumes": [{"name": "v", "emptyDir": {}}],
        "tolerations": [{"key": "t"}],
    },
}


@pytest.fixture(autouse=True)
def _node(api: HttpApi) -> None:
    api.put(
        NODE, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "spec": {"a": 1}}
    )


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        ("strategic", '{"spec": {"a": 2}}'),
        ("merge", "spec: {a: 2}"),
        ("json", '[{"op": "replace", "path": "/spec/a", "value": 2}]'),
    ],
)
async def test_the_server_applies_a_patch_of_each_kind(
    orchctl: Orchctl, api: HttpApi, kind: str, patch: str
) -> None:
    result = await orchctl("patch", "node", "n1", "--type", kind, "-p", patch)
    assert (result.code, result.out) == (0, "node/n1 patched\n")
    (sent,) = api.sent("PATCH")
    prefix = "strategic-merge" if kind == "strategic" else f"{kind}"
    assert sent.headers["Content-Type"].startswith(f"application/{prefix}")
    assert sent.query == {"fieldManager": "cli-patch"}
    assert api.objects[NODE]["spec"] == {"a": 2}


async def test_a_patch_that_changes_nothing_says_so(orchctl: Orchctl) -> None:
    result = await orchctl("patch", "node/n1", "-p", '{"spec": {"a": 1}}')
    assert result.out == "node/n1 patched (no change)\n"


async def test_subresource_manager_and_server_dry_run_are_passed_on(
    orchctl: Orchctl, api: HttpApi
) -> None:
    words = ("--subresource", "status", "--field-manager", "me", "--dry-run", "server")
    result = await orchctl("patch", "node", "n1", "-p", "{}", *words)
    assert "(server dry run)" in result.out
    (sent,) = api.sent("PATCH")
    assert sent.path == f"{NODE}/status"
    assert sent.query == {"fieldManager": "me", "dryRun": "All"}


async def test_a_client_dry_run_shows_the_result_and_sends_nothing(
    orchctl: Orchctl, api: HttpApi
) -> None:
    words = ("-p", '{"spec": {"a": null}}', "--dry-run=client", "-o", "json")
    result = await orchctl("patch", "node", "n1", *words)
    assert json.loads(result.out)["spec"] == {}
    assert api.sent("PATCH") == []


async def test_a_patch_and_its_object_may_come_from_files(
    orchctl: Orchctl, api: HttpApi, tmp_path: Path
) -> None:
    (tmp_path / "patch.yaml").write_text("spec:\n  a: 5\n")
    (tmp_path / "node.yaml").write_text("apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n")
    files = ("-f", str(tmp_path / "node.yaml"), "--patch-file", str(tmp_path / "patch.yaml"))
    assert (await orchctl("patch", *files)).out == "node/n1 patched\n"
    assert api.objects[NODE]["spec"] == {"a": 5}


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ("node n1", 2, "give the patch: either -p PATCH or --patch-file FILE"),
        ("-p {}", 2, "name the objects: either TYPE NAME or -f FILE"),
        ("node n1 -p {} --local", 2, "--local patches files: name one with -f"),
        ("node n1 -p '{a: [}'", 1, "the patch is neither JSON nor YAML: --patch:1:"),
        (f"node n1 -p {'[' * 100_000}", 1, "nested too deeply"),
        ("node n1 --patch-file /proc/nothing", 1, "cannot read /proc/nothing: No such"),
        ("node n2 -p {}", 1, 'nodes "n2" not found'),
        ("""node n1 --type=json -p '[{"op":"remove","path":"/x"}]' --dry-run=client""", 1,
         "operation 0 (remove '/x'): there is no 'x'"),
        ("node n1 --type=merge -p [] --dry-run=client", 1, "must leave apiVersion"),
        ("""node n1 -p '{"$patch":"delete"}' --dry-run=client""", 1, "must leave apiVersion"),
        ("""node n1 -p '{"kind":null}' --dry-run=client""", 1, "must leave apiVersion"),
    ],
)  # fmt: skip
async def test_what_cannot_be_patched_is_explained(
    orchctl: Orchctl, words: str, code: int, text: str
) -> None:
    result = await orchctl("patch", *shlex.split(words))
    assert result.code == code
    assert text in result.err
    assert result.err.count("\n") == 1


def test_a_local_patch_needs_no_server(tmp_path: Path) -> None:
    (tmp_path / "pod.json").write_text(json.dumps(POD))
    words = ("patch", "--local", "-f", str(tmp_path / "pod.json"), "-p", '{"spec": {"a": 1}}')
    assert run_command(*words).out == "pod/p patched\n"
    assert json.loads(run_command(*words, "-o", "json").out)["spec"]["a"] == 1


KUBECTL = shutil.which("kubectl")


@pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")
@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        ("strategic", {"spec": {"containers": [{"name": "c", "image": "q"}]}}),
        ("strategic", {"spec": {"containers": [{"$patch": "replace"}, {"name": "n"}]}}),
        ("strategic", {"spec": {"containers": [
            {"name": "a", "env": [{"name": "C"}, {"name": "A", "value": "3"}],
             "ports": [{"containerPort": 1, "hostPort": 5}]}, {"name": "b", "$patch": "delete"}]}}),
        ("strategic", {"spec": {"tolerations": [{"key": "u"}], "volumes": [
            {"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]}}),
        ("strategic", {"metadata": {"labels": {"$patch": "replace", "a": "b"}, "finalizers": [
            "c", "b"], "$deleteFromPrimitiveList/finalizers": ["a"]}}),
        ("strategic", {"metadata": {"finalizers": ["c"],
                                    "$setElementOrder/finalizers": ["c", "b", "a"]}}),
        ("merge", {"metadata": {"finalizers": None, "labels": {"a": "b", "c": None}}}),
        ("json", [{"op": "move", "from": "/spec/containers/1", "path": "/spec/containers/0"},
                  {"op": "add", "path": "/metadata/labels", "value": {"a~b/c": "d"}},
                  {"op": "copy", "from": "/metadata/name", "path": "/metadata/labels/a~0b~1d"}]),
    ],
)  # fmt: skip
def test_local_patches_are_those_of_kubectl(tmp_path: Path, kind: str, patch: Any) -> None:
    (tmp_path / "pod.json").write_text(json.dumps(POD))
    words = ["patch", "--local", "-f", str(tmp_path / "pod.json"), "--type", kind]
    words += ["-p", json.dumps(patch), "-o", "json"]
    assert KUBECTL is not None
    theirs = subprocess.run([KUBECTL, *words], capture_output=True, text=True, check=True)
    assert json.loads(run_command(*words).out) == json.loads(theirs.stdout)


def test_a_custom_resource_takes_no_strategic_patch(tmp_path: Path) -> None:
    record = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}
    (tmp_path / "w.json").write_text(json.dumps(record))
    words = ("patch", "--local", "-f", str(tmp_path / "w.json"), "-p", '{"a":1}')
    refused = run_command(*words)
    assert refused.code == 1
    assert refused.err.startswith("error: Widget of example.com/v1 is a custom resource")
    assert "use --type merge or --type json" in refused.err
    assert run_command(*words, "--type", "merge", "-o", "jsonpath={.a}").out == "1"
