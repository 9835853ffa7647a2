"""Clients that are no part of the development environment, each with its real package.

`tools/setup test` installs them into a folder of their own. A client's program uses it as its users
do, and ends with 0 if what it met was right.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.apiserver import ApiServer, running

CLIENTS = Path(f"{sys.prefix}-clients")
PROGRAMS = Path(__file__).parent / "clients"

pytestmark = [pytest.mark.real, pytest.mark.seconds(25)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with running(tmp_path_factory.mktemp("clients"), "--serve-upstream-aliases") as server:
        yield server


def run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"


@pytest.mark.parametrize(
    ("package", "program"),
    [
        ("kr8s", "kr8s_client.py"),
        ("pykube", "pykube_client.py"),
        ("kopf", "kopf_operator.py"),
        ("kopf", "kopf_custom.py"),
        ("kubernetes_asyncio", "asyncio_client.py"),
    ],
)
def test_a_python_client_works(server: ApiServer, package: str, program: str) -> None:
    need(package)
    run(CLIENTS / "bin/python", PROGRAMS / program, server.directory / "kubeconfig")


def need(*packages: str) -> None:
    for package in packages:
        if not list(CLIENTS.glob(f"lib/python*/site-packages/{package}")):
            pytest.skip(f"needs {package} (tools/setup test)")


@pytest.mark.parametrize("major", ["3", "4"])
def test_helm_installs_upgrades_rolls_back_and_uninstalls_without_a_flag(
    server: ApiServer, major: str
) -> None:
    need("kr8s")
    if not (CLIENTS / "bin" / {"3": "helm", "4": "helm4"}[major]).exists():
        pytest.skip(f"needs Helm {major} (tools/setup test)")
    program = PROGRAMS / "helm_releases.py"
    kubeconfig = server.directory / "kubeconfig"
    run(CLIENTS / "bin/python", program, kubeconfig, PROGRAMS / "chart", major)


def test_the_javascript_client_works(server: ApiServer) -> None:
    node = shutil.which("node")
    if node is None or not (CLIENTS / "node_modules/@kubernetes/client-node").is_dir():
        pytest.skip("needs node and @kubernetes/client-node (tools/setup test)")
    program = PROGRAMS / "javascript_client.mjs"
    run(node, program, server.directory / "kubeconfig", CLIENTS)
