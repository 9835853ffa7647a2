from __future__ import annotations

from pathlib import Path

import pytest

from tests.orch.ctl.conftest import Result, run_command

TEXT = """
contexts:
- {name: work, context: {cluster: w, user: jane, namespace: shop}}
- {name: lab, context: {cluster: l, user: me}}
current-context: lab
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "config").write_text(TEXT)
    return tmp_path / "config"


def _config(file: Path, *words: str) -> Result:
    return run_command("config", *words, "--kubeconfig", str(file))


def test_contexts_are_listed_and_the_one_in_use_marked(file: Path) -> None:
    assert [line.split() for line in _config(file, "get-contexts").lines] == [
        ["CURRENT", "NAME", "CLUSTER", "AUTHINFO", "NAMESPACE"],
        ["*", "lab", "l", "me"],
        ["work", "w", "jane", "shop"],
    ]
    assert _config(file, "get-contexts", "-o", "name").lines == ["lab", "work"]
    assert len(_config(file, "get-contexts", "work", "--no-headers").lines) == 1


def test_another_context_is_used(file: Path) -> None:
    assert _config(file, "current-context").out == "lab\n"
    assert _config(file, "use-context", "work").out == 'Switched to context "work".\n'
    assert _config(file, "current-context").out == "work\n"


def test_a_context_gets_another_name(file: Path) -> None:
    result = _config(file, "rename-context", "lab", "laboratory")
    assert result.out == 'Context "lab" renamed to "laboratory".\n'
    assert _config(file, "current-context").out == "laboratory\n"
    assert _config(file, "get-contexts", "-o", "name").lines == ["laboratory", "work"]
    _config(file, "rename-context", "work", "w")
    assert _config(file, "current-context").out == "laboratory\n"
    taken = _config(file, "rename-context", "w", "laboratory")
    assert (taken.code, "there is a context 'laboratory' already" in taken.err) == (1, True)


def test_a_context_of_another_file_is_renamed_there(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = file.with_name("first")
    first.write_text("current-context: lab\n")
    monkeypatch.setenv("KUBECONFIG", f"{first}:{file}")
    assert run_command("config", "rename-context", "lab", "new").code == 0
    assert first.read_text() == "current-context: new\n"
    assert "name: new" in file.read_text()


def test_a_context_is_removed(file: Path) -> None:
    result = _config(file, "delete-context", "lab")
    assert result.out == f"deleted context lab from {file}\n"
    assert "this was the context in use" in result.err
    assert _config(file, "get-contexts", "-o", "name").lines == ["work"]


@pytest.mark.parametrize("command", ["use-context", "use", "delete-context", "get-contexts"])
def test_a_name_nearly_right_brings_up_the_right_one(file: Path, command: str) -> None:
    result = _config(file, command, "wrok")
    assert (result.code, file.read_text()) == (1, TEXT)
    assert result.err == "error: the kubeconfig has no context 'wrok': did you mean 'work'?\n"
    assert "there are work, lab" in _config(file, command, "zzz").err


def test_no_context_in_use_is_said(file: Path) -> None:
    file.write_text("contexts: []\n")
    assert "no context is in use" in _config(file, "current-context").err


def test_several_files_are_read_as_one_and_the_right_one_changed(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.write_text(
        "contexts: [{name: home, context: {cluster: h}}, {name: lab, context: {cluster: hidden}}]\n"
    )
    missing = tmp_path / "missing"
    monkeypatch.setenv("KUBECONFIG", f"{missing}:{file}:{other}")
    shown = run_command("config", "get-contexts", "--no-headers").lines
    assert [line.split()[:3] for line in shown] == [
        ["home", "h"], ["*", "lab", "l"], ["work", "w", "jane"],
    ]  # fmt: skip
    assert run_command("config", "set-context", "home", "--namespace", "shop").code == 0
    assert "namespace: shop" in other.read_text()
    assert run_command("config", "use-context", "home").code == 0
    assert "current-context: home" in file.read_text()
    assert run_command("config", "delete-context", "home").out.endswith(f"from {other}\n")
