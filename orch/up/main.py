"""orch-up: the whole service on one machine, in the foreground, until it is told to stop."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import random
import socket
import sys
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from orch.component.flags.program_flags import Parser
from orch.component.process import log as logs
from orch.component.process.clock import utc_now
from orch.component.process.daemon import SetupError, Stop, run_daemon, supervise
from orch.component.process.files import LockHeldError, acquire
from orch.component.process.loops import cancel, spawn
from orch.up.cluster import Cluster
from orch.up.commands import Ports
from orch.up.layout import Layout, issue_certificates
from orch.up.runtime import RuntimeChoice, RuntimeTool
from orch.wire import names

log = logging.getLogger(__name__)

# Below those the kernel hands out: a free port is still free when its daemon has started.
_PORTS = range(20_000, 32_000)


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGINT or SIGTERM; exit 0 after an ordered stop, 1 when something failed."""
    options = _parser().parse_args(argv)
    logs.configure()
    return run_daemon(lambda stop: _run(options, stop), name="orch-up")


def _parser() -> argparse.ArgumentParser:
    flags = Parser(prog="orch-up", description=__doc__, allow_abbrev=False)
    flags.add_argument("--run-dir", type=Path, default=Path(".run"), help="holds everything made")
    flags.add_argument(
        "--apiserver-port", type=int, default=names.APISERVER_PORT, help="0 picks a free one"
    )
    flags.add_argument("--nodeagent-port", type=int, default=names.AGENT_PORT)
    flags.add_argument("--healthz-port", type=int, default=names.AGENT_HEALTHZ_PORT)
    flags.add_argument("--node-name", default=socket.gethostname().lower())
    flags.add_argument(
        "--container-runtime-endpoint", help='CRI socket to use; "" runs without a runtime'
    )
    flags.add_argument(
        "--etcd-servers", default="", metavar="URL,…", help="keep objects in this etcd instead"
    )
    flags.add_argument(
        "--serve-upstream-aliases",
        action="store_true",
        help="answer under the reference's group names, too: kubectl auth can-i, create role, top",
    )
    flags.add_argument(
        "--runtime-tool", type=Path, help="program that finds or provisions a runtime"
    )
    return flags


def _apiserver_flags(options: argparse.Namespace) -> list[str]:
    flags = ["--serve-upstream-aliases"] if options.serve_upstream_aliases else []
    return [*flags, f"--etcd-servers={options.etcd_servers}"] if options.etcd_servers else flags


async def _run(options: argparse.Namespace, stop: Stop) -> None:
    layout = Layout(options.run_dir.absolute())
    layout.make()
    try:
        acquire(str(layout.run_dir / "orch-up.lock"), holder="orch-up")
    except LockHeldError as error:
        raise SetupError(str(error)) from None
    tool = None
    if options.runtime_tool:
        tool = RuntimeTool(options.runtime_tool, layout.runtime, shared=layout.agent_root)
    stopping = spawn(stop.wait(), name="stop signal")
    running = spawn(_serve(options, layout, tool), name="cluster")
    await asyncio.wait((stopping, running), return_when=asyncio.FIRST_COMPLETED)
    if stop.is_set():
        _say("stopping")
    await cancel(stopping)
    if not running.done():
        await cancel(running)  # the one request to stop; _serve's own clean-up runs to its end
    else:
        running.result()


async def _serve(options: argparse.Namespace, layout: Layout, tool: RuntimeTool | None) -> None:
    """Bring everything up and watch over it until cancelled; leaves nothing running."""
    cluster: Cluster | None = None
    try:
        choice = await _choose_runtime(options, tool)
        _write_agent_files(layout, with_demo=choice.provisioned)
        cluster = Cluster(
            layout,
            _ports(options),
            issue_certificates(layout.pki, options.node_name, now=utc_now()),
            node=options.node_name,
            runtime=choice.endpoint,
            apiserver_flags=_apiserver_flags(options),
        )
        began_s = asyncio.get_running_loop().time()
        await cluster.start()
        _say(_ready_text(layout, asyncio.get_running_loop().time() - began_s))
        children = ("apiserver", "controller-manager", "nodeagent")
        await supervise(Stop(), {name: cluster.keep(name) for name in children})
    finally:
        if cluster:
            await cluster.stop()
        if tool:
            await tool.down()


async def _choose_runtime(options: argparse.Namespace, tool: RuntimeTool | None) -> RuntimeChoice:
    if options.container_runtime_endpoint is not None:
        return RuntimeChoice(options.container_runtime_endpoint or None)
    choice = await tool.choose() if tool else RuntimeChoice(None, why="no --runtime-tool is given")
    if choice.endpoint is None:
        log.warning(
            "running without a container runtime: %s; stats, heartbeats and diagnostics work, "
            "pods do not",
            choice.why,
        )
    return choice


def _ports(options: argparse.Namespace) -> Ports:
    free = filter(_is_free, random.SystemRandom().sample(_PORTS, len(_PORTS)))
    return Ports(
        apiserver=options.apiserver_port or next(free),
        nodeagent=options.nodeagent_port or next(free),
        healthz=options.healthz_port or next(free),
        controller=next(free),
    )


def _is_free(port: int) -> bool:
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.bind(("127.0.0.1", port))
        return True
    return False


def _write_agent_files(layout: Layout, *, with_demo: bool) -> None:
    """The agent's main configuration, and on the first start a pod that does visible work."""
    layout.agent_config.write_text(
        "# Written at every start; put your own settings into nodeagent.conf.d/*.conf.\n"
        f"apiVersion: {names.AGENT_CONFIG_API_VERSION}\n"
        f"kind: {names.AGENT_CONFIG_KIND}\n"
        f"staticPodPath: {json.dumps(str(layout.manifests))}\n"
        f"podLogsDir: {json.dumps(str(layout.logs / 'pods'))}\n"
    )
    first_start = not any(layout.manifests.iterdir())
    if with_demo and first_start:
        demo = resources.files("orch.up").joinpath("demo.yaml").read_text()
        (layout.manifests / "demo.yaml").write_text(demo)


def _ready_text(layout: Layout, took_s: float) -> str:
    """What the operator sees when all is healthy; the first line begins with `ready`."""
    cluster = json.loads(layout.cluster_file.read_text())
    return "\n".join(
        (
            f"ready after {took_s:.1f} s: node {cluster['node']}",
            f"  API server  {cluster['apiserver']}",
            f"  node agent  {cluster['nodeagent']}",
            f"  health      {cluster['nodeagentHealthz']}/healthz",
            f"  runtime     {cluster['runtime'] or 'none'}",
            f"  manifests   {layout.manifests}",
            f"  logs        {layout.logs}",
            f"  try         kubectl --kubeconfig {cluster['kubeconfig']} get nodes,pods -A",
        )
    )


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
