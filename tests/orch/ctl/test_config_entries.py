from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.orch.ctl.conftest import Result, run_command

TEXT = """
clusters: [{name: lab, cluster: {}}, {name: far, cluster: {}}]
users: [{name: me, user: {token: t}}, {name: jane, user: {}}]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "config").write_text(TEXT)
    return tmp_path / "config"


def _config(file: Path, *words: str) -> Result:
    return run_command("config", *words, "--kubeconfig", str(file))


def test_the_names_of_entries_are_listed(file: Path) -> None:
    assert _config(file, "get-clusters").out == "NAME\nfar\nlab\n"
    assert _config(file, "get-users").out == "NAME\njane\nme\n"


@pytest.mark.parametrize(
    ("kind", "name", "left"), [("cluster", "lab", ["far"]), ("user", "me", ["jane"])]
)
def test_an_entry_is_removed(file: Path, kind: str, name: str, left: list[str]) -> None:
    result = _config(file, f"delete-{kind}", name)
    assert result.out == f"deleted {kind} {name} from {file}\n"
    data = yaml.safe_load(file.read_text())
    assert [entry["name"] for entry in data[f"{kind}s"]] == left


@pytest.mark.parametrize(("kind", "near", "meant"), [("cluster", "lub", "lab"),
                                                     ("user", "jan", "jane")])  # fmt: skip
def test_a_name_nearly_right_changes_nothing(file: Path, kind: str, near: str, meant: str) -> None:
    result = _config(file, f"delete-{kind}", near)
    assert (result.code, file.read_text()) == (1, TEXT)
    assert f"no {kind} {near!r}: did you mean {meant!r}?" in result.err
