"""The node agent: flags and configuration → objects → loops. The only place that constructs.

`main` reads what was asked for and fails with one line per mistake before anything is started;
`_run` takes the lock, builds the parts, lists every loop, and stops them in order.
"""

from __future__ import annotations

import logging
import os
import ssl
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from nodeagent import options as command_line
from nodeagent import parts, serving
from nodeagent.commands.dispatch import dispatch
from nodeagent.config.load import ConfigError, load_config
from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.options import Options
from nodeagent.parts import Parts
from nodeagent.serving import Listeners
from nodeagent.watchdog import Watchdog
from orch.component import log as logs
from orch.component import notify, tlsrenewal, zpages
from orch.component.daemon import SetupError, Stop, freeze_gc, run_daemon, supervise
from orch.component.features import FeatureError, Features
from orch.component.lockfile import LockHeldError, acquire
from orch.component.loops import Periodic, cancel, spawn
from orch.component.notify import Notifier, NotifyError
from orch.component.zpages import ZPages
from orch.wire import version

log = logging.getLogger("nodeagent")

REMOVE_PODS_WITHIN_S = 30.0
_ROOT_MODE = 0o750  # volumes and secrets of pods lie below
_TRIGGER_STEP_S = 5.0  # how soon a new container is watched


def main(argv: Sequence[str] | None = None) -> int:
    """Run the daemon; 0 after an ordered stop, 1 when something is wrong, 2 for wrong usage."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments[:1] == ["hollow"]:
        from nodeagent.hollow.main import main as hollow

        return hollow(arguments[1:])
    code = dispatch(arguments)
    if code is not None:
        return code
    flags = command_line.parser()
    given = flags.parse_args(arguments)
    options = command_line.options_of(given)
    try:
        config = load_config(options.config, options.config_dir, options.overrides)
        features = Features(config.featureGates)
    except (ConfigError, FeatureError) as error:
        for line in str(error).splitlines():
            sys.stderr.write(f"nodeagent: error: {line}\n")
        return 1
    logs.configure(level=config.logging.level, format=config.logging.format)
    pages = ZPages("nodeagent", zpages.flags_of(flags, given))
    return run_daemon(lambda stop: _run(options, config, features, pages, stop), name="nodeagent")


async def _run(
    options: Options,
    config: NodeAgentConfiguration,
    features: Features,
    pages: ZPages,
    stop: Stop,
) -> None:
    lock = _take_lock(options.lock_file)
    notifier = Notifier.from_environment()
    watchdog_s = notify.watchdog_interval_s(os.environ, os.getpid())
    context = _serving_context(options, config)
    built = parts.build(options, config, features)
    _make_directories(options, config)
    watchdog = built.watchdog(notifier, interval_s=watchdog_s) if watchdog_s else None
    services = built.services(watchdog, options.metric_policy, pages)
    listeners = serving.build_listeners(options, config, services, context)
    built.status.serve_on(await listeners.start())
    recovery = spawn(built.recover(), name="recover checkpoints")
    try:
        _say_start(options, config, features, built)
        freeze_gc()
        _notify(lambda: notifier.ready("running"))
        await supervise(stop, _loops(built, watchdog, config, listeners))
    finally:
        _notify(notifier.stopping)
        await cancel(recovery)
        await built.stop_checkpoints()
        if options.remove_pods_on_stop and built.keeper:
            await built.keeper.remove_all(REMOVE_PODS_WITHIN_S)
        await listeners.stop()
        await built.close()
        os.close(lock)


def _loops(
    built: Parts,
    watchdog: Watchdog | None,
    config: NodeAgentConfiguration,
    listeners: Listeners,
) -> dict[str, Coroutine[Any, Any, None]]:
    """Every loop of the agent, by name."""
    sampling = Periodic("sampling", built.sampler.step, interval_s=config.housekeepingInterval)
    disks = Periodic("directories", built.sampler.step_disks, interval_s=parts.DISK_INTERVAL_S)
    certificates = Periodic(
        "certificates", listeners.renewal.step, interval_s=tlsrenewal.INTERVAL_S
    )
    loops = {
        "certificates": certificates.run(),
        "sampling": sampling.run(),
        "directories": disks.run(),
        "runtime watch": built.runtime_watch.run(),
        "node status": built.status.run(),
        "node watch": built.status.watch(),
    }
    if built.lease:
        loops["lease"] = built.lease.run()
    if built.events:
        loops["events"] = built.events.run()
    if built.keeper:
        loops["pods"] = built.keeper.run()
    if built.checkpoints:
        loops |= built.checkpoints.loops()
    if built.runtime_disks:
        runtime_disks = Periodic(
            "runtime disks", built.runtime_disks.step, interval_s=parts.DISK_INTERVAL_S
        )
        loops["runtime disks"] = runtime_disks.run()
    if built.runtime_stats:
        runtime_stats = Periodic(
            "runtime statistics",
            built.runtime_stats.step,
            interval_s=config.housekeepingInterval,
        )
        loops["runtime statistics"] = runtime_stats.run()
    if built.triggers:
        triggers = Periodic("pressure triggers", built.triggers.step, interval_s=_TRIGGER_STEP_S)
        loops["pressure triggers"] = triggers.run()
    if watchdog:
        loops["watchdog"] = watchdog.run()
    return loops


def _take_lock(path: str) -> int:
    try:
        return acquire(path, holder="node agent")
    except LockHeldError as error:
        raise SetupError(f"{error}; stop it, or give this one another --lock-file") from None
    except OSError as error:
        raise SetupError(f"cannot use the lock file {path}: {error.strerror or error}") from None


def _serving_context(options: Options, config: NodeAgentConfiguration) -> ssl.SSLContext:
    """What the secure port serves with; an own certificate lies below the root directory."""
    if not config.tlsCertFile:
        _make_directory(options.root_dir, _ROOT_MODE)
    return serving.tls_context(options, config)


def _make_directories(options: Options, config: NodeAgentConfiguration) -> None:
    """The agent's state, private to it; pod logs may be read by log collectors."""
    wanted = [(options.root_dir, _ROOT_MODE), (options.cert_dir, 0o700), (config.podLogsDir, 0o755)]
    wanted.append((f"{options.root_dir}/checkpoints", 0o700))
    for path, mode in wanted:
        _make_directory(path, mode)


def _make_directory(path: str, mode: int) -> None:
    try:
        Path(path).mkdir(mode=mode, parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(f"cannot make the directory {path}: {error.strerror}") from None


def _say_start(
    options: Options, config: NodeAgentConfiguration, features: Features, built: Parts
) -> None:
    """One line that tells which agent this is and what it runs without, and why."""
    off = [gate.name for gate, on in features.all() if not on]
    log.info(
        "node agent %s for node %s: configuration %s, %s, serving %s:%d%s",
        version.VERSION,
        built.node_name,
        options.config or "by defaults and flags",
        "; ".join(built.missing) or "nothing is missing",
        config.address,
        config.port,
        f", features off: {', '.join(off)}" if off else "",
    )


def _notify(send: Callable[[], None]) -> None:
    try:
        send()
    except NotifyError as error:
        log.error("cannot notify systemd: %s", error)


if __name__ == "__main__":
    sys.exit(main())
