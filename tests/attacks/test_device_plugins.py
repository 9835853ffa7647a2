"""Device plugins that are in a hurry: the agent's loop stays free for everything else.

The installed agent, alone on its node, over a fake runtime; the plugins are programs of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from nodeagent.pods.devices.inventory import MAX_DEVICES
from tests.attacks import witness
from tests.attacks.harness import line_of
from tests.e2e.harness import ROOT, eventually
from tests.fakes.cri_server import CriServer
from tests.fakes.ports import free_port
from tests.fakes.runtime import FakeRuntime

pytestmark = [pytest.mark.alone, pytest.mark.may_block]

CONFIG = "apiVersion: nodeagent.config.orch.io/v1beta1\nkind: NodeAgentConfiguration\n"
SECONDS = 5.0
LOOP_MS = 12.0  # 26 where lists were compared on the loop
SHARE = 0.5  # of a processor: reading all that such plugins list takes 1.2


@dataclass
class Felt:
    """While the health page was asked for: how long the loop computed before an answer, and the
    share of a processor that the agent took.
    """

    loop_p99_ms: float
    share: float
    slowness: float


@contextlib.asynccontextmanager
async def agent(folder: Path) -> AsyncIterator[tuple[int, int]]:
    """Its process id and the port of its health page."""
    runtime = CriServer(FakeRuntime(), folder / "cri.sock")
    await runtime.start()
    health = free_port()
    (folder / "agent.yaml").write_text(CONFIG)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                sys.executable, "-m", "nodeagent.main", f"--config={folder / 'agent.yaml'}",
                f"--root-dir={folder / 'root'}", f"--pod-logs-dir={folder / 'logs'}",
                f"--lock-file={folder / 'lock'}", "--hostname-override=n1", "--node-ip=127.0.0.1",
                "--address=127.0.0.1", f"--port={free_port()}", f"--healthz-port={health}",
                f"--container-runtime-endpoint={runtime.endpoint}",
            ],
            cwd=ROOT, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        socket = folder / "root/device-plugins/kubelet.sock"
        what = "device plugins may register"
        await asyncio.to_thread(eventually, socket.exists, within_s=60, what=what)
        yield process.pid, health
    finally:
        process.kill()
        process.wait()
        await runtime.stop()


@contextlib.contextmanager
def plugins(folder: Path, *counts: int) -> Iterator[None]:
    """Plugins of an agent, of so many devices, all of which change without pause."""
    with contextlib.ExitStack() as stack:
        for number, count in enumerate(counts):
            words = str(folder / "root/device-plugins"), f"example.com/r{number}", str(count)
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.attacks.hasty_plugin", *words],
                cwd=ROOT, stdout=subprocess.PIPE,
            )  # fmt: skip
            stack.callback(process.communicate)
            stack.callback(process.kill)
            assert line_of(process) == b"listing\n"
            offers = f"offers {count} devices of example.com/r{number}"
            log = folder / "log"
            eventually(partial(_says, log, offers), within_s=60, what=offers)
        yield


def _says(log: Path, text: str) -> bool:
    return text in log.read_text()


def felt(pid: int, port: int) -> Felt:
    """In `SECONDS` of asking."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    loop_ms: list[float] = []
    yardstick_ms: list[float] = []
    began_s, took_s = time.monotonic(), witness.computed_s(pid)
    while time.monotonic() < began_s + SECONDS:
        before_s = witness.computed_s(pid, pid)
        connection.request("GET", "/healthz")
        assert connection.getresponse().read() == b"ok"
        loop_ms.append(1000 * (witness.computed_s(pid, pid) - before_s))
        yardstick_ms.append(witness.yardstick_ms())
        time.sleep(witness.PING_S)
    share = (witness.computed_s(pid) - took_s) / (time.monotonic() - began_s)
    connection.close()
    return Felt(witness.p99(loop_ms), share, witness.slowness(yardstick_ms))


async def test_lists_that_change_without_pause_leave_the_agent_to_others(tmp_path: Path) -> None:
    async with agent(tmp_path) as (pid, port):

        def attack() -> tuple[Felt, str]:
            with plugins(tmp_path, MAX_DEVICES // 2, MAX_DEVICES // 2 - 100):
                return felt(pid, port), (tmp_path / "log").read_text()

        seen, said = await asyncio.to_thread(attack)
    assert "is gone" not in said, "the plugins were listened to all the time"
    assert seen.loop_p99_ms <= LOOP_MS * seen.slowness, seen
    assert seen.share <= SHARE, seen
