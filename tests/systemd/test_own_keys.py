"""The packages' units with keys that somebody else made, and with certificates that end, on a bare
system of each Debian.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from orch.component.pki import Authority
from orch.component.process import clock
from tests.systemd.conftest import or_skip
from tests.systemd.page import SYSTEMS
from tools.testbed.booted import BootedMachine, booted
from tools.testbed.debian import SUITES, ensure

pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.timeout(600)]

KEYS = "/etc/orch-apiserver"
SERVER, CONTROLLER = "orch-apiserver.service", "orch-controller-manager.service"
RENEWAL = "orch-apiserver-renew.service"
COPIES = {
    SERVER: ("tls.key", "nodeagent-client.key"),
    CONTROLLER: ("controller-manager.kubeconfig", "controller-manager.key"),
}
SERVED = "import ssl; print(ssl.get_server_certificate(('127.0.0.1', 6443)))"
ROWS = {
    *(f"certificate {what}" for what in (
        "authority", "authority of agents", "authority of clients", "serving", "for agents",
        "of service accounts", "controller manager", "admin", "monitoring", "in admin.kubeconfig",
    )),
    "authority of nodeagent-client", "authority of monitoring",
    "kubeconfig controller-manager", "kubeconfig admin",
}  # fmt: skip
KEPT_ELSEWHERE = ("ca.key", "nodeagent-ca.key", "bootstrap-token")


@pytest.fixture(scope="module", params=SUITES)
def machine(
    request: pytest.FixtureRequest, packages: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BootedMachine]:
    root = or_skip(lambda: ensure(SYSTEMS, request.param))
    scratch = tmp_path_factory.mktemp("machine")
    with booted(root, scratch, [(packages, "/packages")]) as running:
        running.check("sh", "-c", "apt-get install -y /packages/orch-server_*.deb", timeout_s=300)
        running.check("ip", "link", "set", "lo", "up")
        running.check("orch-apiserver", "init", "--host", "127.0.0.1")
        yield running


def says(machine: BootedMachine, unit: str, line: str) -> bool:
    """Whether the unit's journal has the line, within a while."""
    end_s = time.monotonic() + 30
    while line not in machine.journal(unit):
        if time.monotonic() > end_s:
            return False
        time.sleep(0.2)
    return True


def start(machine: BootedMachine, *units: str) -> subprocess.CompletedProcess[str]:
    return machine.run("systemctl", "start", *units, timeout_s=120)


def test_certificates_that_end_soon_are_renewed_while_the_servers_run(
    machine: BootedMachine,
) -> None:
    keys = machine.path(KEYS)
    then = clock.utc_now() - timedelta(days=300)
    old = Authority(keys, now=then, renew_before=timedelta(days=700), keep=True)
    for name in ("tls", "controller-manager"):
        assert old.renew(name), "as if issued 300 days ago"
    done = start(machine, SERVER, CONTROLLER)
    assert done.returncode == 0, (done.stderr, machine.journal(SERVER), machine.journal(CONTROLLER))
    before = [machine.show(unit, "MainPID") for unit in (SERVER, CONTROLLER)]
    ended = machine.check("python3", "-c", SERVED)
    assert machine.show(RENEWAL.replace(".service", ".timer"), "ActiveState") == "active"

    done = start(machine, RENEWAL)
    assert done.returncode == 0, machine.journal(RENEWAL)
    assert says(machine, RENEWAL, "renewed: controller-manager tls"), machine.journal(RENEWAL)
    assert says(machine, SERVER, "uses its new serving certificate"), machine.journal(SERVER)
    assert says(machine, CONTROLLER, "uses its new certificate"), machine.journal(CONTROLLER)
    assert machine.check("python3", "-c", SERVED) != ended
    assert [machine.show(unit, "MainPID") for unit in (SERVER, CONTROLLER)] == before


def test_new_keys_are_taken_over_at_a_reload(machine: BootedMachine) -> None:
    started = start(machine, SERVER, CONTROLLER)
    assert started.returncode == 0, started.stderr
    before = [machine.show(unit, "MainPID") for unit in (SERVER, CONTROLLER)]
    served, said = machine.check("python3", "-c", SERVED), taken_over(machine)
    pairs = "tls.* nodeagent-client.* controller-manager.*"
    machine.check("sh", "-euc", f"cd {KEYS}; rm {pairs}; orch-apiserver init --host 127.0.0.1")
    machine.check("systemctl", "reload", SERVER, CONTROLLER)
    end_s = time.monotonic() + 60
    while any(now <= then for now, then in zip(taken_over(machine), said, strict=True)):
        assert time.monotonic() < end_s, (machine.journal(SERVER), machine.journal(CONTROLLER))
        time.sleep(0.5)
    assert machine.check("python3", "-c", SERVED) != served
    assert [machine.show(unit, "MainPID") for unit in (SERVER, CONTROLLER)] == before


