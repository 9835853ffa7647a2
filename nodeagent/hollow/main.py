"""`nodeagent hollow`: many node identities in one process, to test and size a control plane.

Real Lease and status loops against a real API server; the nodes run nothing. HTTP on loopback
serves figures and injects faults: GET /figures, POST /faults?kind=silent&count=50, POST /heal.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
from collections.abc import Sequence

from aiohttp import web

from nodeagent.hollow.fleet import Fleet
from orch.client.kubeconfig import ClientConfig, load_kubeconfig
from orch.component.flags.program_flags import Parser
from orch.component.http.httpd import HttpServer, text_errors
from orch.component.process import daemon, log_queue, loops
from orch.component.process import log as logs
from orch.component.process.daemon import SetupError, Stop
from orch.wire import errors

log = logging.getLogger(__name__)

PROGRAM = "nodeagent hollow"
_STARTED_PER_S = 100.0


def main(argv: Sequence[str]) -> int:
    """Run until stopped; 1 on errors, 2 for wrong usage."""
    options = parser().parse_args(argv)
    logs.configure()
    try:
        config = load_kubeconfig(options.kubeconfig)
    except SetupError as error:
        log_queue.print_final_line(f"{PROGRAM}: error: {error}")
        return 1
    return daemon.run_daemon(lambda stop: run(options, config, stop), name=PROGRAM)


def parser() -> argparse.ArgumentParser:
    flags = Parser(prog=PROGRAM, description=__doc__, allow_abbrev=False)
    flags.add_argument("--kubeconfig", required=True, help="with rights to nodes and Leases")
    flags.add_argument("--count", type=_positive, default=100, help="how many nodes")
    flags.add_argument("--name-prefix", default="hollow-", help="of the nodes' names")
    flags.add_argument(
        "--node-lease-duration-seconds",
        type=_positive,
        default=40,
        help="Lease duration; renewed four times as often",
    )
    flags.add_argument("--control-port", type=int, default=0, help="on loopback; 0 picks one")
    flags.add_argument("--ramp", type=float, default=0.0, help="seconds until all are started")
    return flags


async def run(options: argparse.Namespace, config: ClientConfig, stop: Stop) -> None:
    """Run the fleet and its control port until `stop`."""
    lease_s = options.node_lease_duration_seconds
    fleet = Fleet(config, options.count, prefix=options.name_prefix, lease_duration_s=lease_s)
    http = HttpServer(
        control(fleet), host="127.0.0.1", port=options.control_port, name=f"{PROGRAM} control"
    )
    port = await http.start()
    print(f"control http://127.0.0.1:{port}", flush=True)  # noqa: T201 — scripts wait for it
    daemon.freeze_gc()
    ramp_s = options.ramp or options.count / _STARTED_PER_S
    ramping = loops.spawn(fleet.ramp(ramp_s), name="ramp")
    try:
        await daemon.supervise(stop, {"measure": fleet.measure(), "watch": fleet.watch()})
    finally:
        await loops.cancel(ramping)
        await http.stop()
        await fleet.close()


def control(fleet: Fleet) -> web.Application:
    """GET /figures and /nodes; POST /faults, /heal and /reset (of the lateness)."""
    app = web.Application(middlewares=[text_errors])

    async def figures(_request: web.Request) -> web.Response:
        return web.json_response(dataclasses.asdict(fleet.figures()))

    async def nodes(_request: web.Request) -> web.Response:
        return web.json_response(fleet.shown)

    async def faults(request: web.Request) -> web.Response:
        query = request.query
        try:
            names = fleet.choose(_positive(query.get("count", "1")))
            await fleet.inject(query.get("kind", ""), names)
        except (ValueError, argparse.ArgumentTypeError) as error:
            raise errors.bad_request(str(error)) from None
        return web.json_response(names)

    async def heal(_request: web.Request) -> web.Response:
        fleet.heal()
        return web.Response(text="ok")

    async def reset(_request: web.Request) -> web.Response:
        fleet.lateness.clear()
        return web.Response(text="ok")

    app.router.add_get("/figures", figures)
    app.router.add_get("/nodes", nodes)
    app.router.add_post("/faults", faults)
    app.router.add_post("/heal", heal)
    app.router.add_post("/reset", reset)
    return app


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)
