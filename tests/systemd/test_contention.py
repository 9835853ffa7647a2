"""Conditions and taints by real pressure, behind the gate PSINodeCondition: set, cleared, not set.

A pod that writes all the time on an emulated machine with a kernel of its own, and one that its own
cpu limit throttles. Thresholds are lower than the defaults: daemons on an emulated processor are
seldom idle, and `full` is time in which nothing runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from nodeagent.node.rules.contention import KINDS, PODS_DISK
from tests.systemd import emulated as emulated_services
from tests.systemd.conftest import ROOT, or_skip
from tests.systemd.emulated import HEAD, asked, until
from tools.testbed import installed
from tools.testbed.machine import Machine
from tools.testbed.virtual import EmulatedMachine, ensure, virtual

pytestmark = [pytest.mark.soak, pytest.mark.timeout(2400)]

TAINT = "node.orch.io/disk-contention-pressure"
GATE = f"""{HEAD}featureGates: {{PSINodeCondition: true}}
nodeStatusReportFrequency: 10s
kubepodsDiskContentionThreshold: 5.0
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: localhost/busybox:1
    command: [sh, -c, "{command}"]
    resources: {{limits: {{cpu: {cpu}}}}}
    volumeMounts: [{{name: data, mountPath: /data}}]
  volumes:
  - {{name: data, emptyDir: {{}}}}
"""
WRITER = POD.format(
    name="writer",
    command="while :; do dd if=/dev/zero of=/data/block bs=1M count=8 conv=fsync; done",
    cpu="800m",
)
CAPPED = POD.format(name="capped", command="while :; do :; done", cpu="50m")
PRESSURE = "/sys/fs/cgroup/orchpods/{}.pressure"


@pytest.fixture(scope="module")
def machine(
    machine_root: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EmulatedMachine]:
    """The machine with all three daemons and no pod."""
    base, scratch = ROOT / ".test" / "testbed" / "vm", tmp_path_factory.mktemp("vm")
    or_skip(lambda: ensure(base, machine_root, installed.shown()))

    def start(machine: Machine) -> None:
        emulated_services.install(machine, scratch)
        machine.write("/etc/nodeagent/config.d/contention.conf", GATE, mode=0o600)
        emulated_services.start(machine)
        until(lambda: bool(conditions(machine)), "the node reports conditions")

    with virtual(base, scratch, start) as running:
        yield running


def node(machine: Machine) -> dict[str, Any]:
    return dict(json.loads(asked(machine, f"/api/v1/nodes/{installed.NODE}")))


def conditions(machine: Machine) -> dict[str, str]:
    """The status of each condition of the gate; none before the agent has reported them."""
    listed = node(machine)["status"].get("conditions", [])
    return {found["type"]: found["status"] for found in listed if found["type"] in KINDS}


def taints(machine: Machine) -> set[str]:
    return {taint["key"] for taint in node(machine)["spec"].get("taints") or []}


def readings(machine: Machine) -> float:
    """How often the agent looked whether its status changed."""
    page = asked(machine, f"/api/v1/nodes/{installed.NODE}/proxy/metrics")
    name = "nodeagent_status_reports_total"
    return sum(float(line.split()[-1]) for line in page.splitlines() if line.startswith(name))


def averages(machine: Machine, resource: str, kind: str) -> dict[str, float]:
    """What the kernel says of all pods: avg10, avg60 and so on, in percent."""
    lines = machine.check("cat", PRESSURE.format(resource)).splitlines()
    words = next(line for line in lines if line.startswith(kind)).split()[1:]
    return {name: float(value) for name, _, value in (word.partition("=") for word in words)}


def test_a_pod_that_its_own_limit_throttles_sets_nothing(machine: EmulatedMachine) -> None:
    machine.write("/etc/nodeagent/manifests/capped.yaml", CAPPED, mode=0o600)
    until(
        lambda: averages(machine, "cpu", "full").get("avg60", 0.0) >= 30,
        "the kernel calls it pressure",
        within_s=400,
    )
    looked = readings(machine)
    until(lambda: readings(machine) >= looked + 3, "the agent has seen it", within_s=400)
    assert set(conditions(machine).values()) == {"False"}
    assert TAINT not in taints(machine)
    machine.check("rm", "/etc/nodeagent/manifests/capped.yaml")


def test_a_writer_sets_the_condition_and_the_taint_until_it_is_gone(
    machine: EmulatedMachine,
) -> None:
    machine.write("/etc/nodeagent/manifests/writer.yaml", WRITER, mode=0o600)
    until(lambda: conditions(machine)[PODS_DISK] == "True", "the condition is set", within_s=400)
    seen = averages(machine, "io", "full")
    assert seen["avg60"] >= 3, "by what the kernel says, a moment later"
    until(lambda: TAINT in taints(machine), "the taint is set")
    machine.check("rm", "/etc/nodeagent/manifests/writer.yaml")
    until(lambda: conditions(machine)[PODS_DISK] == "False", "it is cleared", within_s=600)
    assert averages(machine, "io", "full")["avg60"] < 5
    until(lambda: TAINT not in taints(machine), "the taint is gone")