def taken_over(machine: BootedMachine) -> list[int]:
    """How often each pair was: what is served, what agents see, what the API server sees."""
    return [
        machine.journal(unit).count(f"uses its new {what}")
        for unit, what in (
            (SERVER, "serving certificate"),
            (SERVER, "client certificate"),
            (CONTROLLER, "certificate"),
        )
    ]


def test_copies_of_keys_are_the_servers_alone_and_go_with_them(machine: BootedMachine) -> None:
    start(machine, SERVER, CONTROLLER)
    for unit in (SERVER, CONTROLLER):
        place = f"/run/{unit.removesuffix('.service')}"
        uid = machine.check("stat", "-c", "%u", f"/proc/{machine.show(unit, 'MainPID')}").strip()
        listed = machine.check("find", place, "-printf", "%y %m %U %f\\n").splitlines()
        copies = COPIES[unit]
        assert sorted(listed) == sorted(
            [f"d 700 {uid} {Path(place).name}", *(f"f 400 {uid} {name}" for name in copies)]
        )
        machine.check("systemctl", "stop", unit)
        assert not machine.path(place).exists()
    assert [*machine.path("/run").glob("tmp.*")] == []


def test_the_doctor_of_the_package_looks_at_what_the_units_read(machine: BootedMachine) -> None:
    code, rows = doctor(machine)
    assert (code, {verdict for verdict, _ in rows.values()}) == (0, {"ok"}), rows
    assert rows.keys() == ROWS
    assert rows["certificate serving"][1].startswith(f"{KEYS}/tls.crt is valid until ")

    keys = machine.path(KEYS)
    year_ago = clock.utc_now() - timedelta(days=366)
    Authority(keys, now=year_ago, renew_before=timedelta(days=999), keep=True).renew("tls")
    code, rows = doctor(machine)
    assert code == 1
    verdict, text = rows.pop("certificate serving")
    assert verdict == "fail"
    assert re.match(
        rf"{KEYS}/tls.crt expired at [0-9-]+ [0-9:]+Z -> run 'orch-apiserver init'", text
    )
    assert {verdict for verdict, _ in rows.values()} == {"ok"}

    machine.check("sh", "-euc", f"mkdir -p /etc/own; cp {KEYS}/tls.* /etc/own; orch-apiserver init")
    assert doctor(machine)[0] == 0, "what it advised has helped"
    flags = "--tls-cert-file=/etc/own/tls.crt --tls-private-key-file=/etc/own/tls.key"
    machine.write("/etc/default/orch-apiserver", f'APISERVER_ARGS="{flags}"\n')
    code, rows = doctor(machine)
    machine.check("rm", "/etc/default/orch-apiserver")
    assert code == 1
    assert rows["certificate serving"][1].startswith("/etc/own/tls.crt expired at ")


def doctor(machine: BootedMachine) -> tuple[int, dict[str, tuple[str, str]]]:
    """Its exit code; of each check the verdict, and the message with the advice."""
    done = machine.run("orch-apiserver", "doctor", "-o", "json")
    found = json.loads(done.stdout)["findings"]
    rows = {f["check"]: (f["verdict"], f"{f['message']} -> {f['advice']}") for f in found}
    return done.returncode, rows


def test_the_units_start_without_the_keys_of_the_authority(machine: BootedMachine) -> None:
    machine.check(
        "sh", "-c", f"mkdir /root/kept; cd {KEYS}; mv {' '.join(KEPT_ELSEWHERE)} /root/kept"
    )
    done = start(machine, SERVER, CONTROLLER)
    assert done.returncode == 0, (done.stderr, machine.journal(SERVER), machine.journal(CONTROLLER))
    assert machine.show(SERVER, "ActiveState") == "active"
    assert machine.show(CONTROLLER, "ActiveState") == "active"
    line = "issuing no certificates, for there is no ca.key and no nodeagent-ca.key: put it where"
    assert says(machine, CONTROLLER, line), machine.journal(CONTROLLER)


def test_what_a_unit_cannot_do_without_is_named_in_its_journal(machine: BootedMachine) -> None:
    machine.check("systemctl", "stop", SERVER, CONTROLLER)
    for unit, name in (
        (SERVER, "tls.key"),
        (SERVER, "nodeagent-client.crt"),
        (SERVER, "service-account.key"),
        (CONTROLLER, "controller-manager.kubeconfig"),
    ):
        machine.check("mv", f"{KEYS}/{name}", "/root/kept")
        start(machine, unit)
        assert machine.show(unit, "ActiveState") == "inactive"
        assert says(machine, unit, f"ConditionPathExists={KEYS}/{name}")
        machine.check("mv", f"/root/kept/{name}", KEYS)
