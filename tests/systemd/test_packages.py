"""The Debian packages on bare Debian systems with systemd as process 1: from installing to purging.

Building the systems takes minutes; where they are is kept (TEST_DEBIAN_BASE). They have no network:
what the packages need lies in apt's cache.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from orch.wire.names import VERSION
from tests.conftest_runtime import BASE as RUNTIME
from tests.conftest_runtime import RealRuntime
from tests.systemd.conftest import LATER_VERSION as LATER
from tests.systemd.conftest import or_skip
from tests.systemd.page import PAGE, SYSTEMS, blocks
from tools.runtime_lib import images
from tools.testbed.booted import BootedMachine, booted
from tools.testbed.debian import SUITES, ensure

pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.timeout(2400)]

OURS = VERSION[1:]
AGENT = "nodeagent.service"
DROP_IN = "/etc/nodeagent/config.d/mistake.conf"
HEAD = "apiVersion: nodeagent.config.orch.io/v1beta1\nkind: NodeAgentConfiguration\n"
LEFT_BEHIND = (
    "/etc/nodeagent", "/var/lib/nodeagent", "/usr/lib/nodeagent", "/run/nodeagent.lock",
    "/run/nodeagent-mounts.sock", "/usr/bin/nodeagent",
    "/etc/systemd/system/multi-user.target.wants/nodeagent.service",
)  # fmt: skip


@pytest.fixture(scope="module", params=SUITES)
def machine(
    request: pytest.FixtureRequest, packages: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BootedMachine]:
    """A bare system of each release, and the packages at /packages."""
    root = or_skip(lambda: ensure(SYSTEMS, request.param))
    scratch = tmp_path_factory.mktemp(request.param)
    with booted(root, scratch, [(packages, "/packages")]) as running:
        yield running


def install(machine: BootedMachine, path: str, *flags: str) -> subprocess.CompletedProcess[str]:
    words = (
        "sh",
        "-c",
        f"DEBIAN_FRONTEND=noninteractive apt-get install -y {' '.join(flags)} {path}",
    )
    return machine.run(*words, timeout_s=600)


def installed_version(machine: BootedMachine) -> str:
    return machine.check("dpkg-query", "-W", "-f", "${db:Status-Abbrev}${Version}", "nodeagent")


def until(done: Callable[[], bool], told: Callable[[], str], within_s: float = 60.0) -> None:
    end_s = time.monotonic() + within_s
    while not done():
        assert time.monotonic() < end_s, told()
        time.sleep(0.3)


def test_an_installed_agent_runs_and_may_be_upgraded_rolled_back_and_purged(
    machine: BootedMachine,
) -> None:
    """One walk, since each step begins where the one before ended."""
    done = install(machine, "/packages/nodeagent_*.deb")
    assert done.returncode == 0, done.stdout + done.stderr
    assert machine.show(AGENT, "ActiveState") == "active", machine.journal(AGENT)
    assert machine.check("nodeagent", "--version").split() == ["nodeagent", VERSION]
    assert installed_version(machine) == f"ii {OURS}"
    first = machine.show(AGENT, "MainPID")

    machine.write(DROP_IN, f"{HEAD}port: many\n")
    done = install(machine, "/packages/later/nodeagent_*.deb")
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert f"{DROP_IN}:3: port" in said
    assert f"version {LATER} would not start with the configuration" in said
    assert installed_version(machine) == f"ii {OURS}"
    assert machine.run("dpkg", "--verify", "nodeagent").stdout == ""
    assert machine.show(AGENT, "MainPID") == first, "the agent was restarted"
    machine.check("rm", DROP_IN)

    assert install(machine, "/packages/later/nodeagent_*.deb").returncode == 0
    assert installed_version(machine) == f"ii {LATER}"
    assert machine.show(AGENT, "ActiveState") == "active"
    second = machine.show(AGENT, "MainPID")
    assert second != first
    assert install(machine, "needrestart").returncode == 0
    left_to_restart = machine.check("needrestart", "-b", "-r", "l", timeout_s=120)
    assert "NEEDRESTART-VER" in left_to_restart
    assert "NEEDRESTART-SVC" not in left_to_restart
    machine.check("apt-get", "purge", "-y", "needrestart", timeout_s=120)

    done = install(machine, "/packages/nodeagent_*.deb", "--allow-downgrades")
    assert done.returncode == 0, done.stderr
    assert installed_version(machine) == f"ii {OURS}"
    assert machine.show(AGENT, "MainPID") != second
    assert machine.show(AGENT, "ActiveState") == "active"

    machine.write("/etc/nodeagent/config.d/mine.conf", HEAD)
    machine.check("apt-get", "purge", "-y", "nodeagent", timeout_s=120)
    assert machine.check("sh", "-c", "find /etc/nodeagent -type f").split() == [
        "/etc/nodeagent/config.d/mine.conf"
    ], "what was not the package's is left"
    machine.check("rm", "-r", "/etc/nodeagent")
    assert [path for path in LEFT_BEHIND if machine.path(path).exists()] == []


CONTAINERD = """version = 2
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "localhost/pause:1"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "/etc/cni/net.d"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
BinaryName = "/usr/local/bin/runc-unlimited"
"""
# On a hybrid host the machine's cgroups have no controllers to set limits with.
UNLIMITED = """#!/usr/bin/python3
import json, os, sys
if "create" in sys.argv:
    path = sys.argv[sys.argv.index("--bundle") + 1] + "/config.json"
    with open(path) as file:
        config = json.load(file)
    config["linux"].pop("resources", None)
    with open(path, "w") as file:
        json.dump(config, file)
