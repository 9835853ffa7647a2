"""The rpm packages beside Debian's of the same tree: files, scripts and what they depend on."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.systemd.page import build
from tools.packages.contents import PACKAGES

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

NAMES = [package.name for package in PACKAGES]
UNITS = {
    "nodeagent": ("nodeagent-mounts.socket", "nodeagent.service"),
    "orch-server": (
        "orch-apiserver.service", "orch-controller-manager.service", "orch-apiserver-renew.timer",
    ),
}  # fmt: skip
# What each system adds on its own: Debian's changelog and copyright.
OF_DEBIAN = ("changelog", "changelog.Debian", "copyright", "lintian/overrides")


@pytest.fixture(scope="module")
def rpms(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The packages' files by their names."""
    if shutil.which("rpmbuild") is None:
        pytest.skip("rpmbuild is missing")
    into = tmp_path_factory.mktemp("rpms")
    build("rpm", "--out", str(into))
    return {asked(path, "--qf", "%{NAME}"): path for path in into.rglob("*.rpm")}


def asked(rpm: Path, *words: str) -> str:
    command = ["rpm", "-qp", *words, str(rpm)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def files_of_rpm(rpm: Path) -> set[str]:
    """Files and links, directories left out; a page counts the same whether it is compressed."""
    listed = asked(rpm, "--qf", "[%{FILEMODES:perms} %{FILENAMES}\\n]").splitlines()
    return {plain(line.split(" ", 1)[1]) for line in listed if not line.startswith("d")}


def files_of_deb(deb: Path) -> set[str]:
    command = ["sh", "-c", f"dpkg-deb --fsys-tarfile '{deb}' | tar -t"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
    return {plain(f"/{os.path.normpath(line)}") for line in listed.splitlines() if line[-1] != "/"}


def plain(path: str) -> str:
    return path.removesuffix(".gz")


def of_debian(path: str) -> bool:
    return path.endswith(OF_DEBIAN) and "/usr/share/" in path and "/lib/" not in path


@pytest.mark.parametrize("name", NAMES)
def test_it_has_the_files_that_debian_s_has(
    rpms: dict[str, Path], packages: Path, name: str
) -> None:
    ours = files_of_rpm(rpms[name])
    debian = files_of_deb(next(packages.glob(f"{name}_*.deb")))
    assert len(ours) > 50
    assert sorted(path for path in debian - ours if not of_debian(path)) == []
    assert sorted(ours - debian) == []


@pytest.mark.parametrize("name", UNITS)
def test_its_scripts_start_stop_and_renew_the_units(rpms: dict[str, Path], name: str) -> None:
    scripts = asked(rpms[name], "--scripts")
    parts = {one.split(" scriptlet", 1)[0]: one for one in split_scripts(scripts)}
    for unit in UNITS[name]:
        assert unit in parts["postinstall"]
        assert unit in parts["preuninstall"]
    assert "restart" in parts["posttrans"]
    for script in parts.values():
        body = script.partition("\n")[2]
        done = subprocess.run(["sh", "-n"], input=body, text=True, capture_output=True, timeout=60)
        assert done.returncode == 0, (body, done.stderr)


def split_scripts(text: str) -> list[str]:
    """Each with its heading, `postinstall scriptlet (using /bin/sh):`."""
    found: list[str] = []
    for line in text.splitlines(keepends=True):
        if " scriptlet (using" in line:
            found.append(line)
        elif found:
            found[-1] += line
    return found


@pytest.mark.parametrize("name", NAMES)
def test_it_asks_for_a_python_that_it_has_libraries_for_and_nothing_else(
    rpms: dict[str, Path], name: str
) -> None:
    asks = asked(rpms[name], "--requires").splitlines()
    kept = {line for line in asks if not line.startswith(("rpmlib(", "/bin/sh", "config("))}
    pythons = "((python3 >= 3.11 with python3 < 3.12) or (python3 >= 3.13 with python3 < 3.15))"
    assert kept == {pythons}


def test_the_agent_s_settings_are_the_operator_s(rpms: dict[str, Path]) -> None:
    assert asked(rpms["nodeagent"], "-c").split() == ["/etc/nodeagent/config.yaml"]
    modes = asked(rpms["nodeagent"], "--qf", "[%{FILENAMES} %{FILEMODES:perms}\\n]").splitlines()
    assert "/etc/nodeagent/config.yaml -rw-------" in modes
    assert "/etc/nodeagent drwx------" in modes
