"""A real login manager: the agent delays the machine's shutdown until it has ended its pods."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orch.component.process import clock
from tools.testbed import installed
from tools.testbed.booted import BootedMachine, booted

pytestmark = pytest.mark.real

AGENT = "nodeagent.service"
CONFIG = """\
apiVersion: nodeagent.config.orch.io/v1beta1
kind: NodeAgentConfiguration
shutdownGracePeriod: 25s
shutdownGracePeriodCriticalPods: 5s
"""
CONTAINERD = 'version = 3\nimports = []\n[plugins."io.containerd.cri.v1.images"]\n'


@pytest.fixture
def guarded(machine_root: Path, tmp_path: Path) -> Iterator[BootedMachine]:
    """A machine of its own, since it will be shut down: containerd and a standalone agent run."""
    with booted(machine_root, tmp_path, installed.shown()) as machine:
        runtime = "unix:///run/containerd/containerd.sock"
        installed.install(
            machine,
            tmp_path / "pki",
            now=clock.utc_now(),
            runtime=runtime,
            standalone=True,
            more={
                "/etc/nodeagent/config.d/shutdown.conf": CONFIG,
                "/etc/containerd/config.toml": CONTAINERD,
            },
        )
        machine.check("mkdir", "-p", "/etc/systemd/logind.conf.d")
        machine.check("systemctl", "start", "containerd.service", AGENT)
        yield machine


def until(done: Callable[[], bool], what: str, within_s: float = 45.0) -> None:
    end_s = time.monotonic() + within_s
    while not done():
        assert time.monotonic() < end_s, f"not within {within_s:.0f} s: {what}"
        time.sleep(0.3)


def inhibitors(machine: BootedMachine) -> str:
    return machine.check("systemd-inhibit", "--list", "--no-pager", "--no-legend")


def test_the_agent_holds_the_shutdown_until_its_pods_have_ended(guarded: BootedMachine) -> None:
    until(lambda: "nodeagent" in inhibitors(guarded), "the agent's inhibitor")
    assert "delay" in inhibitors(guarded)
    drop_in = guarded.path("/etc/systemd/logind.conf.d/99-nodeagent.conf").read_text()
    assert "InhibitDelayMaxSec=25" in drop_in
    state = guarded.path("/var/lib/nodeagent/graceful_node_shutdown_state")
    # A second inhibitor holds the machine while the test looks at what the agent did.
    holder = subprocess.Popen(
        [*guarded.entered(), "systemd-inhibit", "--mode=delay", "--what=shutdown", "sleep", "120"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: "sleep" in inhibitors(guarded), "the second inhibitor")
        guarded.check("systemctl", "poweroff")
        until(
            lambda: state.exists() and json.loads(state.read_text())["endTime"] > 0,
            "the end of the node's shutdown in the state file",
        )
        for line in ("shuts down: ending the pods of this node", "the machine may shut down"):
            until(lambda line=line: line in guarded.journal(AGENT), f"{line!r} in the journal")
    finally:
        holder.kill()
        holder.wait()
