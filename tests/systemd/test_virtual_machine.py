"""The agent installed as a service of a machine with a kernel of its own: cgroup v2, PSI, CRIU.

One boot serves all tests, in their order. The processor is emulated, and every second of it costs
ten of another: the agent runs alone (test_booted.py has the servers, test_contention.py both), and
nothing here asserts how quick something is, but for limits that systemd itself sets.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.systemd import emulated as emulated_services
from tests.systemd.conftest import ROOT, or_skip
from tests.systemd.emulated import AGENT, HEAD, until
from tools.testbed import installed
from tools.testbed.machine import Machine
from tools.testbed.virtual import EmulatedMachine, ensure, virtual

pytestmark = [pytest.mark.real, pytest.mark.timeout(900), pytest.mark.seconds(100)]

POD = f"busy-{installed.NODE}"
SERVED = "https://127.0.0.1:10250"
MANIFESTS = "/etc/nodeagent/manifests"
DATA = "/var/lib/nodeagent/pods/*/volumes/empty-dir/data"  # of the pod, as its machine sees it
CGROUPS = "/sys/fs/cgroup"
DROP_IN = "/etc/nodeagent/config.d/reloaded.conf"
# Each container rests until its test asks for what it shows: two wait at a pipe.
MANIFEST = """
apiVersion: v1
kind: Pod
metadata: {name: busy}
spec:
  containers:
  - name: main
    image: localhost/busybox:1
    command:
    - sh
    - -c
    - >-
      i=0; while :; do echo $((i=i+1)) >> /data/count;
      while [ -e /data/burn ]; do :; done; sleep 1; done
    resources: {limits: {cpu: 200m, memory: 64Mi}}
    volumeMounts: [{name: data, mountPath: /data}]
  - name: hungry
    image: localhost/busybox:1
    command:
    - sh
    - -c
    - >-
      mkfifo /data/eat;
      while read -r _ < /data/eat; do dd if=/dev/zero of=/dev/shm/block bs=1M count=8; done
    volumeMounts: [{name: data, mountPath: /data}]
  - name: reader
    image: localhost/busybox:1
    command:
    - sh
    - -c
    - >-
      dd if=/dev/zero of=/data/block bs=1M count=2 conv=fsync; mkfifo /data/read;
      while read -r _ < /data/read; do dd if=/data/block of=/dev/null bs=64k iflag=direct; done
    volumeMounts: [{name: data, mountPath: /data}]
  volumes:
  - name: data
    emptyDir: {}
