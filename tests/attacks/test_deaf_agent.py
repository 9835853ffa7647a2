"""Half-dead connections: the installed agent behind a relay that passes nothing on.

What was open stays open and dead; what is dialled meanwhile is cut. That is what a middlebox does
which has forgotten its connections, and an API server's address that moves.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from orch.client.kubeconfig import ClientConfig, write_kubeconfig
from orch.client.resources import ApiClient
from orch.client.transport import Transport
from orch.component.pki import KeyPair, Subject
from orch.wire.errors import ApiError
from orch.wire.records.core import Namespace, Node
from orch.wire.records.meta import ObjectMeta
from orch.wire.records.pods import Pod
from tests.e2e import apiserver
from tests.e2e.apiserver import ApiServer
from tests.fakes.cri_server import CriServer
from tests.fakes.link import Link
from tests.fakes.ports import free_port
from tests.fakes.runtime import FakeRuntime

pytestmark = [pytest.mark.may_block, pytest.mark.slow, pytest.mark.seconds(50)]

PATIENCE_S = 60.0
SEEN_WITHIN_S = 20.0  # once the network is whole again: a silence, and the longest pause of retries
SILENCE_S = 5
CONFIG = """apiVersion: nodeagent.config.orch.io/v1beta1
kind: NodeAgentConfiguration
nodeStatusUpdateFrequency: 1s
nodeStatusReportFrequency: 1s
authentication: {anonymous: {enabled: true}}
"""
OPEN = "authorization: {mode: AlwaysAllow}\n"


class Agent:
    """The process, its relay, and what it says and does."""

    def __init__(self, folder: Path, server: ApiServer, link: Link) -> None:
        self.folder, self.link = folder, link
        self.port, self.plain_port = free_port(), free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self._ca_file = server.ca_file
        admin = self._config(server.port, server.admin)
        self.api = ApiClient(Transport(admin))
        self._node = server.authority.issue(Subject("n1", "system:node:n1", ("system:nodes",)))

    def _config(self, port: int, pair: KeyPair) -> ClientConfig:
        return ClientConfig(
            server=f"https://127.0.0.1:{port}",
            ca_file=self._ca_file,
            cert_file=pair.cert_file,
            key_file=pair.key_file,
        )

    def start(self, endpoint: str, settings: str) -> None:
        kubeconfig, config = self.folder / "kubeconfig", self.folder / "agent.yaml"
        config.write_text(CONFIG + settings)
        write_kubeconfig(str(kubeconfig), self._config(self.link.port, self._node))
        with (self.folder / "agent.log").open("wb") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable, "-m", "nodeagent.main",
                    f"--config={config}", f"--kubeconfig={kubeconfig}",
                    f"--root-dir={self.folder / 'root'}", f"--pod-logs-dir={self.folder / 'logs'}",
                    f"--lock-file={self.folder / 'lock'}", "--hostname-override=n1",
                    "--node-ip=127.0.0.1", "--address=127.0.0.1", f"--port={self.port}",
                    f"--healthz-port={self.plain_port}",
                    f"--container-runtime-endpoint={endpoint}",
                    "--remove-pods-on-stop",
                ],
                stdout=log, stderr=log,
            )  # fmt: skip

    def log(self) -> str:
        return (self.folder / "agent.log").read_text()

    def stop(self) -> int:
        assert self.process
        self.process.terminate()
        try:
            return self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()

    async def page(self, path: str) -> str:
        untrusting = ssl.create_default_context()
        untrusting.check_hostname, untrusting.verify_mode = False, ssl.CERT_NONE
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"https://127.0.0.1:{self.port}{path}", ssl=untrusting) as answer,
        ):
            return await answer.text()

    async def plain_page(self, path: str) -> str:
        address = f"http://127.0.0.1:{self.plain_port}{path}"
        async with aiohttp.ClientSession() as session, session.get(address) as answer:
            return await answer.text()

    async def is_registered(self) -> bool:
        return await self.api.find(Node, "n1") is not None

    async def give_pod(self, name: str) -> None:
        """A pod that no node has room for: its agent says so as soon as it sees it."""
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100000"}}}
        spec = {"nodeName": "n1", "containers": [container]}
        meta = ObjectMeta(name=name, namespace="default")
        await self.api.create(Pod.from_wire({"metadata": meta.to_wire(), "spec": spec}))

    async def saw(self, name: str) -> bool:
        return (await self.api.get(Pod, name, "default")).status.startTime is not None

    async def until(self, check: Callable[[], Any], what: str, within_s: float) -> float:
        """Seconds that it took."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        while not await check():
            assert self.process and self.process.poll() is None, self.log()
            took_s = loop.time() - began_s
            assert took_s < within_s, f"not within {within_s:g} s: {what}\n{self.log()}"
            await asyncio.sleep(0.1)
        return loop.time() - began_s