os.execv("/usr/sbin/runc", ["runc", *sys.argv[1:]])
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: held}
spec:
  containers:
  - name: main
    image: localhost/busybox:1
    command: [sh, -c, 'echo kept > /memory/mark; while :; do sleep 1; done']
    volumeMounts: [{name: memory, mountPath: /memory}]
  volumes:
  - name: memory
    emptyDir: {medium: Memory}
"""
FETCH = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode())"
LEFT = {  # how to list what a reset is to leave nothing of
    "containers": "ctr -n k8s.io containers list -q",
    "mounts": "grep -e /var/lib/nodeagent -e /run/containerd/io -e /run/netns /proc/1/mountinfo",
    "cgroups": "find /sys/fs/cgroup -name '*orchpods*'",
    "interfaces": "ip -o link | cut -d: -f2 | grep veth",
}


@pytest.fixture
def with_runtime(machine: BootedMachine, real_runtime: RealRuntime) -> BootedMachine:
    """Debian's containerd in the machine, with two images and the page's network."""
    machine.check("mkdir", "-p", "/var/lib/containerd")
    machine.check("mount", "-t", "tmpfs", "tmpfs", "/var/lib/containerd")  # no overlay on overlay
    assert install(machine, "containerd containernetworking-plugins").returncode == 0
    machine.write("/etc/containerd/config.toml", CONTAINERD)
    machine.write("/usr/local/bin/runc-unlimited", UNLIMITED, mode=0o755)
    archive = images.build(RUNTIME / "root/usr/bin/busybox").archive
    machine.path("/root/images.tar").write_bytes(archive)
    machine.check("systemctl", "restart", "containerd")
    return machine


def pod_at_agent(machine: BootedMachine) -> dict[str, Any]:
    """The pod as the agent shows it; {} before it does."""
    done = machine.run("python3", "-c", FETCH, "http://127.0.0.1:10255/pods")
    found = json.loads(done.stdout)["items"] if done.returncode == 0 else []
    return next(iter(found), {})


def container_ready(machine: BootedMachine) -> bool:
    [status] = pod_at_agent(machine).get("status", {}).get("containerStatuses") or [{}]
    return bool(status.get("ready"))


def tasks(machine: BootedMachine) -> dict[str, str]:
    """Of each container: its first process, and when that started."""
    listed = machine.check("ctr", "-n", "k8s.io", "tasks", "list").splitlines()[1:]
    pids = {line.split()[0]: line.split()[1] for line in listed}
    stats = {name: machine.check("cat", f"/proc/{pid}/stat") for name, pid in pids.items()}
    return {name: f"{pids[name]} {stat.split()[21]}" for name, stat in stats.items()}


def left(machine: BootedMachine) -> dict[str, str]:
    return {what: machine.run("sh", "-c", listing).stdout for what, listing in LEFT.items()}


def test_pods_run_on_while_the_package_is_upgraded_and_rolled_back_and_a_reset_ends_them(
    with_runtime: BootedMachine,
) -> None:
    machine = with_runtime
    machine.write("/etc/nodeagent/config.d/read.conf", f"{HEAD}readOnlyPort: 10255\n")
    done = install(machine, "/packages/nodeagent_*.deb")
    assert done.returncode == 0, done.stderr
    machine.check(
        "sh", "-c", "cp /usr/share/doc/nodeagent/examples/10-pods.conflist /etc/cni/net.d/"
    )
    machine.check("nodeagent", "image", "import", "/root/images.tar", timeout_s=120)
    machine.write("/etc/nodeagent/manifests/held.yaml", POD)
    until(lambda: container_ready(machine), lambda: f"{machine.journal(AGENT)}")
    before, interfaces = tasks(machine), machine.check("ip", "-o", "link")
    assert len(before) == 2, "the sandbox and its container"
    assert "veth" in interfaces

    for path, flags in (
        ("/packages/later/nodeagent_*.deb", ()),
        ("/packages/nodeagent_*.deb", ("--allow-downgrades",)),
    ):
        agent = machine.show(AGENT, "MainPID")
        done = install(machine, path, *flags)
        assert done.returncode == 0, done.stderr
        assert machine.show(AGENT, "MainPID") != agent
        until(lambda: container_ready(machine), lambda: f"{machine.journal(AGENT)}")
        assert tasks(machine) == before
        [status] = pod_at_agent(machine)["status"]["containerStatuses"]
        assert status["restartCount"] == 0
        main = before[status["containerID"].partition("://")[2]].split()[0]
        assert machine.check("cat", f"/proc/{main}/root/memory/mark") == "kept\n"

    machine.check("systemctl", "stop", AGENT)
    planned = machine.check("nodeagent", "reset")
    assert "would remove pod default/held" in planned
    assert tasks(machine) == before, "a dry run ends nothing"
    assert all(left(machine).values()), "what a reset is to remove is there"
    machine.check("nodeagent", "reset", "--yes", timeout_s=120)
    assert left(machine) == dict.fromkeys(LEFT, "")
    pids = [first.split()[0] for first in before.values()]
    assert [pid for pid in pids if machine.path(f"/proc/{pid}").exists()] == []
    machine.check("rm", "-r", "/etc/nodeagent/manifests", "/etc/nodeagent/config.d/read.conf")
    machine.check("apt-get", "purge", "-y", "nodeagent", timeout_s=120)


def test_the_page_s_commands_set_up_a_host_and_clear_it(machine: BootedMachine) -> None:
    """Literally, one by one; `doctor` may find what this machine lacks."""
    lines = blocks("A host of its own")[0].splitlines()
    assert len(lines) <= 6
    began_s = time.monotonic()
    for line in lines:
        done = machine.run("sh", "-c", f"cd /packages && {line}", timeout_s=600)
        assert done.returncode == 0 or line.startswith("nodeagent doctor"), (line, done.stderr)
    assert time.monotonic() - began_s < 300
    assert "active (running)" in done.stdout
    machine.check("nodeagent", "image", "list")
    for line in blocks("Uninstall")[0].splitlines():
        done = machine.run("sh", "-c", line, timeout_s=120)
        assert done.returncode == 0, (line, done.stdout, done.stderr)
    assert [path for path in LEFT_BEHIND if machine.path(path).exists()] == []
    assert not machine.path("/sys/fs/cgroup/orchpods").exists()


def test_the_other_packages_install_and_their_programs_run(machine: BootedMachine) -> None:
    done = install(machine, "/packages/orch-server_*.deb /packages/orchctl_*.deb")
    assert done.returncode == 0, done.stdout + done.stderr
    for program in ("orch-apiserver", "orch-controller-manager", "orch-up", "orchctl"):
        assert VERSION in machine.check(program, "--version")
    for unit in ("orch-apiserver.service", "orch-controller-manager.service"):
        assert machine.show(unit, "UnitFileState") == "enabled"
        assert machine.show(unit, "ActiveState") == "inactive", machine.journal(unit)
    machine.check("apt-get", "purge", "-y", "orch-server", "orchctl", timeout_s=120)
    assert not machine.path("/usr/lib/orch-server").exists()


NETWORK = (
    "ip link add lan0 type bridge && ip addr add 10.99.0.1/24 dev lan0 && ip link set lan0 up"
    " && ip route add default via 10.99.0.254 dev lan0"
    " && echo 127.0.1.1 $(hostname) >> /etc/hosts && rm -f /etc/resolv.conf"
)  # as an installer leaves it, but for a name server
KUBECONFIG = "--kubeconfig=/etc/orch-apiserver/admin.kubeconfig"
GRAPH_S = 60.0


def cpu_pressure(machine: BootedMachine) -> list[float]:
    """The points of the page's expression for the whole machine, as its graph draws them."""
    expression = re.search(r"`(rate\(.*?\))`", PAGE.read_text())
    assert expression is not None
    now_s = time.time()
    query = {"query": expression[1], "start": now_s - 120, "end": now_s, "step": 5}
    answer = from_prometheus(machine, f"query_range?{urlencode(query)}")
    found = [one for one in answer["result"] if one["metric"].get("id") == "/"]
    return [float(value) for one in found for _, value in one["values"]]


