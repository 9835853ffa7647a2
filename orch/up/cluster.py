"""The three daemons of a local cluster: their certificates, their command lines, their order.

Start: API server, controller manager, node agent; each is healthy before the next begins. Stop runs
the other way round. Everything is written below the layout's directory.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from orch.client.kubeconfig import ClientConfig, write_kubeconfig
from orch.client.resources import ApiClient
from orch.client.transport import Transport, TransportError
from orch.component.clock import utc_now
from orch.component.daemon import SetupError
from orch.up.child import Child
from orch.up.layout import Layout
from orch.up.pki import Authority, KeyPair, Subject
from orch.up.runtime import RuntimeChoice
from orch.wire import names
from orch.wire.core import Node
from orch.wire.errors import ApiError

log = logging.getLogger(__name__)

_START_DEADLINE_S = 60.0
_POLL_S = 0.05
_STOP_GRACE_S = 40.0


@dataclass(frozen=True, slots=True)
class Ports:
    """0 picks a free one."""

    apiserver: int
    nodeagent: int
    healthz: int


@dataclass(frozen=True, slots=True)
class Certificates:
    ca_file: str
    apiserver: KeyPair
    proxy: KeyPair  # the API server's own, towards the node agent
    nodeagent: KeyPair  # serving
    node: KeyPair
    controller: KeyPair
    admin: KeyPair
    monitoring: KeyPair


class Cluster:
    """Started programs and where they answer; `stop` may be called at any point."""

    def __init__(self, layout: Layout, ports: Ports, node: str, runtime: RuntimeChoice) -> None:
        self._layout = layout
        self._ports = ports
        self._node = node
        self._runtime = runtime
        self._children: list[Child] = []
        self._certificates = issue_certificates(layout.pki, node)

    async def start(self) -> None:
        """Start everything and wait until the node reports; SetupError names what did not come."""
        apiserver_url = await self._start_apiserver()
        self._write_kubeconfigs(apiserver_url)
        await self._start_controller()
        agent_port, healthz_port = await self._start_agent()
        await self._node_ready(apiserver_url)
        self._write_cluster_file(apiserver_url, agent_port, healthz_port)

    async def child_ended(self) -> Child:
        """Wait until any program ends by itself, and return it."""
        waits = {asyncio.ensure_future(child.wait()): child for child in self._children}
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return waits[done.pop()]

    async def stop(self) -> None:
        self._layout.cluster_file.unlink(missing_ok=True)
        for child in reversed(self._children):
            await child.stop(grace_s=_STOP_GRACE_S)
        self._children.clear()

    async def _start_apiserver(self) -> str:
        certificates = self._certificates
        port_file = self._fresh_port_file("apiserver")
        child = await self._spawn(
            "apiserver",
            "orch.server.main",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._ports.apiserver}",
            f"--port-file={port_file}",
            f"--data-dir={self._layout.store}",
            f"--client-ca-file={certificates.ca_file}",
            f"--tls-cert-file={certificates.apiserver.cert_file}",
            f"--tls-private-key-file={certificates.apiserver.key_file}",
            f"--nodeagent-certificate-authority={certificates.ca_file}",
            f"--nodeagent-client-certificate={certificates.proxy.cert_file}",
            f"--nodeagent-client-key={certificates.proxy.key_file}",
            "--node-proxy-allow-loopback",
        )
        url = f"https://127.0.0.1:{await self._port(child, port_file)}"
        async with _Patience(child, "the API server is not ready") as patience:
            client = self._client(url)
            try:
                while not await _answers(client.transport, "/readyz"):
                    await patience.pause()
            finally:
                await client.transport.close()
        return url

    async def _start_controller(self) -> None:
        port_file = self._fresh_port_file("controller-manager")
        child = await self._spawn(
            "controller-manager",
            "orch.lifecycle.main",
            f"--kubeconfig={self._layout.kubeconfig('controller-manager')}",
            "--secure-port=0",
            f"--port-file={port_file}",
        )
        await self._port(child, port_file)

    async def _start_agent(self) -> tuple[int, int]:
        certificates = self._certificates
        port_file = self._fresh_port_file("nodeagent")
        healthz_port = self._ports.healthz or _free_port()
        self._write_agent_config()
        child = await self._spawn(
            "nodeagent",
            "nodeagent.main",
            f"--config={self._layout.agent_config}",
            f"--config-dir={self._layout.agent_drop_ins}",
            f"--kubeconfig={self._layout.kubeconfig('node')}",
            f"--root-dir={self._layout.agent_root}",
            f"--lock-file={self._layout.run_dir / 'nodeagent.lock'}",
            f"--hostname-override={self._node}",
            f"--port={self._ports.nodeagent}",
            f"--port-file={port_file}",
            f"--healthz-port={healthz_port}",
            f"--client-ca-file={certificates.ca_file}",
            f"--tls-cert-file={certificates.nodeagent.cert_file}",
            f"--tls-private-key-file={certificates.nodeagent.key_file}",
            f"--container-runtime-endpoint={self._runtime.endpoint or ''}",
            "--node-ip=127.0.0.1",
            "--remove-pods-on-stop",
        )
        return await self._port(child, port_file), healthz_port

    async def _node_ready(self, url: str) -> None:
        """Wait for Ready; without a runtime the node's own word that it is not is enough."""
        async with _Patience(self._children[-1], f"node {self._node} is not Ready") as patience:
            client = self._client(url)
            try:
                while not await self._node_reports(client):
                    await patience.pause()
            finally:
                await client.transport.close()

    async def _node_reports(self, client: ApiClient) -> bool:
        try:
            node = await client.get(Node, self._node)
        except (ApiError, TransportError):
            return False
        ready = [c.status for c in node.status.conditions or () if c.type == "Ready"]
        return "True" in ready if self._runtime.endpoint else bool(ready)

    async def _spawn(self, name: str, module: str, *arguments: str) -> Child:
        log_file = self._layout.logs / f"{name}.log"
        child = await Child.start(name, [sys.executable, "-m", module, *arguments], log_file)
        self._children.append(child)
        return child

    async def _port(self, child: Child, port_file: Path) -> int:
        async with _Patience(child, f"{child.name} does not listen") as patience:
            while not port_file.exists():
                await patience.pause()
        return int(port_file.read_text())

    def _fresh_port_file(self, name: str) -> Path:
        path = self._layout.port_file(name)
        path.unlink(missing_ok=True)
        return path

    def _client(self, url: str) -> ApiClient:
        admin = self._certificates.admin
        config = ClientConfig(
            server=url,
            ca_file=self._certificates.ca_file,
            cert_file=admin.cert_file,
            key_file=admin.key_file,
        )
        return ApiClient(Transport(config, timeout_s=5.0, user_agent="orch-up"))

    def _write_kubeconfigs(self, url: str) -> None:
        certificates = self._certificates
        for name, pair in (
            ("admin", certificates.admin),
            ("node", certificates.node),
            ("controller-manager", certificates.controller),
        ):
            write_kubeconfig(
                str(self._layout.kubeconfig(name)),
                ClientConfig(
                    server=url,
                    ca_file=certificates.ca_file,
                    cert_file=pair.cert_file,
                    key_file=pair.key_file,
                ),
                user=name,
            )

    def _write_agent_config(self) -> None:
        """The main configuration file; what a user adds goes into the drop-in directory."""
        self._layout.agent_config.write_text(
            "# Written at every start; put your own settings into nodeagent.conf.d/*.conf.\n"
            f"apiVersion: {names.AGENT_CONFIG_API_VERSION}\n"
            f"kind: {names.AGENT_CONFIG_KIND}\n"
            f"staticPodPath: {json.dumps(str(self._layout.manifests))}\n"
            f"podLogsDir: {json.dumps(str(self._layout.logs / 'pods'))}\n"
        )
        demo = self._layout.manifests / "demo.yaml"
        first_start = not any(self._layout.manifests.iterdir())
        if self._runtime.provisioned and first_start:
            demo.write_text(resources.files("orch.up").joinpath("demo.yaml").read_text())

    def _write_cluster_file(self, url: str, agent_port: int, healthz_port: int) -> None:
        certificates = self._certificates
        description = {
            "apiserver": url,
            "nodeagent": f"https://127.0.0.1:{agent_port}",
            "nodeagentHealthz": f"http://127.0.0.1:{healthz_port}",
            "node": self._node,
            "runtime": self._runtime.endpoint,
            "kubeconfig": str(self._layout.kubeconfig("admin")),
            "caFile": certificates.ca_file,
            "clientCert": certificates.admin.cert_file,
            "clientKey": certificates.admin.key_file,
            "monitoringCert": certificates.monitoring.cert_file,
            "monitoringKey": certificates.monitoring.key_file,
            "pids": {child.name: child.pid for child in self._children},
        }
        temporary = self._layout.cluster_file.with_suffix(".new")
        temporary.write_text(json.dumps(description, indent=2) + "\n")
        temporary.replace(self._layout.cluster_file)


