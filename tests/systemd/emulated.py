"""The services of the project on an emulated machine: installed, started, asked and awaited.

Everything is slow there.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from orch.component.process import clock
from tools.testbed import installed
from tools.testbed.machine import Machine
from tools.testbed.virtual import import_images

AGENT = "nodeagent.service"
CONTROL_PLANE = ("orch-apiserver.service", "orch-controller-manager.service")
HEAD = "apiVersion: nodeagent.config.orch.io/v1beta1\nkind: NodeAgentConfiguration\n"
# The units' own times are kept in test_booted.py, on a processor that is not emulated.
PATIENCE = {
    AGENT: "[Service]\nTimeoutStartSec=300\nWatchdogSec=60\n",
    **dict.fromkeys(CONTROL_PLANE, "[Service]\nTimeoutStartSec=300\n"),
}


def install(machine: Machine, scratch: Path, *, standalone: bool = False) -> None:
    """Programs, units with more time, credentials and images; `start` starts them."""
    import_images(machine)
    installed.install(
        machine,
        Path(tempfile.mkdtemp(dir=scratch)),  # another one for each boot
        now=clock.utc_now(),
        runtime="unix:///run/containerd/containerd.sock",
        standalone=standalone,
        more={
            f"/etc/systemd/system/{unit}.d/emulated.conf": times for unit, times in PATIENCE.items()
        },
    )


def start(machine: Machine, *units: str) -> None:
    """These services; without any, all three daemons."""
    machine.check("systemctl", "start", *(units or (*CONTROL_PLANE, AGENT)), timeout_s=400)


def until(done: Callable[[], bool], what: str, within_s: float = 240.0) -> None:
    """Wait for it; AssertionError when it takes too long."""
    end_s = time.monotonic() + within_s
    while not done():
        assert time.monotonic() < end_s, f"not within {within_s:.0f} s: {what}"
        time.sleep(3)  # to ask is work for the machine


def asked(machine: Machine, path: str) -> str:
    """What the API server answers."""
    return machine.check("page", "GET", f"{installed.APISERVER}{path}", timeout_s=180)
