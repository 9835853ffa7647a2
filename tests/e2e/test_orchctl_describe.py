"""`orchctl describe` beside an unmodified `kubectl` on the same server: the same text.

The texts change with kubectl's releases; `orchctl` follows the one named here.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import describedobjects as objects
from tests.e2e.apiserver import ApiServer, Kubectl, kubectls, running
from tests.e2e.orchctltable import by_own_names
from tests.orch.ctl.conftest import run_command

FOLLOWED = "1.33"


def followed() -> str | None:
    for binary in kubectls():
        done = subprocess.run([binary, "version", "--client", "-o", "json"], capture_output=True)
        found = json.loads(done.stdout)["clientVersion"]
        if f"{found['major']}.{found['minor']}".rstrip("+") == FOLLOWED:
            return binary
    return None


KUBECTL = followed()
pytestmark = pytest.mark.skipif(KUBECTL is None, reason=f"there is no kubectl {FOLLOWED}")


class World:
    """A server with objects, and the two commands as its administrator."""

    def __init__(self, server: ApiServer) -> None:
        assert KUBECTL is not None
        self.folder = server.directory
        self.kubeconfig = str(server.directory / "kubeconfig")
        self.kubectl = Kubectl(KUBECTL, Path(self.kubeconfig), server.directory / "cache")

    def make(self, *records: objects.Record) -> None:
        listed = {"apiVersion": "v1", "kind": "List", "items": list(records)}
        self.kubectl("create", "--validate=ignore", "-f", "-", stdin=json.dumps(listed))

    def happen_to(self, *words: str) -> None:
        about = json.loads(self.kubectl("get", *words, "-o", "json"))
        self.make(*(objects.event(about, n, **e) for n, e in enumerate(objects.EVENTS)))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with running(tmp_path_factory.mktemp("apiserver"), "--serve-upstream-aliases") as server:
        world = World(server)
        world.make(objects.NODE, objects.UNREADY, objects.SILENT, *objects.OTHERS)
        world.make(objects.POD, objects.BARE, objects.FAILED, objects.LEAVING)
        world.kubectl("delete", "pod", "leaving", "--wait=false")
        pods = "/api/v1/namespaces/default/pods"
        world.kubectl.set_status(f"{pods}/running", objects.RUNNING_STATUS)
        world.kubectl.set_status(f"{pods}/failed", objects.FAILED_STATUS)
        world.happen_to("pod", "running")
        world.happen_to("node", "n1")
        files = {"bare.json": objects.BARE, "settings.json": objects.OTHERS[0]}
        for name, record in files.items():
            (world.folder / name).write_text(json.dumps(record))
        yield world


SAME = [
    "pod running", "pod bare", "pod/failed", "pod leaving", "pods", "pods -A",
    "po running --show-events=false",
    "pods -l app=web", "pods -l app=none", "pods run", "pod nothing",
    "nodes", "node n1", "node n2", "node n3", "node n1 --show-events=false",
    "cm settings", "cm binary", "cm control", "secret password", "secret builder-token",
    "sa builder", "sa default", "ns team", "ns default",
    "role reader", "clusterrole scraper", "rolebinding readers", "clusterrolebinding scrapers",
    "clusterroles", f"lease n1 -n {objects.LEASE_NAMESPACE}", "event running.0", "events",
    "role/reader pod/bare", "pod running gone", "-f bare.json -f settings.json",
    "pods,cm -l app=web", "all", "leases -A", "events -A --show-events=false", "pods -n nowhere",
    "po,cm", "roles,rolebindings -A", "ns te", "no -l disk=ssd", "pods running bare", "wrong x",
]  # fmt: skip


@pytest.mark.parametrize("line", SAME)
def test_the_same_words_print_the_same(world: World, line: str) -> None:
    words = [
        str(world.folder / word) if word.endswith(".json") else word for word in shlex.split(line)
    ]
    command = world.kubectl.command("describe", *words)
    theirs = subprocess.run(command, capture_output=True, text=True, timeout=30)
    ours = run_command("describe", *words, "--kubeconfig", world.kubeconfig)
    assert ours.code == theirs.returncode, (ours.err, theirs.stderr)
    assert normal(ours.out) == normal(theirs.stdout)


def normal(text: str) -> list[str]:
    """Without blanks at the end of lines, ages as one word, groups by the names of this service."""
    aged = re.sub(r"(?<![=\w])(\d+[shdy](\d+[smhd])?|\d+m\d+s)\b", "AGE", by_own_names(text))
    return [line.rstrip() for line in aged.strip().splitlines()]
