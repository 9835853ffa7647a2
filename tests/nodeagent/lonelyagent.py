"""One installed agent in a network namespace of its own; a link is its only way to the API server.

The link is a veth pair on which packets can be lost, and a relay on its far end that can be slow,
refuse, or lead to a server that answers with errors. The API server is a real one.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

from aiohttp import web

from orch.client.kubeconfig import ClientConfig, write_kubeconfig
from orch.component.http.httpd import HttpServer, server_context
from orch.component.pki import Authority, KeyPair, Subject
from orch.component.process import clock
from tests.fakes.link import Link
from tests.fakes.network import HOST, INSIDE, Network
from tests.orch.server.harness import LEASES, NODES, Api, Pki, make_pki

LEASE_S = 4  # so that it is renewed every second
PATIENCE_S = 60.0
CLUSTER_AGE = timedelta(hours=3)  # so that its certificates are good for a clock that is behind
CONFIG = f"""apiVersion: nodeagent.config.orch.io/v1beta1
kind: NodeAgentConfiguration
nodeLeaseDurationSeconds: {LEASE_S}
nodeStatusUpdateFrequency: 1s
"""


class LonelyAgent:
    """The process, its log, and what the API server knows of it."""

    def __init__(self, folder: Path, api: Api, link: Link, network: Network) -> None:
        self.api, self.link, self.network = api, link, network
        self._folder = folder
        self._cert, self._key = folder / "node.crt", folder / "node.key"
        self.root = folder / "root"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *flags: str, environment: Mapping[str, str]) -> None:
        self.use_certificate(self.api.pki.users["n1"])
        kubeconfig, config = self._folder / "kubeconfig", self._folder / "agent.yaml"
        config.write_text(CONFIG)
        server = ClientConfig(
            server=f"https://n1:{self.link.port}",
            ca_file=self.api.pki.ca_file,
            cert_file=str(self._cert),
            key_file=str(self._key),
        )
        write_kubeconfig(str(kubeconfig), server)
        with (self._folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [
                    "ip", "netns", "exec", self.network.name,
                    sys.executable, "-m", "nodeagent.main",
                    f"--config={config}", f"--kubeconfig={kubeconfig}", f"--root-dir={self.root}",
                    f"--pod-logs-dir={self._folder / 'logs'}",
                    f"--lock-file={self._folder / 'lock'}",
                    "--hostname-override=n1", f"--node-ip={INSIDE}", "--address=127.0.0.1",
                    "--container-runtime-endpoint=", *flags,
                ],
                stdout=log, stderr=log, env={**os.environ, **environment},
            )  # fmt: skip

    def use_certificate(self, pair: KeyPair) -> None:
        shutil.copy(pair.cert_file, self._cert)
        shutil.copy(pair.key_file, self._key)

    def log(self) -> str:
        return (self._folder / "log").read_text()

    def send(self, number: signal.Signals) -> None:
        assert self.process
        self.process.send_signal(number)

    def stop(self) -> int:
        """Its exit code after being asked to end."""
        assert self.process
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            return self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()

    async def renewed(self, *, within_s: float = PATIENCE_S) -> float:
        """Seconds until the API server has seen one more renewal."""
        before = await self.renew_time()

        async def changed() -> bool:
            return await self.renew_time() not in ("", before)

        return await self.until(changed, within_s=within_s)

    async def renew_time(self) -> str:
        """What the Lease says; "" while there is none."""
        answer = await self.api.call("GET", f"{LEASES}/n1")
        return str(answer.json["spec"]["renewTime"]) if answer.status == 200 else ""

    async def ready(self) -> dict[str, Any]:
        """The Ready condition."""
        answer = await self.api.call("GET", f"{NODES}/n1")
        conditions = answer.json.get("status", {}).get("conditions", [])
        return next((c for c in conditions if c["type"] == "Ready"), {})

    async def says(self, text: str, *, after: int = 0) -> float:
        async def said() -> bool:
            return text in self.log()[after:]

        try:
            return await self.until(said)
        except TimeoutError:
            raise AssertionError(f"not said: {text}\n{self.log()[after:]}") from None

    async def until(self, check: Callable[[], Any], *, within_s: float = PATIENCE_S) -> float:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        async with asyncio.timeout(within_s):
            while not await check():
                assert self.process and self.process.poll() is None, self.log()
                await asyncio.sleep(0.05)
        return loop.time() - began_s


@asynccontextmanager
async def answering(code: int, pki: Pki) -> AsyncIterator[int]:
    """A server with the API server's certificate that answers everything so; its port."""

    async def refuse(_request: web.Request) -> web.Response:
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
                  "reason": "Whatever", "message": f"no, {code}"}  # fmt: skip
        return web.json_response(status, status=code)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", refuse)
    context = server_context(pki.server.cert_file, pki.server.key_file, client_ca_file=pki.ca_file)
    http = HttpServer(app, host="127.0.0.1", port=0, ssl_context=context, name="refusing")
    try:
        yield await http.start()
    finally:
        await http.stop(grace_s=0.1)


def expired_certificate(folder: Path) -> KeyPair:
    """Of node n1, by the authority of `make_pki` in this folder, two years old."""
    authority = Authority(folder, now=clock.utc_now() - timedelta(days=730))
    return authority.issue(Subject("expired", "system:node:n1", ("system:nodes",)))


@asynccontextmanager
async def lonely_agent(
    folder: Path, *flags: str, environment: Mapping[str, str] = MappingProxyType({})
) -> AsyncIterator[LonelyAgent]:
    """Started and renewing; must end with exit code 0 whatever was done to it."""
    pki = make_pki(folder / "pki", clock.utc_now() - CLUSTER_AGE)
    network = Network()
    api = await Api.start(pki, folder / "data")
    agent = None
    link = Link(api.port, HOST)
    try:
        network.make()
        await link.start()
        agent = LonelyAgent(folder, api, link, network)
        agent.start(*flags, environment=environment)
        await agent.renewed()
        yield agent
        assert await asyncio.to_thread(agent.stop) == 0, agent.log()
    finally:
        if agent and agent.process and agent.process.poll() is None:
            agent.process.kill()
            agent.process.wait()
        await link.stop()
        await api.stop()
        network.remove()
