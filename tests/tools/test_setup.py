"""What `tools/setup` says of packages that it could not install, with an apt-get made for it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.fakes.programs import make_tool

TOOL = Path(__file__).resolve().parents[2] / "tools" / "setup"
UNKNOWN = 'case "$*" in *install*prometheus*) echo "E: no such package" >&2; exit 100;; esac'
FAILED = (
    "setup: cannot install prometheus prometheus-node-exporter: apt-get says above why; going on,"
    " without the tests that need them"
)


def set_up(folder: Path, *, apt_get: str, user: int = 0) -> list[str]:
    """What `tools/setup test` says on a machine without any of the packages."""
    make_tool(folder, "apt-get", apt_get)
    make_tool(folder, "dpkg-query", "exit 1")
    make_tool(folder, "id", f"echo {user}")
    done = subprocess.run(
        [TOOL, "test", "python3", folder / "venv"],
        env={"PATH": f"{folder}:{os.environ['PATH']}", "POLICY_RC_D": str(folder / "policy")},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == 0
    assert not (folder / "policy").exists()
    return done.stderr.splitlines()


@pytest.mark.parametrize("update", ["", 'case "$*" in *update*) exit 100;; esac'])
def test_an_optional_package_that_cannot_be_installed_is_reported_in_a_line(
    tmp_path: Path, update: str
) -> None:
    said = set_up(tmp_path, apt_get=f"{update}\n{UNKNOWN}")
    assert [line for line in said if "installing" not in line] == ["E: no such package", FAILED]
    assert any("installing etcd-server" in line for line in said), "the others are tried"


def test_without_root_each_names_its_requirement(tmp_path: Path) -> None:
    said = set_up(tmp_path, apt_get="exit 1", user=1000)
    assert "setup: cannot install zsh fish: that takes root and apt-get; going on," in said[2]
    assert all("without the tests that need them" in line for line in said)
