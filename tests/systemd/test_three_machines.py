"""The page's cluster of three and its backups: two API servers over one etcd, stopped and restored.

Three bare Debian systems on a network of their own follow docs/install.md; machines 1 and 2 are the
servers', 3 has etcd, the load balancer and a node.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from orch.wire.names import NODE_LEASE_NAMESPACE
from tests.systemd.conftest import or_skip
from tests.systemd.page import SYSTEMS, blocks
from tools.runtime_lib.progress import run
from tools.testbed.booted import BootedMachine, booted
from tools.testbed.debian import SUITES, ensure

pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.timeout(1200)]

UNITS = ("orch-apiserver", "orch-controller-manager")
CTL = ("orchctl", "--kubeconfig=/etc/orch-apiserver/admin.kubeconfig")
Machines = tuple[BootedMachine, BootedMachine, BootedMachine]


@pytest.fixture(scope="module", params=SUITES)
def machines(
    request: pytest.FixtureRequest, packages: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Machines]:
    """Three systems, 10.0.0.11 to 10.0.0.13, the third one with the bridge between them."""
    root = or_skip(lambda: ensure(SYSTEMS, request.param))
    with ExitStack() as stack:
        one, two, three = (
            stack.enter_context(
                booted(root, tmp_path_factory.mktemp(name), [(packages, "/packages")])
            )
            for name in ("one", "two", "three")
        )
        script(three, "ip link add lan0 type bridge && ip link set lan0 up")
        for number, machine in enumerate((one, two), start=1):
            ends = ["lan0", "netns", str(machine.init), "type", "veth"]
            peer = ["peer", "name", f"port{number}", "netns", str(three.init)]
            run(["ip", "link", "add", *ends, *peer], timeout_s=10)
            script(three, f"ip link set port{number} master lan0 up")
        set_up(one, "one", "10.0.0.11")
        set_up(two, "two", "10.0.0.12")
        set_up(three, "three", "10.0.0.13")
        yield one, two, three


def set_up(machine: BootedMachine, name: str, address: str) -> None:
    """Name and network as an installer leaves them, but for a name server."""
    hosts = f"127.0.0.1 localhost\n127.0.1.1 {name}\n"
    machine.check("rm", "-f", "/etc/resolv.conf")
    machine.write("/etc/hosts", hosts)
    script(
        machine,
        f"hostname {name}; ip link set lo up; ip addr add {address}/24 dev lan0;"
        " ip link set lan0 up; ip route add default via 10.0.0.254",
    )


def script(machine: BootedMachine, text: str) -> str:
    """What commands print that have to succeed, run where the packages lie."""
    return machine.check("bash", "-ec", f"cd /packages; {text}", timeout_s=300)


def bring(path: str, source: BootedMachine, target: BootedMachine) -> None:
    shutil.copyfile(source.path(path), target.path(path))


def wait(told: str, holds: Callable[[], bool], *at: BootedMachine, within_s: float = 90) -> None:
    end_s = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > end_s:
            journals = [machine.journal(f"{unit}.service") for machine in at for unit in UNITS]
            pytest.fail(f"{told}: not within {within_s:.0f} s\n" + "\n".join(journals))
        time.sleep(0.5)


def asked(machine: BootedMachine, *words: str) -> dict[str, Any]:
    """What `orchctl get` tells, {} where it fails."""
    done = machine.run(*CTL, "get", *words, "-o", "json")
    answer: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {}
    return answer


def ready(machine: BootedMachine) -> bool:
    conditions = asked(machine, "node", "three").get("status", {}).get("conditions", ())
    return ("Ready", "True") in [(one["type"], one["status"]) for one in conditions]


def renewed(machine: BootedMachine) -> str:
    """When the node's Lease was renewed; these times sort as text, and "" comes first."""
    lease = asked(machine, "lease", "three", "-n", NODE_LEASE_NAMESPACE)
    return str(lease.get("spec", {}).get("renewTime", ""))


def leader(machine: BootedMachine) -> str:
    """The name of the machine whose controller manager leads."""
    lease = asked(machine, "lease", "orch-controller-manager", "-n", "orch-system")
    return str(lease.get("spec", {}).get("holderIdentity", "")).partition("_")[0]


def create(machine: BootedMachine, made: dict[str, Any]) -> None:
    text = json.dumps({"apiVersion": "v1", **made})
    machine.check(*CTL, "create", "-f", "-", given=text.encode())


