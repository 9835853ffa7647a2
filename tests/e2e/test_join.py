"""From nothing to a Ready node, with the commands that `orch-apiserver init` prints, and once more
after the machine was off for longer than its certificates last.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from nodeagent.commands import join
from nodeagent.commands.dispatch import dispatch
from nodeagent.config.options import CLIENT_FILE, SERVING_FILE
from orch.client.kubeconfig import load_kubeconfig
from orch.client.transport import Transport, TransportError
from orch.component.pki import Authority, Subject
from tests.fakes.cri_server import CriServer
from tests.fakes.ports import free_port
from tests.fakes.programs import until
from tests.fakes.runtime import FakeRuntime

pytestmark = [pytest.mark.may_block, pytest.mark.slow, pytest.mark.seconds(20)]

PROGRAMS = {
    "orch-apiserver": "orch.server.main",
    "orch-controller-manager": "orch.lifecycle.main",
    "nodeagent": "nodeagent.main",
    "orchctl": "orch.ctl.main",
}
ANSWER_S = 60.0
READY = b'"type":"Ready","status":"%s"'
HOST = ("127.0.0.1",)
READY_WITHIN_S = 15.0  # as promised, from the start of `join`


@pytest.fixture(autouse=True)
def same_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def words_of(program: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", PROGRAMS[program], *arguments]


def run(program: str, *arguments: str) -> str:
    done = subprocess.run(
        words_of(program, *arguments), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextlib.contextmanager
def daemon(folder: Path, words: Sequence[str]) -> Iterator[None]:
    with (folder / "daemons.log").open("ab") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(30)
            finally:
                process.kill()


def printed(text: str, program: str) -> list[str]:
    """The arguments of a command that `init` printed over several lines."""
    found = re.search(rf"^  {program} ((?:.*\\\n)*.*)$", text, re.MULTILINE)
    assert found, text
    return shlex.split(found[1].replace("\\\n", " "))


async def answered(client: Transport, path: str, text: bytes) -> None:
    """Wait until the server's answer has this in it."""
    said: object = None
    try:
        async with asyncio.timeout(ANSWER_S):
            while True:
                with contextlib.suppress(TransportError):
                    answer = await client.request("GET", path)
                    said = answer.body
                    if answer.status == 200 and text in answer.body:
                        return
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"{path}: {said!r}") from None


def age(pki: Path, certificates: Path) -> None:
    """Put certificates of the node in place that the same authorities issued 800 days ago."""
    then = shutil.copytree(pki, pki.with_name("then"))
    now = datetime.now(UTC) - timedelta(days=800)
    for authority, file, hosts in (("ca", CLIENT_FILE, ()), ("nodeagent-ca", SERVING_FILE, HOST)):
        subject = Subject(file, "system:node:n1", ("system:nodes",), hosts)
        old = Authority(then, now=now, name=authority).issue(subject)
        text = Path(old.cert_file).read_text() + Path(old.key_file).read_text()
        (certificates / file).write_text(text)


class Machine:
    """The files of a machine and the agent on it."""

    def __init__(self, folder: Path, runtime: str) -> None:
        self._folder = folder
        self._runtime = runtime
        self._port = free_port()
        self.own = ["--node-name=n1", "--node-ip=127.0.0.1"]
        self.places = [f"--settings-dir={folder}/etc", f"--root-dir={folder}/root"]
        self.certificates = folder / "root" / "pki"
        self.kubeconfig = folder / "etc" / "kubeconfig"

    def agent(self) -> contextlib.AbstractContextManager[None]:
        """Run it with the flags that joining left for the service."""
        at, written = self._folder, (self._folder / "etc" / "join.env").read_text()
        flags = written.partition("JOIN_ARGS=")[2].strip().strip('"').split()
        words = [
            *flags, f"--config-dir={at}/etc/config.d", f"--root-dir={at}/root",
            f"--pod-logs-dir={at}/logs", f"--lock-file={at}/lock",
            "--address=127.0.0.1", f"--port={self._port}", "--healthz-port=0",
            f"--container-runtime-endpoint={self._runtime}",
        ]  # fmt: skip
        return daemon(at, words_of("nodeagent", *words))


