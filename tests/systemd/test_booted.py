"""The three daemons as services of a real systemd: starting, watchdog, stopping.

The machine shares this kernel (tools/testbed/booted.py); one boot serves all tests of the file. A
test starts what it needs and need not start again what it stops: a daemon's start is what costs.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.troubleshooting import UNIT, says
from tools.testbed import installed
from tools.testbed.booted import BootedMachine

pytestmark = [pytest.mark.real, pytest.mark.seconds(40)]

AGENT = "nodeagent.service"
DAEMONS = ("orch-apiserver.service", "orch-controller-manager.service", AGENT)
DROP_INS = "/etc/nodeagent/config.d"
HEAD = "apiVersion: nodeagent.config.orch.io/v1beta1\nkind: NodeAgentConfiguration\n"
DROP_IN = f"/run/systemd/system/{AGENT}.d/test.conf"

# The agent with one fault: its sampling loop hangs after the first reading.
STALLED = """
import asyncio, sys
from nodeagent.main import main
from nodeagent.stats.sampler import Sampler
step = Sampler.step
async def once(self):
    if self.latest is not None:
        await asyncio.Event().wait()
    await step(self)
Sampler.step = once
sys.exit(main())
"""


def until(done: Callable[[], bool], what: str, within_s: float = 45.0) -> None:
    end_s = time.monotonic() + within_s
    while not done():
        assert time.monotonic() < end_s, f"not within {within_s:.0f} s: {what}"
        time.sleep(0.3)


@pytest.fixture(scope="module")
def running(machine: BootedMachine) -> BootedMachine:
    """The machine with the API server and the controller manager started."""
    for unit in DAEMONS[:2]:
        machine.check("systemctl", "start", unit)
    return machine


@pytest.fixture(scope="module")
def quick_watchdog(running: BootedMachine) -> BootedMachine:
    """WatchdogSec short enough to be waited for; RestartSec too. The last tests use it."""
    running.write(DROP_IN, "[Service]\nWatchdogSec=4\nRestartSec=100ms\nTimeoutAbortSec=2\n")
    running.check("systemctl", "daemon-reload")
    running.check("systemctl", "start", DAEMONS[0])
    running.check("systemctl", "restart", AGENT)
    return running


def main_pid(machine: BootedMachine, unit: str = AGENT) -> int:
    return int(machine.show(unit, "MainPID"))


def host_pid(machine: BootedMachine, unit: str = AGENT) -> int:
    """The process id of the service as this machine, the tests' own, sees it."""
    inner = str(main_pid(machine, unit))
    cgroup = machine.show(unit, "ControlGroup")
    for line in Path(f"/proc/{machine.init}/cgroup").read_text().splitlines():
        if line.startswith("0::"):
            top = Path(line[3:].removesuffix("/init.scope"))
    for root in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")):
        procs = root / str(top).lstrip("/") / cgroup.lstrip("/") / "cgroup.procs"
        if procs.exists():
            for pid in procs.read_text().split():
                status = Path(f"/proc/{pid}/status").read_text()
                ids = next(line for line in status.splitlines() if line.startswith("NSpid:"))
                if ids.split()[-1] == inner:
                    return int(pid)
    raise AssertionError(f"process {inner} of {unit} is not found")


def got(machine: BootedMachine, *words: str) -> dict[str, dict[str, Any]]:
    """An object at the API server; its parts are empty before it is there."""
    kubeconfig = f"--kubeconfig={installed.ADMIN_KUBECONFIG}"
    done = machine.run("orchctl", kubeconfig, "get", *words, "-o", "json")
    return defaultdict(dict, json.loads(done.stdout) if done.returncode == 0 else {})


def test_the_daemons_start_as_notifying_services(running: BootedMachine) -> None:
    running.check("systemctl", "start", AGENT)
    for unit in DAEMONS:
        assert running.show(unit, "ActiveState") == "active", running.journal(unit)
        assert running.show(unit, "Type") == "notify"
        assert running.show(unit, "NRestarts") == "0", running.journal(unit)
    assert running.show(AGENT, "StatusText") == "running"


def test_the_node_is_reported_by_the_agent_in_its_sandbox(running: BootedMachine) -> None:
    running.check("systemctl", "start", AGENT)
    until(
        lambda: "memory" in got(running, "node", installed.NODE)["status"].get("capacity", {}),
        "the node with its capacity at the API server",
    )
    lease = ("lease", installed.NODE, "-n", "orch-node-lease")
    until(lambda: "holderIdentity" in got(running, *lease)["spec"], "the Lease of the node")
    assert "Operation not permitted" not in running.journal(AGENT)


def test_the_api_server_gives_pods_its_authority_without_a_drop_in(
    running: BootedMachine,
) -> None:
    authority = running.path("/etc/orch-apiserver/ca.crt").read_text()
    published = ("configmap", "kube-root-ca.crt", "-n", "default")
    until(
        lambda: got(running, *published)["data"].get("ca.crt") == authority,
        "the authority for pods",
    )


