"""The CPU of an agent's Lease and status loops alone, in a process that does nothing else.

    python -m tools.bench.heartbeat_cost KUBECONFIG idle|beating     (started by `main`)

Two processes have read the machine and built the loops; only one of them runs the loops, over TLS
to an otherwise idle API server. The cost is the difference, measured at the same time for
`BENCH_HEARTBEAT_SECONDS` (120).
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import tempfile
import time
from pathlib import Path

from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.heartbeat import LeaseLoop
from nodeagent.node import collector
from nodeagent.node.rules.settings import node_settings
from nodeagent.node.status_loop import StatusLoop
from nodeagent.runtime.base import RuntimeCondition, RuntimeVersion
from nodeagent.runtime.verdict import NETWORK_READY, RUNTIME_READY, RuntimeHealth
from nodeagent.stats.host.machine import read_host_facts
from nodeagent.stats.sampler import Sampler
from nodeagent.stats.sources import Sources
from orch.client.kubeconfig import load_kubeconfig
from orch.client.resources import ApiClient
from orch.client.transport import Transport
from orch.component.flags.features import Features
from orch.component.process import clock
from orch.component.process.daemon import freeze_gc
from orch.wire import names, times
from orch.wire.names import VERSION
from orch.wire.records.configuration import Lease
from tests.e2e import apiserver
from tools.bench import peers, processes
from tools.bench.table import Table

MEASURED_S = float(os.environ.get("BENCH_HEARTBEAT_SECONDS") or 120)
SETTLING_S = 20.0  # registering, and the haste of the first reports
_CONDITIONS = (RuntimeCondition(RUNTIME_READY, True), RuntimeCondition(NETWORK_READY, True))
_RUNTIME = RuntimeVersion("none", "0", "v1")


def main() -> int:
    """Run the benchmark; the number of missed limits."""
    table = Table()
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        with apiserver.running(folder):
            _measure(str(folder / "kubeconfig"), table)
    print(f"\n{table.markdown()}")
    return table.missed


def _measure(kubeconfig: str, table: Table) -> None:
    command = [sys.executable, "-m", "tools.bench.heartbeat_cost", kubeconfig]
    with peers.running([*command, "idle"]) as idle, peers.running([*command, "beating"]) as beating:
        time.sleep(SETTLING_S)
        before = [processes.cpu_s(process.pid) for process in (idle, beating)]
        time.sleep(MEASURED_S)
        used = [
            processes.cpu_s(p.pid) - was for p, was in zip((idle, beating), before, strict=True)
        ]
    percents = [100 * seconds / MEASURED_S for seconds in used]
    cost = percents[1] - percents[0]
    late_s = asyncio.run(_since_renewal(kubeconfig))
    table.row("since the last renewal, at the end, s", late_s, at_most=15)
    table.row(f"Lease and status loops over {MEASURED_S:g} s, % of a core", cost, at_most=0.1)
    table.note("the same process without them, % of a core", f"{percents[0]:.4f}")


async def _since_renewal(kubeconfig: str) -> float:
    """Check that the loops ran during the measurement."""
    client = ApiClient(Transport(load_kubeconfig(kubeconfig)))
    lease = await client.get(Lease, _name(), names.NODE_LEASE_NAMESPACE)
    await client.transport.close()
    renewed = times.parse_time(lease.spec.renewTime or "")
    return (clock.utc_now() - renewed).total_seconds()


async def _live(kubeconfig: str, *, beating: bool) -> None:
    config = load_kubeconfig(kubeconfig)
    sampler = Sampler(targets=tuple, sources=Sources())
    await sampler.step()
    status, lease = (
        _status_loop(ApiClient(Transport(config)), sampler),
        ApiClient(Transport(config)),
    )
    freeze_gc()
    if not beating:
        await asyncio.Event().wait()
    await asyncio.gather(status.run(), status.watch(), LeaseLoop(lease, _name()).run())


class _WellRuntime:
    """A runtime watch whose last answer is always current."""

    @property
    def health(self) -> RuntimeHealth:
        now_s = asyncio.get_running_loop().time()
        return RuntimeHealth(last_good_s=now_s, conditions=_CONDITIONS, version=_RUNTIME)

    async def known(self) -> None:
        return


def _status_loop(client: ApiClient, sampler: Sampler) -> StatusLoop:
    """This machine's facts, with a healthy runtime, which another loop queries."""
    machine = collector.machine_facts(read_host_facts(), hostname=_name())
    facts = collector.FactsCollector(
        machine,
        sampler,
        _WellRuntime(),
    )
    settings = node_settings(
        NodeAgentConfiguration(),
        node_name=_name(), agent_version=VERSION, agent_port=10250,
        node_labels={}, features=Features({}),
    )  # fmt: skip
    return StatusLoop(client, settings, facts.collect)


def _name() -> str:
    return socket.gethostname().lower()


if __name__ == "__main__":
    asyncio.run(_live(sys.argv[1], beating=sys.argv[2] == "beating"))
