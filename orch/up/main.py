"""orch-up: the whole service on one machine, in the foreground, until it is stopped."""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from orch.component.flags.program_flags import Parser
from orch.component.process import log as logs
from orch.component.process.clock import utc_now
from orch.component.process.daemon import SetupError, Stop, run_daemon, supervise
from orch.component.process.files import LockHeldError, acquire
from orch.component.process.loops import cancel, spawn
from orch.up.child import wait_for_earlier
from orch.up.cluster import Cluster
from orch.up.commands import Ports, apiserver_flags
from orch.up.layout import DEMO_IMAGE, Layout, issue_certificates
from orch.up.runtime import RuntimeTool, choose_runtime
from orch.wire import names


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGINT or SIGTERM; exit 0 after an ordered stop, 1 when something failed."""
    options = parser().parse_args(argv)
    logs.configure()
    return run_daemon(lambda stop: _run(options, stop), name="orch-up")


def parser() -> argparse.ArgumentParser:
    """All flags with their help texts."""
    flags = Parser(prog="orch-up", description=__doc__, allow_abbrev=False)
    flags.add_argument("--version", action="version", version=f"orch-up {names.VERSION}")
    flags.add_argument("--run-dir", type=Path, default=Path(".run"), help="holds all files")
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
        "--host-address",
        default="",
        metavar="ADDRESS",
        help="of this machine for pods, where the API server listens too; a provisioned runtime "
        "tells its own",
    )
    flags.add_argument(
        "--etcd-servers", default="", metavar="URL,…", help="keep objects in this etcd instead"
    )
    flags.add_argument(
        "--serve-upstream-aliases",
        action="store_true",
        help="also serve the reference's group names: kubectl auth can-i, create role, top",
    )
    flags.add_argument(
        "--runtime-tool", type=Path, help="program that finds or provisions a runtime"
    )
    return flags


async def _run(options: argparse.Namespace, stop: Stop) -> None:
    layout = Layout(options.run_dir.absolute())
    try:
        layout.make()
        acquire(str(layout.run_dir / "orch-up.lock"), holder="orch-up")
    except LockHeldError as error:
        raise SetupError(str(error)) from None
    except OSError as error:
        raise SetupError(f"cannot use --run-dir {layout.run_dir}: {error}") from None
    tool = None
    if options.runtime_tool:
        tool = RuntimeTool(options.runtime_tool, layout.runtime, shared=layout.agent_root)
    stopping = spawn(stop.wait(), name="stop signal")
    running = spawn(_serve(options, layout, tool), name="cluster")
    await asyncio.wait((stopping, running), return_when=asyncio.FIRST_COMPLETED)
    if stop.is_set():
        _print("stopping")
    await cancel(stopping)
    if not running.done():
        await cancel(running)  # once only: _serve's own clean-up must complete
    else:
        running.result()


async def _serve(options: argparse.Namespace, layout: Layout, tool: RuntimeTool | None) -> None:
    """Start everything and restart what exits, until cancelled; leaves nothing running."""
    cluster: Cluster | None = None
    try:
        await wait_for_earlier(layout.run_dir)
        ports = Ports.choose(
            apiserver=options.apiserver_port,
            nodeagent=options.nodeagent_port,
            healthz=options.healthz_port,
        )
        choice = await choose_runtime(options.container_runtime_endpoint, tool)
        host = options.host_address or choice.host_address
        ports = replace(ports, host_address=host)
        pod_api_server = f"https://{host}:{ports.apiserver}" if host else ""
        layout.write_agent_files(with_demo=choice.provisioned, pod_api_server=pod_api_server)
        cluster = Cluster(
            layout,
            ports,
            issue_certificates(layout.pki, options.node_name, now=utc_now(), host_address=host),
            node=options.node_name,
            runtime=choice.endpoint,
            apiserver_flags=apiserver_flags(
                options.etcd_servers, upstream_aliases=options.serve_upstream_aliases
            ),
        )
        began_s = asyncio.get_running_loop().time()
        await cluster.start()
        took_s = asyncio.get_running_loop().time() - began_s
        _print(_ready_text(layout, took_s, image=DEMO_IMAGE if choice.provisioned else ""))
        children = ("apiserver", "controller-manager", "nodeagent")
        loops = {name: cluster.keep(name) for name in children}
        if tool and choice.provisioned and choice.endpoint:
            loops["runtime"] = tool.keep(choice.endpoint)
        await supervise(Stop(), loops)
    finally:
        if cluster:
            await cluster.stop()
        if tool:
            await tool.down()


def _ready_text(layout: Layout, took_s: float, *, image: str) -> str:
    """The output when everything is healthy; the first line begins with `ready`.

    `image` is one that pods can use without a registry; "" where none is known.
    """
    cluster = json.loads(layout.cluster_file.read_text())
    kubeconfig = shlex.quote(cluster["kubeconfig"])
    return "\n".join(
        (
            f"ready after {took_s:.1f} s: node {cluster['node']}",
            f"  API server  {cluster['apiserver']}",
            f"  node agent  {cluster['nodeagent']}",
            f"  health      {cluster['nodeagentHealthz']}/healthz",
            f"  runtime     {cluster['runtime'] or 'none'}",
            *([f"  image       {image} (there without a registry)"] if image else []),
            f"  manifests   {layout.manifests}",
            f"  logs        {layout.logs}",
            f"  try         kubectl --kubeconfig {kubeconfig} get nodes,pods -A",
        )
    )


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