"""

VOLUMES = """
apiVersion: v1
kind: Pod
metadata: {name: volumes, labels: {key: s3cret}}
spec:
  restartPolicy: Never
  securityContext: {fsGroup: 1234}
  containers:
  - name: main
    image: localhost/busybox:1
    command:
    - sh
    - -c
    - >-
      (while read -r _ place kind _; do echo "$place $kind"; done < /proc/mounts; cat /keys/key)
      | grep -E '^/(memory|keys|part) |s3cret' > /dev/termination-log
    volumeMounts:
    - {name: memory, mountPath: /memory}
    - {name: keys, mountPath: /keys}
    - {name: disk, mountPath: /part, subPath: a/b}
  volumes:
  - {name: memory, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
  - name: keys
    projected:
      sources:
      - downwardAPI: {items: [{path: key, fieldRef: {fieldPath: "metadata.labels['key']"}}]}
  - {name: disk, emptyDir: {}}
"""


@pytest.fixture(scope="module")
def emulated(
    machine_root: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EmulatedMachine]:
    """The machine with the agent started and one pod running."""
    base = ROOT / ".test" / "testbed" / "vm"
    or_skip(lambda: ensure(base, machine_root, installed.shown()))
    scratch = tmp_path_factory.mktemp("vm")
    with virtual(base, scratch, lambda machine: start(machine, scratch)) as running:
        yield running


@pytest.fixture
def guest(emulated: EmulatedMachine) -> Machine:
    """The machine, booted again if it ended in the test before, which then has failed."""
    emulated.ensure_running()
    return emulated


def start(machine: Machine, scratch: Path) -> None:
    """The agent alone, for it needs no API server to run static pods and to answer for them."""
    emulated_services.install(machine, scratch, standalone=True)
    machine.write(f"{MANIFESTS}/busy.yaml", MANIFEST, mode=0o600)
    emulated_services.start(machine, AGENT)
    until(lambda: status(machine, POD).get("phase") == "Running", "the pod runs")


def page(machine: Machine, path: str, method: str = "GET", timeout_s: float = 60.0) -> str:
    """A page of the agent."""
    return machine.check("page", method, f"{SERVED}{path}", timeout_s=timeout_s)


def status(machine: Machine, name: str) -> dict[str, Any]:
    """The status of a pod, {} before the agent has one."""
    pods = json.loads(page(machine, "/pods"))["items"]
    return next((pod["status"] for pod in pods if pod["metadata"]["name"] == name), {})


def container(machine: Machine, name: str = "main") -> dict[str, Any]:
    """A container of the summary."""
    summary = json.loads(page(machine, "/stats/summary"))
    pod = next(pod for pod in summary["pods"] if pod["podRef"]["name"] == POD)
    found: dict[str, Any] = next(one for one in pod["containers"] if one["name"] == name)
    return found


def cgroup(machine: Machine, name: str = "main") -> str:
    """The directory of a container's cgroup."""
    statuses = status(machine, POD)["containerStatuses"]
    ids = {status["name"]: status["containerID"].partition("://")[2] for status in statuses}
    found = machine.check("find", f"{CGROUPS}/orchpods", "-type", "d", "-name", ids[name])
    return found.strip()


def wake(machine: Machine, pipe: str) -> None:
    """Let the container go on that waits at this pipe."""
    command = f"for pipe in {DATA}/{pipe}; do test -p $pipe; echo > $pipe; done"
    machine.check("sh", "-euc", command)


def process(machine: Machine, directory: str) -> int:
    """The first process of a container, by its cgroup; others come and go."""
    return min(int(pid) for pid in machine.check("cat", f"{directory}/cgroup.procs").split())


def counted(machine: Machine) -> int:
    """How far the container `main` has counted."""
    return int(machine.check("sh", "-c", f"tail -n 1 {DATA}/count"))


def counters(machine: Machine, path: str) -> dict[str, int]:
    lines = machine.check("cat", path).splitlines()
    return {key: int(value) for key, value in (line.split() for line in lines)}


def pressure_usec(machine: Machine, path: str) -> int:
    some = machine.check("cat", path).splitlines()[0]
    return int(some.partition("total=")[2])


def test_the_host_is_one_with_a_unified_hierarchy(guest: Machine) -> None:
    assert guest.check("stat", "-f", "-c", "%T", CGROUPS).strip() == "cgroup2fs"
    assert "nodeagent_cgroup_version 2" in page(guest, "/metrics")


def test_the_services_beside_the_pods_have_their_numbers(guest: Machine) -> None:
    def shown() -> dict[str, Any]:
        parts = json.loads(page(guest, "/stats/summary"))["node"]["systemContainers"]
        return {part["name"]: part for part in parts}

    until(lambda: shown().keys() == {"pods", "nodeagent", "runtime"}, "all parts of the system")

    def agrees_with_the_kernel() -> bool:
        used = guest.check("cat", f"{CGROUPS}/system.slice/containerd.service/memory.current")
        return shown()["runtime"]["memory"]["usageBytes"] == pytest.approx(int(used), rel=0.2)

    until(agrees_with_the_kernel, "the memory of the runtime")


def test_the_summary_lies_between_two_readings_of_the_kernel(guest: Machine) -> None:
    directory = cgroup(guest)
    before = counters(guest, f"{directory}/cpu.stat")
    stalled_before = pressure_usec(guest, f"{directory}/cpu.pressure")
    time.sleep(2)
    seen = container(guest)
    after = counters(guest, f"{directory}/cpu.stat")
    stalled_after = pressure_usec(guest, f"{directory}/cpu.pressure")
    used_usec = seen["cpu"]["usageCoreNanoSeconds"] / 1000
    assert before["usage_usec"] <= used_usec <= after["usage_usec"]
    assert stalled_before <= seen["cpu"]["psi"]["some"]["total"] <= stalled_after
    current = int(guest.check("cat", f"{directory}/memory.current"))
    assert seen["memory"]["usageBytes"] == pytest.approx(current, abs=2 << 20)


def test_a_container_at_its_limit_shows_its_share_of_a_core_and_rising_pressure(
    guest: Machine,
) -> None:
    def stalled_usec() -> int:
        return int(container(guest)["cpu"]["psi"]["some"]["total"])

    def nano_cores() -> int:
        return int(container(guest)["cpu"]["usageNanoCores"])

    guest.check("sh", "-c", f"for data in {DATA}; do touch $data/burn; done")
    before = stalled_usec()
    until(lambda: stalled_usec() - before > 5e6, "pressure: it waits for most of the time")
    until(lambda: 0.1e9 < nano_cores() < 0.23e9, "a fifth of a core, or less where others want it")
    guest.check("sh", "-c", f"rm {DATA}/burn")


def test_a_container_above_its_high_mark_shows_memory_pressure(guest: Machine) -> None:
    before = container(guest, "hungry")["memory"]["psi"]["some"]["total"]
    directory = cgroup(guest, "hungry")
    guest.check("sh", "-c", f"echo 2M > {directory}/memory.high")
    try:
        wake(guest, "eat")
        until(
            lambda: container(guest, "hungry")["memory"]["psi"]["some"]["total"] > before,
            "memory pressure in the summary",
        )
    finally:
        guest.check("sh", "-c", f"echo max > {directory}/memory.high")


def test_a_container_that_reads_past_the_cache_shows_io(guest: Machine) -> None:
    directory = cgroup(guest, "reader")
    before = container(guest, "reader")["io"]["psi"]["some"]["total"]

    def stalled() -> bool:
        wake(guest, "read")  # again and again: one may be too quick for anybody to wait
        return bool(container(guest, "reader")["io"]["psi"]["some"]["total"] > before)

    until(stalled, "io pressure in the summary")
    assert pressure_usec(guest, f"{directory}/io.pressure") > before


def test_a_checkpoint_is_taken_and_the_container_goes_on(guest: Machine) -> None:
    page(guest, f"/checkpoint/default/{POD}/main", "POST", timeout_s=180)
    place = "/var/lib/nodeagent/checkpoints"
    archives = guest.check("sh", "-c", f"ls {place}/checkpoint-{POD}_default-main-*.tar").split()
    assert guest.check("stat", "-c", "%a", archives[0], place).split() == ["600", "700"]
    assert "checkpoint/inventory.img" in guest.check("tar", "-tf", archives[0])
    reached = counted(guest)
    until(lambda: counted(guest) > reached, "the counter in the container")


def test_the_helper_mounts_what_the_agent_may_not(guest: Machine) -> None:
    guest.write(f"{MANIFESTS}/volumes.yaml", VOLUMES, mode=0o600)

    def shown() -> str:
        pod = status(guest, f"volumes-{installed.NODE}")
        [main] = pod.get("containerStatuses") or [{"state": {}}]
        return str(main["state"].get("terminated", {}).get("message", ""))

    until(lambda: bool(shown()), "the container has looked at its volumes")
    assert set(shown().splitlines()) == {"/memory tmpfs", "/keys tmpfs", "/part ext4", "s3cret"}
    helper = guest.show("nodeagent-mounts.service", "MainPID")
    if helper != "0":  # it ends when there is nothing to do
        spaces = guest.check("readlink", "/proc/1/ns/mnt", f"/proc/{helper}/ns/mnt").split()
        assert spaces[0] == spaces[1]
    guest.check("rm", f"{MANIFESTS}/volumes.yaml")
    left = "grep -c /var/lib/nodeagent/pods/ /proc/self/mountinfo"
    until(lambda: guest.run("sh", "-c", left).stdout.strip() == "0", "nothing stays mounted")


@pytest.mark.soak
def test_the_watchdogs_kill_touches_no_container(guest: Machine) -> None:
    directory = cgroup(guest)
    first_process = process(guest, directory)
    first = guest.show(AGENT, "MainPID")
    guest.check("kill", "-STOP", first)
    until(
        lambda: (
            guest.show(AGENT, "MainPID") not in ("0", first)
            and guest.show(AGENT, "ActiveState") == "active"
        ),
        "another agent after the watchdog's kill",
    )
    until(lambda: "Watchdog timeout" in guest.journal(AGENT), "the kill in the journal")
    assert process(guest, directory) == first_process
    until(lambda: status(guest, POD).get("phase") == "Running", "the pod runs for the next agent")


def test_a_reload_is_taken_by_the_same_agent_and_touches_no_container(
    guest: Machine,
) -> None:
    first_process = process(guest, cgroup(guest))
    agent = guest.show(AGENT, "MainPID")
    guest.write(DROP_IN, f"{HEAD}housekeepingInterval: 7s\nmaxPods: 50\n", mode=0o600)
    guest.check("systemctl", "reload", AGENT)
    until(
        lambda: (
            "housekeepingInterval changed" in guest.journal(AGENT)
            and "these need a restart to change: maxPods" in guest.journal(AGENT)
        ),
        "what was reloaded and what was not, in the journal",
    )
    shown = json.loads(page(guest, "/configz"))["nodeagentconfig"]
    assert (shown["housekeepingInterval"], shown["maxPods"]) == ("7s", 110)
    assert "nodeagent_config_last_reload_successful 1" in page(guest, "/metrics")
    guest.write(DROP_IN, f"{HEAD}housekeepingInterval: often\n", mode=0o600)
    guest.check("systemctl", "reload", AGENT)
    until(
        lambda: "the last reload failed" in guest.show(AGENT, "StatusText"),
        "the failed reload in STATUS",
    )
    mistake = f"{DROP_IN}:3: housekeepingInterval"
    until(lambda: mistake in guest.journal(AGENT), "the mistake in the journal")
    assert guest.show(AGENT, "MainPID") == agent
    assert process(guest, cgroup(guest)) == first_process
    reached = counted(guest)
    until(lambda: counted(guest) > reached, "the counter in the container")
    guest.check("rm", DROP_IN)


def test_a_stop_leaves_the_containers_running(guest: Machine) -> None:
    directory = cgroup(guest)
    guest.check("systemctl", "stop", AGENT, timeout_s=60)
    assert guest.show(AGENT, "Result") == "success"
    assert guest.check("cat", f"{directory}/cgroup.procs").strip()
