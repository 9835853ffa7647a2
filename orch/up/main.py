"""orch-up: the whole service on one machine, in the foreground, until it is told to stop."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from orch.component import log as logs
from orch.component.daemon import SetupError, Stop, run_daemon
from orch.component.lockfile import LockHeldError, acquire
from orch.component.loops import spawn
from orch.up.cluster import Cluster, Ports, default_node_name, summary_lines
from orch.up.layout import Layout
from orch.up.runtime import RuntimeChoice, RuntimeTool
from orch.wire import names

log = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGINT or SIGTERM; exit 0 after an ordered stop, 1 when something failed."""
    options = _parser().parse_args(argv)
    logs.configure()
    return run_daemon(lambda stop: _run(options, stop), name="orch-up")


def _parser() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(prog="orch-up", description=__doc__, allow_abbrev=False)
    flags.add_argument("--run-dir", type=Path, default=Path(".run"), help="holds everything made")
    flags.add_argument("--apiserver-port", type=int, default=names.APISERVER_PORT)
    flags.add_argument("--nodeagent-port", type=int, default=names.AGENT_PORT)
    flags.add_argument("--healthz-port", type=int, default=names.AGENT_HEALTHZ_PORT)
    flags.add_argument("--node-name", default=default_node_name())
    flags.add_argument(
        "--container-runtime-endpoint", help='CRI socket to use; "" runs without a runtime'
    )
    flags.add_argument(
        "--runtime-tool", type=Path, help="program that finds or provisions a runtime"
    )
    return flags


async def _run(options: argparse.Namespace, stop: Stop) -> None:
    layout = Layout(options.run_dir.absolute())
    layout.make()
    try:
        lock = acquire(str(layout.run_dir / "orch-up.lock"), holder="orch-up")
    except LockHeldError as error:
        raise SetupError(str(error)) from None
    tool = RuntimeTool(options.runtime_tool, layout.runtime) if options.runtime_tool else None
    stopping = spawn(stop.wait(), name="stop signal")
    running = spawn(_serve(options, layout, tool), name="cluster")
    await asyncio.wait((stopping, running), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not running.done():
        print("stopping", flush=True)  # noqa: T201 — the terminal is this program's user
        running.cancel()
    try:
        await running
    except asyncio.CancelledError:
        log.debug("stopped on request")
    del lock


async def _serve(options: argparse.Namespace, layout: Layout, tool: RuntimeTool | None) -> None:
    """Bring everything up and wait; leaves nothing running, however it ends."""
    choice = RuntimeChoice(None, why="none was given")
    cluster: Cluster | None = None
    try:
        choice = await _choose_runtime(options, tool)
        ports = Ports(options.apiserver_port, options.nodeagent_port, options.healthz_port)
        cluster = Cluster(layout, ports, options.node_name, choice)
        started_s = asyncio.get_running_loop().time()
        await cluster.start()
        took_s = asyncio.get_running_loop().time() - started_s
        sys.stdout.write("\n".join(summary_lines(layout, took_s)) + "\n")
        sys.stdout.flush()
        child = await cluster.child_ended()
        raise SetupError(
            f"{child.name} ended with exit code {child.exit_code}; the end of "
            f"{child.log_file}:\n{child.last_lines()}"
        )
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


if __name__ == "__main__":
    sys.exit(main())