def starts_a_pod(machine: BootedMachine, name: str) -> None:
    """A pod made now is taken up by the node's agent."""
    spec = {"nodeName": "three", "containers": [{"name": "main", "image": "none.invalid/none"}]}
    create(machine, {"kind": "Pod", "metadata": {"name": name}, "spec": spec})
    wait(
        f"the agent takes up {name}",
        lambda: "startTime" in asked(machine, "pod", name).get("status", {}),
        machine,
    )


def goes_on_without(stopped: BootedMachine, other: BootedMachine, pod: str) -> None:
    """The node's Lease and its pods go on while one server is stopped."""
    stopped.check("systemctl", "stop", "orch-apiserver")
    lease_goes_on(other)
    assert ready(other)
    starts_a_pod(other, pod)
    stopped.check("systemctl", "start", "orch-apiserver")


def lease_goes_on(*machines: BootedMachine) -> None:
    """It is renewed after the first answer; before that the load balancer may ask in vain."""
    asking = machines[0]
    wait("the address answers", lambda: renewed(asking) != "", *machines)
    before = renewed(asking)
    wait("the Lease goes on", lambda: renewed(asking) > before, *machines)


def test_either_server_and_either_controller_may_stop_and_a_snapshot_brings_all_back(
    machines: Machines,
) -> None:
    """One walk, since each step begins where the one before ended."""
    one, two, three = machines
    first, second, third = blocks("A cluster of three")
    script(three, first)
    bring("/root/etcd.tar", three, one)
    script(one, second)
    bring("/root/orch.tar", one, two)
    script(two, third)
    snapshot, restore = blocks("Backup and restore")[2:]
    script(three, "apt-get install -y ./nodeagent_*.deb")
    script(three, "cp /usr/share/doc/nodeagent/examples/10-pods.conflist /etc/cni/net.d/")
    script(three, script(one, "orch-apiserver init | tail -n 1"))
    assert ready(one)
    starts_a_pod(two, "first")

    goes_on_without(one, two, "without-one")
    goes_on_without(two, one, "without-two")

    by_name = {"one": one, "two": two}
    wait("a controller manager leads", lambda: leader(one) in by_name, one, two)
    name = leader(one)
    by_name[name].check("systemctl", "stop", "orch-controller-manager")
    wait("the other one leads", lambda: leader(one) == ({*by_name} - {name}).pop(), one, two)
    by_name[name].check("systemctl", "start", "orch-controller-manager")

    script(three, snapshot)
    starts_a_pod(one, "too-late")
    for machine in (one, two):
        machine.check("systemctl", "stop", *UNITS)
    script(three, restore)
    for machine in (one, two):
        machine.check("systemctl", "start", *UNITS)
    wait("the object of before is back", lambda: asked(one, "pod", "first") != {}, one, two)
    assert asked(one, "pod", "too-late") == {}
    lease_goes_on(one, two)
    wait("the node is Ready", lambda: ready(one), one, two)
    starts_a_pod(two, "afterwards")
    wait("a controller manager leads", lambda: leader(one) in by_name, one, two)


def test_a_copy_of_the_store_brings_back_what_a_single_server_had(machines: Machines) -> None:
    """After the walk above: machine 1 leaves the cluster, and starts one of its own on a file."""
    alone = machines[0]
    script(alone, "apt-get install -y ./orch-server_*.deb ./orchctl_*.deb")
    script(
        alone, f"systemctl stop {' '.join(UNITS)}; rm -rf /etc/orch-apiserver /etc/default/orch-*"
    )
    script(alone, "rm -rf /etc/systemd/system/orch-apiserver.service.d; systemctl daemon-reload")
    script(alone, "orch-apiserver init --host 10.0.0.11 --start")
    save, back = blocks("Backup and restore")[:2]
    create(alone, {"kind": "Namespace", "metadata": {"name": "before"}})
    script(alone, save)
    wait("the server answers", lambda: asked(alone, "namespace", "before") != {}, alone)
    create(alone, {"kind": "Namespace", "metadata": {"name": "too-late"}})
    script(alone, back)
    wait("the object of before is back", lambda: asked(alone, "namespace", "before") != {}, alone)
    assert asked(alone, "namespace", "too-late") == {}
    create(alone, {"kind": "Namespace", "metadata": {"name": "afterwards"}})