def from_prometheus(machine: BootedMachine, path: str) -> dict[str, Any]:
    url = f"http://127.0.0.1:9090/api/v1/{path}"
    return dict(json.loads(machine.check("python3", "-c", FETCH, url))["data"])


def not_up(machine: BootedMachine) -> dict[str, str]:
    """The jobs that Prometheus cannot scrape, with its errors."""
    targets = from_prometheus(machine, "targets?state=active")["activeTargets"]
    return {one["labels"]["job"]: one["lastError"] for one in targets if one["health"] != "up"}


def test_the_page_s_commands_lead_from_a_bare_system_to_a_graph_of_its_pressure(
    machine: BootedMachine,
) -> None:
    """Literally, one by one, until the graph has a line: two points."""
    machine.check("sh", "-c", NETWORK)
    lines = blocks("A cluster of one machine")[0].splitlines()
    assert len(lines) <= 6
    assert not [line for line in lines if "&&" in line or ";" in line], "that is two commands"
    began_s = time.monotonic()
    for line in lines:
        line_began_s = time.monotonic()
        done = machine.run("bash", "-c", f"cd /packages && {line}", timeout_s=300)
        assert done.returncode == 0, (line, done.stdout, done.stderr, machine.journal(AGENT))
        took_s = time.monotonic() - line_began_s
        print(f"{took_s:5.1f} s  {line}")
        if "init | tail" in line:
            assert took_s <= 15, (done.stdout, machine.journal(AGENT))
            assert re.search(r" Ready ", machine.check("orchctl", KUBECONFIG, "get", "nodes"))
    until_s = time.monotonic() + GRAPH_S
    while len(points := cpu_pressure(machine)) < 2:
        assert time.monotonic() < until_s, machine.journal("prometheus.service")
        time.sleep(1)
    took_s = time.monotonic() - began_s
    alerts = from_prometheus(machine, "rules?type=alert")["groups"]
    assert "LeaderMissing" in {rule["name"] for group in alerts for rule in group["rules"]}
    until(lambda: not_up(machine) == {}, lambda: str(not_up(machine)))
    print(f"{len(lines)} commands, {took_s:.0f} s; waiting for a processor: {points[-1]:.1%}")
    assert took_s <= 300
    fetch = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9090/graph').status)"
    assert machine.check("python3", "-c", fetch).strip() == "200"
    assert "SOME/FULL" in machine.check(
        "orchctl", KUBECONFIG, "node", "top", "--once", "--pressure"
    )

    machine.check("nodeagent", "leave")
    assert not machine.path("/etc/nodeagent/kubeconfig").exists()
    machine.check("nodeagent", "reset", "--yes", timeout_s=120)
    purged = ("nodeagent", "orch-server", "orchctl")
    machine.check("apt-get", "purge", "-y", *purged, timeout_s=120)
    assert not machine.path("/etc/orch-apiserver").exists()
    assert not machine.path("/etc/nodeagent").exists()