class _Patience:
    """A bounded wait for a child: ends with SetupError when it dies or takes too long."""

    def __init__(self, child: Child, complaint: str) -> None:
        self._child = child
        self._complaint = complaint
        self._deadline_s = 0.0

    async def __aenter__(self) -> _Patience:
        self._deadline_s = asyncio.get_running_loop().time() + _START_DEADLINE_S
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    async def pause(self) -> None:
        await asyncio.sleep(_POLL_S)
        child = self._child
        if child.exit_code is not None:
            raise SetupError(
                f"{child.name} ended with exit code {child.exit_code}; the end of "
                f"{child.log_file}:\n{child.last_lines()}"
            )
        if asyncio.get_running_loop().time() > self._deadline_s:
            raise SetupError(
                f"{self._complaint} after {_START_DEADLINE_S:.0f} s; the end of "
                f"{child.log_file}:\n{child.last_lines()}"
            )


def issue_certificates(directory: Path, node: str) -> Certificates:
    """One certificate for every program and person of the cluster."""
    authority = Authority(directory, now=utc_now())
    local = ["localhost", "127.0.0.1", "::1"]

    def client(file_name: str, user: str, *groups: str) -> KeyPair:
        return authority.issue(Subject(file_name, user, groups))

    return Certificates(
        ca_file=authority.ca_file,
        apiserver=authority.issue(Subject("apiserver", "orch-apiserver", (), local)),
        proxy=client("apiserver-nodeagent-client", names.USER_APISERVER),
        nodeagent=authority.issue(Subject("nodeagent", node, (), [node, *local])),
        node=client("node", f"{names.USER_NODE_PREFIX}{node}", names.GROUP_NODES),
        controller=client("controller-manager", names.USER_CONTROLLER_MANAGER),
        admin=client("admin", "admin", names.GROUP_MASTERS),
        monitoring=client("monitoring", "prometheus", names.GROUP_MONITORING),
    )


async def _answers(transport: Transport, path: str) -> bool:
    try:
        return (await transport.request("GET", path)).status == 200
    except TransportError:
        return False


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def default_node_name() -> str:
    return socket.gethostname().lower()


def summary_lines(layout: Layout, ready_after_s: float) -> Sequence[str]:
    """What the operator sees when all is healthy; the first line begins with `ready`."""
    cluster = json.loads(layout.cluster_file.read_text())
    return (
        f"ready after {ready_after_s:.1f} s: node {cluster['node']}",
        f"  API server  {cluster['apiserver']}",
        f"  node agent  {cluster['nodeagent']}  (health {cluster['nodeagentHealthz']}/healthz)",
        f"  runtime     {cluster['runtime'] or 'none'}",
        f"  manifests   {layout.manifests}",
        f"  logs        {layout.logs}",
        f"  try         kubectl --kubeconfig {cluster['kubeconfig']} get nodes,pods -A",
    )
