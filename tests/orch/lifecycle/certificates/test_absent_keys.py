"""The controller manager where the keys of the authority are kept elsewhere."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from orch.component.process import clock
from orch.component.process.daemon import SetupError
from orch.lifecycle import main, options
from orch.server import authority


def read_files(folder: Path) -> main.Files:
    """With the flags that the unit gives."""
    pairs = {"cluster-signing": "ca", "cluster-signing-nodeagent-serving": "nodeagent-ca"}
    signing = [
        f"--{flag}-{kind}-file={folder}/{name}.{ending}"
        for flag, name in pairs.items()
        for kind, ending in (("cert", "crt"), ("key", "key"))
    ]
    kubeconfig = f"--kubeconfig={folder}/controller-manager.kubeconfig"
    return main.read_files(options.parse([kubeconfig, *signing]))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    authority.make(tmp_path, ["api.example"], 6443, 3600.0, clock.utc_now())
    return tmp_path


@pytest.mark.parametrize("name", ["ca.key", "nodeagent-ca.key"])
def test_without_a_key_none_are_issued_and_one_line_names_it(
    folder: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / name).write_text("none")
    with caplog.at_level(logging.WARNING):
        assert read_files(folder).signing is None
    assert [f"there is no {name}: put it" in line for line in caplog.messages] == [True]


def test_with_all_keys_certificates_are_issued(folder: Path) -> None:
    assert read_files(folder).signing is not None


def test_what_is_no_key_is_refused(folder: Path) -> None:
    (folder / "ca.key").write_text("none of it")
    with pytest.raises(SetupError, match="ca"):
        read_files(folder)
