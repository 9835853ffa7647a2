from __future__ import annotations

import io
from pathlib import Path

import pytest

from orch.ctl import manifests
from orch.ctl.discovery import Resource
from orch.ctl.failures import CommandFailed
from orch.ctl.manifests import Manifest
from tests.orch.ctl.conftest import run_command

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\n"
PODS = Resource("", "v1", "pods", "pod", "Pod", True, (), ())
NODES = Resource("", "v1", "nodes", "node", "Node", False, (), ())


def _file(tmp_path: Path, text: str, name: str = "objects.yaml") -> str:
    (tmp_path / name).write_text(text)
    return str(tmp_path / name)


def test_documents_of_a_file_keep_their_lines(tmp_path: Path) -> None:
    text = f"# two pods\n---\n{POD % 'a'}---\n\n{POD % 'b'}--- # nothing\n"
    found = manifests.read([_file(tmp_path, text)])
    assert [m.name for m in found] == ["a", "b"]
    assert [m.place.rpartition(":")[2] for m in found] == ["3", "8"]


def test_separators_inside_values_are_none(tmp_path: Path) -> None:
    text = POD % "a" + "spec:\n  note: |\n    ---\n  other: a --- b\n"
    (found,) = manifests.read([_file(tmp_path, text)])
    assert found.record["spec"] == {"note": "---\n", "other": "a --- b"}


def test_a_list_stands_for_its_items(tmp_path: Path) -> None:
    text = '{"kind": "List", "apiVersion": "v1", "items": [{"kind": "Pod", "apiVersion": "v1"}]}'
    (found,) = manifests.read([_file(tmp_path, text, "list.json")])
    assert found.record == {"kind": "Pod", "apiVersion": "v1"}


def test_a_directory_stands_for_its_files_in_order(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.yml", "c.json"):
        _file(
            tmp_path, POD % name[0] if name != "c.json" else '{"kind":"K","apiVersion":"v"}', name
        )
    _file(tmp_path, "not an object", "readme.txt")
    assert [m.name for m in manifests.read([str(tmp_path)])] == ["a", "b", ""]


def test_directories_below_are_read_only_when_asked_for(tmp_path: Path) -> None:
    (tmp_path / "b" / "c").mkdir(parents=True)
    for name in ("a.yaml", "b/inner.yaml", "b/c/deep.yml", "d.yaml"):
        _file(tmp_path, POD % Path(name).stem, name)
    (tmp_path / "e").symlink_to(tmp_path, target_is_directory=True)
    assert [m.name for m in manifests.read([str(tmp_path)])] == ["a", "d"]
    found = manifests.read([str(tmp_path)], recursive=True)
    assert [m.name for m in found] == ["a", "deep", "inner", "d"]


def test_a_kustomization_is_refused_with_what_to_do() -> None:
    for command in ("create", "apply", "delete"):
        refused = run_command(command, "-f", "x", "-k", "overlays/lab")
        assert (refused.code, refused.err.count("\n")) == (2, 1)
        assert "kustomizations are not built here: pipe the output of" in refused.err


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(POD % "a"))
    (found,) = manifests.read(["-"])
    assert found.place == "standard input:1"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("kind: Pod\n", "objects.yaml:1: apiVersion is missing: set it"),
        ("\n\napiVersion: v1\n", "objects.yaml:3: kind is missing"),
        ("- a\n", "objects.yaml:1: an object must be a mapping"),
        (POD % "a" + "---\na: [\n", "objects.yaml:6: "),
        (POD % "a" + "kind: Node\n", "objects.yaml:4: kind: the key is given twice"),
        ('{"kind": "Pod",\n oops}', "objects.yaml:2: not valid JSON"),
        ("# nothing\n", "no object in it"),
        ("{" * 100_000, "objects.yaml"),
    ],
)
def test_what_is_no_object_is_named_with_its_line(tmp_path: Path, text: str, error: str) -> None:
    with pytest.raises(CommandFailed, match=error.replace("[", r"\[")):
        manifests.read([_file(tmp_path, text)])


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match=r"cannot read .*/gone.yaml: No such file"):
        manifests.read([str(tmp_path / "gone.yaml")])
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(CommandFailed, match="it is not UTF-8 text"):
        manifests.read([str(tmp_path / "binary.yaml")])


def test_an_address_is_refused_as_one() -> None:
    with pytest.raises(
        CommandFailed, match=r"^https://example\.org/a\.yaml: addresses are not fetched"
    ):
        manifests.read(["https://example.org/a.yaml"])


def test_the_namespace_is_the_object_s_own_or_the_one_in_use() -> None:
    bare = Manifest("f:1", {"metadata": {"name": "a"}})
    own = Manifest("f:1", {"metadata": {"name": "a", "namespace": "own"}})
    placed = manifests.placed
    assert placed(bare, PODS, "d", asked="").record["metadata"]["namespace"] == "d"
    assert placed(own, PODS, "d", asked="").record["metadata"]["namespace"] == "own"
    assert placed(own, PODS, "own", asked="own").record["metadata"]["namespace"] == "own"
    assert placed(bare, NODES, "d", asked="d") is bare
    with pytest.raises(CommandFailed, match="f:1: the object is in namespace 'own', not 'd'"):
        placed(own, PODS, "d", asked="d")