@dataclass
class Served:
    """A cluster by the commands that `init` printed; `join` are the words of the last of them."""

    pki: Path
    join: list[str]
    admin: Transport
    machine: Machine


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    port = free_port()
    text = run(
        "orch-apiserver", "init", "--dir", f"{tmp_path}/pki", "--host=127.0.0.1", f"--port={port}"
    )
    serve = [*printed(text, "orch-apiserver"), f"--data-dir={tmp_path}/data",
             f"--secure-port={port}", "--bind-address=127.0.0.1",
             "--node-proxy-allow-loopback"]  # fmt: skip
    control = [*printed(text, "orch-controller-manager"), "--secure-port=0",
               "--node-monitor-grace-period=20s"]  # fmt: skip
    admin = Transport(load_kubeconfig(f"{tmp_path}/pki/admin.kubeconfig"))
    runtime = CriServer(FakeRuntime(), tmp_path / "cri.sock")
    await runtime.start()
    try:
        with (
            daemon(tmp_path, words_of("orch-apiserver", *serve)),
            daemon(tmp_path, words_of("orch-controller-manager", *control)),
        ):
            await until(lambda: "serves on" in (tmp_path / "daemons.log").read_text())
            await answered(admin, "/readyz", b"ok")
            machine = Machine(tmp_path, runtime.endpoint)
            yield Served(tmp_path / "pki", printed(text, "nodeagent"), admin, machine)
    finally:
        await admin.close()
        await runtime.stop()


@pytest.mark.alone  # it measures how soon the node is Ready
async def test_the_printed_commands_make_a_ready_node_also_after_two_years(served: Served) -> None:
    admin, machine = served.admin, served.machine
    began_s = time.monotonic()
    await asyncio.to_thread(
        run, "nodeagent", *served.join, *machine.own, *machine.places, "--no-start"
    )
    with machine.agent():
        await answered(admin, "/api/v1/nodes/n1", READY % b"True")
        took_s = time.monotonic() - began_s
        assert took_s <= READY_WITHIN_S
        # The API server trusts the agent's certificate once the cluster issued it.
        await answered(admin, "/api/v1/nodes/n1/proxy/healthz", b"ok")
    age(served.pki, machine.certificates)
    await answered(admin, "/api/v1/nodes/n1", READY % b"Unknown")
    asked = ("token", "create", "--print-join-command")
    kubeconfig = f"--kubeconfig={served.pki}/admin.kubeconfig"
    command = await asyncio.to_thread(run, "orchctl", *asked, kubeconfig)
    rejoin = shlex.split(command)[1:]
    said = await asyncio.to_thread(
        run, "nodeagent", *rejoin, *machine.own, *machine.places, "--no-start"
    )
    assert "gave this machine the certificate of node n1" in said
    with machine.agent():
        await answered(admin, "/api/v1/nodes/n1", READY % b"True")
        await answered(admin, "/api/v1/nodes/n1/proxy/healthz", b"ok")
    left = await asyncio.to_thread(run, "nodeagent", "leave", *machine.places)
    assert "node n1 is cordoned" in left
    assert not machine.kubeconfig.exists()


async def test_a_machine_is_reached_once_it_has_joined_and_may_leave_and_join_again(
    served: Served,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With a service manager that starts the agent and stops it, and nothing waited for between."""
    machine, service = served.machine, contextlib.ExitStack()

    def systemctl(verb: str, *_: str) -> int:
        service.close()
        if verb == "restart":
            service.enter_context(machine.agent())
        return 0

    monkeypatch.setattr(join, "has_service", lambda: True)
    monkeypatch.setattr(join, "systemctl", systemctl)
    joining = [*served.join, *machine.own]
    elsewhere = [f"--settings-dir={tmp_path}/other", f"--root-dir={tmp_path}/elsewhere"]
    with service:
        for _ in range(2):
            assert await asyncio.to_thread(dispatch, [*joining, *machine.places]) == 0
            answer = await served.admin.request("GET", "/api/v1/nodes/n1/proxy/healthz")
            assert (answer.status, answer.body) == (200, b"ok")
            assert await asyncio.to_thread(dispatch, [*joining, *elsewhere, "--no-start"]) == 1
            assert "another machine has this name" in capsys.readouterr().err
            assert await asyncio.to_thread(dispatch, ["leave", *machine.places]) == 0
