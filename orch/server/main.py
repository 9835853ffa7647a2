"""orch-apiserver: builds the server from the flags and supervises its tasks.

Startup: storage is loaded and the first namespaces exist before the port is opened; then READY=1.
Shutdown: /readyz fails, the shutdown delay passes, watches end, running requests finish (within the
request timeout), storage closes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from functools import partial

from orch.component import tls
from orch.component.flags.program_flags import USAGE
from orch.component.http import httpd
from orch.component.process import daemon, log_queue, notify, system
from orch.component.process import files as process_files
from orch.component.process import log as logs
from orch.component.process.daemon import SetupError, Stop
from orch.component.process.loops import Periodic
from orch.component.process.notify import Notifier
from orch.component.tls import TlsFiles, TlsRenewal
from orch.server import flags as server_flags
from orch.server import turns
from orch.server.authn import credential_files
from orch.server.flags import Flags
from orch.server.server import NAME, Server
from orch.wire.names import VERSION

log = logging.getLogger(__name__)
SHORT_GRACE_S = 5.0


def main(argv: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if argv is None else argv
    if given and not given[0].startswith("-"):
        return _run_command(given[0], given[1:])
    try:
        flags = server_flags.parse(given)
        logs.configure(
            level="debug" if flags.verbosity >= server_flags.DEBUG_LEVEL else "info",
            format=flags.logging_format,
        )
    except SetupError as error:
        log_queue.print_final_line(f"{NAME}: error: {error}")
        return 1
    new_loop = turns.new_event_loop
    return daemon.run_daemon(lambda stop: run(flags, stop), name=NAME, new_loop=new_loop)


def _run_command(word: str, rest: Sequence[str]) -> int:
    match word:
        case "doctor":
            from orch.server import doctor  # with cryptography

            return doctor.run(rest)
        case "hash-password":
            return _hash_password()
        case "init":
            from orch.server import authority  # with cryptography

            return authority.run(rest)
    known = ", ".join(server_flags.COMMANDS)
    sys.stderr.write(f"{NAME}: error: unknown command {word!r}; the commands are {known}\n")
    return USAGE


def _hash_password() -> int:
    """Print the hash of the first line of standard input, for `--basic-auth-file`."""
    password = sys.stdin.readline().rstrip("\n")
    if not password:
        sys.stderr.write(f"{NAME} hash-password: error: give the password on standard input\n")
        return 1
    sys.stdout.write(f"{credential_files.hash_password(password)}\n")
    return 0


async def run(flags: Flags, stop: Stop) -> None:
    """Serve until stopped; SetupError when it cannot start as configured."""
    notifier = Notifier.from_environment()
    watchdog_s = notify.watchdog_interval_s(os.environ, os.getpid())
    pair = flags.tls_cert_file, flags.tls_private_key_file
    make_context = partial(httpd.server_context, *pair, client_ca_file=flags.client_ca_file)
    sys.setswitchinterval(turns.SWITCH_S)
    files = await asyncio.to_thread(TlsFiles, pair, flags.client_ca_file)
    context = await asyncio.to_thread(make_context)
    raise_file_limit(flags.max_connections)
    server = await asyncio.to_thread(Server, flags)  # it reads certificates
    http = httpd.HttpServer(
        server.app,
        host=flags.bind_addresses,
        port=flags.secure_port,
        ssl_context=context,
        name=NAME,
        max_connections=flags.max_connections,
        slow_clients=server.slow_clients,
    )
    renewal = TlsRenewal(http, make_context, files)
    server.show_certificates(renewal)
    certificates = Periodic("certificates", renewal.step, interval_s=tls.INTERVAL_S)
    try:
        await server.open()
        port = await http.start()
        await asyncio.to_thread(process_files.write_port, flags.port_file, port)
        daemon.freeze_gc()
        addresses = ", ".join(f"https://{address}:{port}" for address in flags.bind_addresses)
        log.info("%s %s serves on %s", NAME, VERSION, addresses)
        notifier.ready()
        loops = [*server.loops(), certificates, *_watchdog(notifier, watchdog_s)]
        await daemon.supervise(stop, {loop.name: loop.run() for loop in loops})
        notifier.stopping()
        await server.wind_down()
    finally:
        # Requests that wait for a disk which hangs are not waited for.
        writable = server.storage_health.takes_writes
        await http.stop(grace_s=flags.limits.timeout_s if writable else SHORT_GRACE_S)
        await server.close()


def _watchdog(notifier: Notifier, interval_s: float | None) -> list[Periodic]:
    """Report to systemd that the event loop is alive; nothing without a watchdog."""
    if interval_s is None:
        return []

    async def beat() -> None:
        notifier.watchdog()

    return [Periodic("watchdog", beat, interval_s=interval_s)]


def raise_file_limit(max_connections: int) -> None:
    """Each connection is a descriptor; the usual soft limit of 1024 is for older programs."""
    wanted = max_connections + httpd.OTHER_FILES
    allowed = system.raise_open_files(wanted)
    if 0 <= allowed < wanted:
        log.warning(
            "--max-connections=%d needs %d open files, the limit is %d: fewer are accepted",
            max_connections, wanted, allowed,
        )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