def test_a_reload_takes_what_is_good_and_names_what_is_not(running: BootedMachine) -> None:
    running.check("systemctl", "start", AGENT)
    first, drop_in = main_pid(running), f"{DROP_INS}/reloaded.conf"
    try:
        running.write(drop_in, f"{HEAD}logging: {{level: debug}}\nport: 10251\n")
        running.check("systemctl", "reload", AGENT)
        until(
            lambda: (
                "logging.level changed" in running.journal(AGENT)
                and "these need a restart to change: port" in running.journal(AGENT)
            ),
            "what was reloaded and what was not, in the journal",
        )
        running.write(drop_in, f"{HEAD}logging: {{level: loud}}\n")
        running.check("systemctl", "reload", AGENT)
        until(
            lambda: "the last reload failed" in running.show(AGENT, "StatusText"),
            "the failed reload in STATUS",
        )
        mistake = f"{drop_in}:3: logging.level"
        until(lambda: mistake in running.journal(AGENT), "the mistake in the journal")
    finally:
        running.path(drop_in).unlink()
    running.check("systemctl", "reload", AGENT)
    until(lambda: running.show(AGENT, "StatusText") == "running", "the mended configuration")
    assert main_pid(running) == first
    assert running.show(AGENT, "ActiveState") == "active"


def test_a_mistake_in_the_configuration_stands_in_the_journal(running: BootedMachine) -> None:
    mistake = f"{DROP_INS}/mistake.conf"
    running.write(mistake, f"{HEAD}port: many\n")
    try:
        assert running.run("systemctl", "restart", AGENT).returncode != 0
        until(lambda: f"{mistake}:3: port" in running.journal(AGENT), "the mistake in the journal")
    finally:
        running.path(mistake).unlink()
        running.check("systemctl", "reset-failed", AGENT)


@pytest.mark.parametrize("unit", DAEMONS[::-1])
def test_a_stop_is_quick_and_clean(running: BootedMachine, unit: str) -> None:
    running.check("systemctl", "start", unit)
    began_s = time.monotonic()
    running.check("systemctl", "stop", unit)
    assert time.monotonic() - began_s < 30
    assert running.show(unit, "Result") == "success", running.journal(unit)
    assert running.show(unit, "ExecMainStatus") == "0"


def test_a_unit_that_lacks_a_file_is_skipped_and_its_journal_names_the_file(
    running: BootedMachine,
) -> None:
    server, key = DAEMONS[0], "/etc/orch-apiserver/tls.key"
    running.check("systemctl", "stop", server)
    running.check("mv", key, f"{key}.away")
    try:
        running.check("systemctl", "start", server)
        assert running.show(server, "ActiveState") == "inactive"
        until(lambda: says(running.journal(server), UNIT), "the file in the journal")
    finally:
        running.check("mv", f"{key}.away", key)


def test_a_dead_api_server_is_no_reason_to_restart(quick_watchdog: BootedMachine) -> None:
    first = main_pid(quick_watchdog)
    quick_watchdog.check("systemctl", "stop", "orch-apiserver.service")
    time.sleep(9)  # more than two watchdog periods
    assert main_pid(quick_watchdog) == first
    assert quick_watchdog.show(AGENT, "NRestarts") == "0"
    assert quick_watchdog.show(AGENT, "ActiveState") == "active"


def test_a_hung_agent_is_killed_by_the_watchdog_and_started_again(
    quick_watchdog: BootedMachine,
) -> None:
    first = main_pid(quick_watchdog)
    os.kill(host_pid(quick_watchdog), signal.SIGSTOP)
    until(
        lambda: (
            main_pid(quick_watchdog) not in (0, first)
            and quick_watchdog.show(AGENT, "ActiveState") == "active"
        ),
        "another agent after the watchdog's kill",
    )
    until(lambda: "Watchdog timeout" in quick_watchdog.journal(AGENT), "the kill in the journal")


def test_a_stalled_check_is_named_before_the_agent_is_started_again(
    quick_watchdog: BootedMachine,
) -> None:
    quick_watchdog.write("/opt/stalled.py", STALLED)
    script = installed.wrapper("/opt/stalled.py")
    quick_watchdog.write("/usr/bin/nodeagent-stalled", script, mode=0o755)
    quick_watchdog.write(f"{DROP_INS}/quick.conf", f"{HEAD}housekeepingInterval: 1s\n")
    original = quick_watchdog.path(DROP_IN).read_text()
    command = quick_watchdog.path(f"/usr/lib/systemd/system/{AGENT}").read_text()
    start = next(line for line in command.splitlines() if line.startswith("ExecStart="))
    stalled = start.replace("/usr/bin/nodeagent ", "/usr/bin/nodeagent-stalled ")
    try:
        quick_watchdog.write(DROP_IN, f"{original}ExecStart=\n{stalled}\n")
        quick_watchdog.check("systemctl", "daemon-reload")
        quick_watchdog.check("systemctl", "restart", AGENT)
        restarts = int(quick_watchdog.show(AGENT, "NRestarts"))
        until(
            lambda: "sampling: " in quick_watchdog.show(AGENT, "StatusText"),
            "the stalled check in STATUS",
        )
        until(lambda: int(quick_watchdog.show(AGENT, "NRestarts")) > restarts, "the restart")
    finally:
        quick_watchdog.path(f"{DROP_INS}/quick.conf").unlink()
        quick_watchdog.write(DROP_IN, original)
        quick_watchdog.check("systemctl", "daemon-reload")
    withheld = "withholding the watchdog keep-alive: sampling: "
    until(lambda: withheld in quick_watchdog.journal(AGENT), "the stalled check in the journal")
