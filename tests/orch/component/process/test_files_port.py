import os
from pathlib import Path

import pytest

from orch.component.process import files
from orch.component.process.daemon import SetupError


def test_the_port_replaces_what_was_there_and_leaves_nothing_beside(tmp_path: Path) -> None:
    path = tmp_path / "port"
    path.write_text("1\n")
    files.write_port(path, 10257)
    assert path.read_text() == "10257\n"
    assert list(tmp_path.iterdir()) == [path]


def test_without_a_file_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files.write_port(None, 10257)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "port"
    with pytest.raises(SetupError, match=f"cannot write --port-file {path}: No such file"):
        files.write_port(path, 10257)


def test_nothing_but_a_regular_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "port"
    os.mkfifo(path)
    with pytest.raises(SetupError, match=f"cannot write --port-file {path}: it is not a regular"):
        files.write_port(path, 10257)
    assert path.is_fifo()
