"""The three daemons of a local cluster: started in order, watched, stopped in reverse order.

Start: API server, controller manager, node agent; each is healthy before the next one starts. A
daemon that exits later is restarted, as a service manager would, unless it keeps exiting.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Sequence

from orch.client.kubeconfig import ClientConfig, write_kubeconfig
from orch.client.resources import ApiClient
from orch.client.transport import Transport, TransportError
from orch.component.pki import KeyPair
from orch.component.process import clock
from orch.component.process.atomic_file import replace_file
from orch.component.process.daemon import SetupError
from orch.up import commands
from orch.up.child import Child
from orch.up.commands import Command, Ports
from orch.up.layout import Certificates, Layout
from orch.wire import names, times
from orch.wire.errors import ApiError
from orch.wire.records.configuration import Lease
from orch.wire.records.core import Node

log = logging.getLogger(__name__)

START_DEADLINE_S = 60.0
_POLL_S = 0.05
LOG_AFTER_S = 5.0
_NEVER = "1970-01-01T00:00:00Z"
_STOP_GRACE_S = 45.0
RESTART_PAUSE_S = 1.0
MAX_RESTARTS = 5  # within RESTART_WINDOW_S
RESTART_WINDOW_S = 60.0


class Cluster:
    """The daemons and their addresses; `stop` may be called at any point."""

    def __init__(
        self,
        layout: Layout,
        ports: Ports,
        certificates: Certificates,
        *,
        node: str,
        runtime: str | None,
        apiserver_flags: Sequence[str] = (),
    ) -> None:
        self.layout = layout
        self.ports = ports
        self.certificates = certificates
        self.node = node
        self.runtime = runtime
        self.url = f"https://127.0.0.1:{ports.apiserver}"
        self._children: dict[str, Child] = {}
        self._agent_started = clock.utc_now()
        self.not_ready = ""  # the node's own reason
        self._commands: dict[str, Command] = {
            "apiserver": commands.apiserver(layout, ports, certificates, apiserver_flags),
            "controller-manager": commands.controller_manager(layout, ports, certificates),
            "nodeagent": commands.nodeagent(layout, ports, certificates, node, runtime),
        }

    async def start(self) -> None:
        """Start everything and wait until the node reports; SetupError names the failed part."""
        self._write_kubeconfigs()
        await self.start_child("apiserver")
        await self._until("apiserver", "the API server is not ready", self.apiserver_ready)
        await self.start_child("controller-manager")
        self._agent_started = clock.utc_now()
        await self.start_child("nodeagent")
        await self._until("nodeagent", f"node {self.node} is not Ready", self.node_reports)
        self.write_cluster_file()

    async def start_child(self, name: str) -> Child:
        log_file = self.layout.logs / f"{name}.log"
        child = await Child.start(name, self._commands[name], log_file)
        self._children[name] = child
        return child

    def child(self, name: str) -> Child:
        return self._children[name]

    async def keep(self, name: str) -> None:
        """Restart a daemon whenever it exits; SetupError when it keeps exiting."""
        loop = asyncio.get_running_loop()
        ended_s: list[float] = []
        while True:
            child = self._children[name]
            code = await child.wait()
            ended_s = [t for t in ended_s if loop.time() - t < RESTART_WINDOW_S] + [loop.time()]
            if len(ended_s) > MAX_RESTARTS:
                raise SetupError(f"{name} keeps exiting; {_log_end(child)}")
            log.warning(
                "%s exited with code %s and is restarted; the end of its log: %s",
                name,
                code,
                child.last_lines(1).strip(),
            )
            await asyncio.sleep(RESTART_PAUSE_S)
            await self.start_child(name)
            self.write_cluster_file()

    async def stop(self) -> None:
        self.layout.cluster_file.unlink(missing_ok=True)
        for child in reversed(self._children.values()):
            await child.stop(grace_s=_STOP_GRACE_S)
        self._children.clear()

    async def apiserver_ready(self) -> bool:
        transport = self._transport()
        try:
            return (await transport.request("GET", "/readyz")).status == 200
        except TransportError:
            return False
        finally:
            await transport.close()

    async def node_reports(self) -> bool:
        """Whether this start's agent renews the Lease, and the node is Ready.

        Without a runtime, a node that reports not being Ready is enough. What an earlier start left
        at the API server does not count.
        """
        transport = self._transport()
        client = ApiClient(transport)
        try:
            lease = await client.get(Lease, self.node, names.NODE_LEASE_NAMESPACE)
            node = await client.get(Node, self.node)
        except (ApiError, TransportError):
            return False
        finally:
            await transport.close()
        if times.parse_time(lease.spec.renewTime or _NEVER) < self._agent_started:
            return False
        ready = [c for c in node.status.conditions or () if c.type == "Ready"]
        doubts = [c.message or c.reason or c.status for c in ready if c.status != "True"]
        self.not_ready = "; ".join(doubts)
        return bool(ready) and (not self.runtime or not doubts)

    def write_cluster_file(self) -> None:
        """The contract of cluster.json: where everything is, and the process ids."""
        certificates, layout = self.certificates, self.layout
        description = {
            "apiserver": self.url,
            "nodeagent": f"https://127.0.0.1:{self.ports.nodeagent}",
            "nodeagentHealthz": f"http://127.0.0.1:{self.ports.healthz}",
            "controllerManager": f"https://127.0.0.1:{self.ports.controller}",
            "node": self.node,
            "runtime": self.runtime,
            "kubeconfig": str(layout.kubeconfig("admin")),
            "caFile": certificates.ca_file,
            "clientCert": certificates.admin.cert_file,
            "clientKey": certificates.admin.key_file,
            "monitoringCert": certificates.monitoring.cert_file,
            "monitoringKey": certificates.monitoring.key_file,
            "pids": {name: child.pid for name, child in self._children.items()},
        }
        text = json.dumps(description, indent=2) + "\n"
        replace_file(layout.cluster_file, text.encode(), mode=0o644)

    async def _until(self, name: str, problem: str, done: Callable[[], Awaitable[bool]]) -> None:
        """Poll until done; SetupError when the daemon exits or takes too long."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        child, logged = self._children[name], False
        while not await done():
            waited_s = loop.time() - began_s
            why = f": {self.not_ready}" if self.not_ready else ""
            if child.exit_code is not None:
                raise SetupError(f"{name} exited with code {child.exit_code}; {_log_end(child)}")
            if waited_s > START_DEADLINE_S:
                raise SetupError(f"{problem} after {waited_s:.0f} s{why}; {_log_end(child)}")
            if waited_s > LOG_AFTER_S and not logged:
                logged = True
                log.info("waiting: %s%s", problem, why)
            await asyncio.sleep(_POLL_S)

    def _transport(self) -> Transport:
        config = self._client_config(self.certificates.admin)
        return Transport(config, timeout_s=5.0, user_agent="orch-up")

    def _write_kubeconfigs(self) -> None:
        own = self.certificates
        pairs = {"admin": own.admin, "node": own.node, "controller-manager": own.controller}
        for name, pair in pairs.items():
            path = str(self.layout.kubeconfig(name))
            write_kubeconfig(path, self._client_config(pair), name=name)

    def _client_config(self, pair: KeyPair) -> ClientConfig:
        return ClientConfig(
            server=self.url,
            ca_file=self.certificates.ca_file,
            cert_file=pair.cert_file,
            key_file=pair.key_file,
        )


def _log_end(child: Child) -> str:
    return f"the end of {child.log_file}:\n{child.last_lines()}"
