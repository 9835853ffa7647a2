"""Every command of the table in docs/kubectl.md, run with the kubectls that the machine has."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import pytest

from orch.component.pki import Authority, Subject
from tests.e2e import kubectltable, miniagent
from tests.e2e.apiserver import ApiServer, Kubectl, kubectls, running
from tests.e2e.kubectlcases import CASES
from tests.e2e.kubectlworld import BUSY, VERSIONS, Case, World


@cache
def version_of(binary: str) -> str:
    """`1.33`."""
    done = subprocess.run(
        [binary, "version", "--client", "-o", "json"], capture_output=True, text=True, timeout=30
    )
    version = json.loads(done.stdout)["clientVersion"]["gitVersion"]
    return ".".join(version.removeprefix("v").split(".")[:2])


def tried() -> list[object]:
    """One binary of each version in the table; all but the ends are for `make soak`."""
    by_version = {version_of(binary): binary for binary in reversed(kubectls())}
    known = sorted((v for v in by_version if v in VERSIONS), key=lambda v: int(v.partition(".")[2]))
    ends = (known[0], known[-1]) if known else ()
    return [
        pytest.param(by_version[v], id=v, marks=() if v in ends else pytest.mark.soak)
        for v in known
    ]


pytestmark = [
    pytest.mark.skipif(not tried(), reason="no kubectl of a version in the table"),
    pytest.mark.seconds(65),
]


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int, list]]:
    """The directory with the cluster's authority, the agent's port, the pods that are busy."""
    directory = tmp_path_factory.mktemp("kubectl")
    authority = Authority(directory / "pki", now=datetime.now(UTC))
    names = tuple(f"node-{version.replace('.', '-')}" for version in VERSIONS)
    pair = authority.issue(Subject("agent", "agent", (), names))
    with miniagent.serving(pair) as (port, busy):
        yield directory, port, busy


@pytest.fixture(scope="module")
def server(agent: tuple[Path, int, list]) -> Iterator[ApiServer]:
    directory = agent[0]
    ca_file = Authority(directory / "pki", now=datetime.now(UTC)).ca_file
    arguments = (
        "--serve-upstream-aliases", "--node-proxy-allow-loopback",
        f"--nodeagent-certificate-authority={ca_file}",
    )  # fmt: skip
    with running(directory, *arguments) as server:
        yield server


@pytest.fixture(scope="module", params=tried())
def world(
    request: pytest.FixtureRequest, server: ApiServer, agent: tuple[Path, int, list]
) -> World:
    name = version_of(request.param).replace(".", "-")
    cache_dir = server.directory / f"cache-{name}"
    kubectl = Kubectl(request.param, server.directory / "kubeconfig", cache_dir)
    made = World(kubectl, f"v-{name}", f"node-{name}", server)
    kubectl("create", "namespace", made.namespace)
    node = {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": made.node},
        "status": {
            "capacity": {"cpu": "1", "memory": "1Gi"}, "allocatable": {"cpu": "1", "memory": "1Gi"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "AgentReady"}],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"nodeagentEndpoint": {"Port": agent[1]}},
        },
    }  # fmt: skip
    kubectl("create", "-f", "-", stdin=json.dumps(node))
    agent[2].append((made.namespace, made.made(BUSY)))
    return made


@pytest.mark.parametrize("case", [c for c in CASES if c.run], ids=lambda case: case.command)
def test_a_command_does_what_the_table_says(world: World, case: Case) -> None:
    assert case.run is not None
    if case.works_with(version_of(world.kubectl.binary)):
        case.run(world)
    else:
        with pytest.raises(AssertionError):
            case.run(world)


def test_the_page_says_what_is_run() -> None:
    assert kubectltable.PAGE.read_text() == kubectltable.render(), (
        "write it anew: python -m tests.e2e.kubectltable"
    )
