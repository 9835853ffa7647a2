"""From nothing to a Ready node, with the commands that `orch-apiserver init` prints, and once more
after the machine was off for longer than its certificates last.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from nodeagent.config.options import CLIENT_FILE, SERVING_FILE
from orch.client.kubeconfig import load_kubeconfig
from orch.client.transport import Transport, TransportError
from orch.component.pki import Authority, Subject
from tests.fakes.cri_server import CriServer
from tests.fakes.ports import free_port
from tests.fakes.programs import until
from tests.fakes.runtime import FakeRuntime

pytestmark = [pytest.mark.may_block, pytest.mark.slow, pytest.mark.alone]

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


async def test_the_printed_commands_make_a_ready_node_also_after_two_years(tmp_path: Path) -> None:
    port, agent_port = free_port(), free_port()
    text = run(
        "orch-apiserver", "init", "--dir", f"{tmp_path}/pki", "--host=127.0.0.1", f"--port={port}"
    )
    serve = [*printed(text, "orch-apiserver"), f"--data-dir={tmp_path}/data",
             f"--secure-port={port}", "--bind-address=127.0.0.1",
             "--node-proxy-allow-loopback"]  # fmt: skip
    control = [*printed(text, "orch-controller-manager"), "--secure-port=0",
               "--node-monitor-grace-period=20s"]  # fmt: skip
    join = printed(text, "nodeagent")
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
            began_s = time.monotonic()
            places = [f"--settings-dir={tmp_path}/etc", f"--root-dir={tmp_path}/root"]
            own = ["--node-name=n1", "--node-ip=127.0.0.1"]
            await asyncio.to_thread(run, "nodeagent", *join, *own, *places, "--no-start")
            written = (tmp_path / "etc" / "join.env").read_text()
            flags = written.partition("JOIN_ARGS=")[2].strip().strip('"').split()
            agent = [
                *flags, f"--config-dir={tmp_path}/etc/config.d", f"--root-dir={tmp_path}/root",
                f"--pod-logs-dir={tmp_path}/logs", f"--lock-file={tmp_path}/lock",
                "--address=127.0.0.1", f"--port={agent_port}", "--healthz-port=0",
                f"--container-runtime-endpoint=unix://{tmp_path}/cri.sock",
            ]  # fmt: skip
            with daemon(tmp_path, words_of("nodeagent", *agent)):
                await answered(admin, "/api/v1/nodes/n1", READY % b"True")
                took_s = time.monotonic() - began_s
                assert took_s <= READY_WITHIN_S
                # The API server trusts the agent's certificate once the cluster issued it.
                await answered(admin, "/api/v1/nodes/n1/proxy/healthz", b"ok")
            age(tmp_path / "pki", tmp_path / "root" / "pki")
            await answered(admin, "/api/v1/nodes/n1", READY % b"Unknown")
            asked = ("token", "create", "--print-join-command")
            kubeconfig = f"--kubeconfig={tmp_path}/pki/admin.kubeconfig"
            command = await asyncio.to_thread(run, "orchctl", *asked, kubeconfig)
            rejoin = shlex.split(command)[1:]
            said = await asyncio.to_thread(run, "nodeagent", *rejoin, *own, *places, "--no-start")
            assert "gave this machine the certificate of node n1" in said
            with daemon(tmp_path, words_of("nodeagent", *agent)):
                await answered(admin, "/api/v1/nodes/n1", READY % b"True")
                await answered(admin, "/api/v1/nodes/n1/proxy/healthz", b"ok")
            left = await asyncio.to_thread(run, "nodeagent", "leave", *places)
            assert "node n1 is cordoned" in left
            assert not (tmp_path / "etc" / "kubeconfig").exists()
    finally:
        await admin.close()
        await runtime.stop()