@contextlib.asynccontextmanager
async def running(folder: Path, settings: str) -> AsyncIterator[Agent]:
    """An agent that has seen its first pod; its end must be an orderly one."""
    runtime = CriServer(FakeRuntime(), folder / "cri.sock")
    await runtime.start()
    with apiserver.running(folder) as server:
        link = Link(server.port)
        await link.start()
        agent = Agent(folder, server, link)
        try:
            with contextlib.suppress(ApiError):
                await agent.api.create(Namespace(metadata=ObjectMeta(name="default")))
            agent.start(runtime.endpoint, settings)
            await agent.until(agent.is_registered, "the node is registered", PATIENCE_S)
            await agent.give_pod("first")
            await agent.until(lambda: agent.saw("first"), "the first pod is seen", PATIENCE_S)
            yield agent
            assert await asyncio.to_thread(agent.stop) == 0, agent.log()
        finally:
            if agent.process and agent.process.poll() is None:
                agent.process.kill()
                agent.process.wait()
            await agent.api.transport.close()
            await link.stop()
            await runtime.stop()


async def test_after_failed_reports_over_dead_connections_a_new_pod_is_seen(tmp_path: Path) -> None:
    """The second failed report drops the connections: once that left the watches deaf for ever."""
    async with running(tmp_path, OPEN) as agent:
        agent.link.swallow_open_connections()
        agent.link.refusing = True

        async def lost() -> bool:
            return "cannot report the status of node n1, retrying" in agent.log()

        await agent.until(lost, "reports fail", PATIENCE_S)
        agent.link.refusing = False

        async def found() -> bool:
            return "reporting the status of node n1 again" in agent.log()

        await agent.until(found, "reports succeed", PATIENCE_S)
        await agent.give_pod("second")
        took_s = await agent.until(
            lambda: agent.saw("second"), "the second pod is seen", SEEN_WITHIN_S
        )
        assert "cannot watch pods, retrying" in agent.log(), f"seen after {took_s:.1f} s, unsaid"


async def test_a_silent_watch_is_told_by_readyz_and_dialled_anew(tmp_path: Path) -> None:
    """Nothing passes for a while, and what was open then stays dead."""
    async with running(tmp_path, f"{OPEN}watchSilence: {SILENCE_S}s\n") as agent:
        with agent.link.black_hole():

            async def says_so() -> bool:
                return "[-]informer-pods failed" in await agent.page("/readyz")

            await agent.until(says_so, "/readyz names the informer", 6 * SILENCE_S)
            told = await agent.page("/readyz/informer-pods")
            assert "the API server has not been heard about pods for" in told
            page = await agent.page("/metrics")
            (line,) = [one for one in page.splitlines() if one.startswith(
                'orch_informer_silence_seconds{resource="pods"}')]  # fmt: skip
            assert float(line.split()[1]) > SILENCE_S, line
            await agent.give_pod("second")
        await agent.until(lambda: agent.saw("second"), "the second pod is seen", SEEN_WITHIN_S)
        assert "cannot watch pods, retrying" in agent.log()


async def test_the_plain_port_tells_of_the_silence_where_no_access_can_be_reviewed(
    tmp_path: Path,
) -> None:
    """Whoever asks the secure port is asked about at the API server, which is silent."""
    async with running(tmp_path, f"watchSilence: {SILENCE_S}s\n") as agent:
        with agent.link.black_hole():

            async def says_so() -> bool:
                async with asyncio.timeout(1):
                    return "[-]informer-pods failed" in await agent.plain_page("/readyz")

            await agent.until(says_so, "/readyz names the informer", 6 * SILENCE_S)
            refused = await agent.page("/metrics")
            assert refused.startswith("Authorization error (user=system:anonymous, verb=get")
            assert "The API server gave no answer; /readyz on healthzPort" in refused
