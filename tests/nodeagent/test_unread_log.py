"""The agent whose log nobody reads any more, as when the journal hangs."""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import select
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import aiohttp
import pytest

from orch.client.kubeconfig import ClientConfig, write_kubeconfig
from orch.component.process import clock, log_queue, loops
from tests.orch.server.harness import LEASES, Api, make_pki

pytestmark = pytest.mark.slow

PATIENCE_S = 60.0
LEASE_S = 8  # so that it is renewed every two seconds
CONFIG = f"""apiVersion: nodeagent.config.orch.io/v1beta1
kind: NodeAgentConfiguration
nodeLeaseDurationSeconds: {LEASE_S}
"""
# Each is told at level debug, with as much of it as is parsed in one go.
MALFORMED = b"GET /%s\x00 HTTP/1.1\r\n\r\n" % (b"x" * 2000)


class Agent:
    """The process, and the read end of the pipe that is its standard error."""

    def __init__(self, process: subprocess.Popen[bytes], log: int, healthz_port: int) -> None:
        self.process, self._log, self._healthz_port = process, log, healthz_port

    def read(self, until: str) -> str:
        """What it has said up to these words."""
        read = b""
        while until.encode() not in read:
            ready, _, _ = select.select([self._log], [], [], PATIENCE_S)
            chunk = os.read(self._log, 65536) if ready else b""
            assert chunk, read[-1000:]
            read += chunk
        return read.decode()

    async def healthz(self, session: aiohttp.ClientSession) -> int:
        async with session.get(f"http://127.0.0.1:{self._healthz_port}/healthz") as answer:
            return answer.status

    async def disturb(self, times: int) -> None:
        """Requests that it cannot read, each of which is worth a long log line."""
        for _ in range(times):
            reader, writer = await asyncio.open_connection("127.0.0.1", self._healthz_port)
            writer.write(MALFORMED)
            status = await reader.readline()
            writer.close()
            await writer.wait_closed()
            assert b" 400 " in status


@contextmanager
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, 4096)
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)


@asynccontextmanager
async def agent_of(api: Api, folder: Path, free_port: Callable[[], int]) -> AsyncIterator[Agent]:
    """It logs at level debug; must end with exit code 0."""
    healthz_port = free_port()
    user = api.pki.users["n1"]
    kubeconfig, config = folder / "kubeconfig", folder / "agent.yaml"
    server = ClientConfig(
        api.url(""), ca_file=api.pki.ca_file, cert_file=user.cert_file, key_file=user.key_file
    )
    write_kubeconfig(str(kubeconfig), server)
    config.write_text(CONFIG)
    flags = (
        f"--config={config}", f"--kubeconfig={kubeconfig}", f"--root-dir={folder / 'root'}",
        f"--pod-logs-dir={folder / 'logs'}", f"--lock-file={folder / 'lock'}", "--log-level=debug",
        "--hostname-override=n1", "--node-ip=127.0.0.1", "--address=127.0.0.1",
        f"--port={free_port()}", f"--healthz-port={healthz_port}", "--container-runtime-endpoint=",
    )  # fmt: skip
    with (
        pipe() as (read_end, write_end),
        subprocess.Popen(
            [sys.executable, "-m", "nodeagent.main", *flags], stderr=write_end
        ) as process,
    ):
        try:
            yield Agent(process, read_end, healthz_port)
            process.terminate()
            assert await asyncio.to_thread(process.wait, PATIENCE_S) == 0
        finally:
            process.kill()


async def next_renewal(api: Api, after: str) -> str:
    """What the Lease says once it says something else."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            answer = await api.call("GET", f"{LEASES}/n1")
            if answer.status == 200 and answer.json["spec"]["renewTime"] != after:
                return str(answer.json["spec"]["renewTime"])
            await asyncio.sleep(0.05)


async def watch_renewals(api: Api, seen: list[str]) -> None:
    while True:
        seen.append(await next_renewal(api, seen[-1]))


@asynccontextmanager
async def renewed_in_time(api: Api) -> AsyncIterator[None]:
    """The Lease never runs out meanwhile, and is renewed twice afterwards."""
    renewals = [await next_renewal(api, "")]
    watching = loops.spawn(watch_renewals(api, renewals), name="renewals")
    try:
        yield
        await next_renewal(api, await next_renewal(api, renewals[-1]))
    finally:
        await loops.cancel(watching)
    moments = [datetime.fromisoformat(one) for one in renewals]
    gaps = [later - sooner for sooner, later in pairwise(moments)]
    assert max(gaps) < timedelta(seconds=LEASE_S)


async def test_an_agent_with_an_unread_log_stays_healthy_and_logs_the_loss(
    tmp_path: Path, free_port: Callable[[], int]
) -> None:
    api = await Api.start(make_pki(tmp_path / "pki", clock.utc_now()), tmp_path / "data")
    try:
        async with agent_of(api, tmp_path, free_port) as agent:
            async with renewed_in_time(api), aiohttp.ClientSession() as session:
                for _ in range(10):
                    await agent.disturb(2 * log_queue.MAX_BYTES // len(MALFORMED) // 10)
                    assert await agent.healthz(session) == 200
            log = await asyncio.to_thread(agent.read, "took none\n")
            (number,) = re.findall(r"WARNING \S+: (\d+) log lines were dropped while", log)
            assert int(number) > 0
            await agent.disturb(1)
            await asyncio.to_thread(agent.read, "malformed")
    finally:
        await api.stop()
