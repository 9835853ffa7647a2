"""The node agent: flags and configuration → parts → loops, and their ordered stop.

`main` reads the configuration and fails with a line per mistake before anything is started; `_run`
takes the lock, builds the parts, logs what this agent lacks, runs the loops that `_loops` lists,
and stops them in order.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, Protocol

from nodeagent import listeners as nodeagent_listeners
from nodeagent import lock
from nodeagent.commands.dispatch import dispatch
from nodeagent.config import options as command_line
from nodeagent.config.current import CurrentConfig
from nodeagent.config.load import ConfigError, load_config
from nodeagent.config.options import Options
from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.listeners import Listeners
from nodeagent.reload import Reloader
from nodeagent.watchdog import Watchdog
from nodeagent.wiring import agent
from nodeagent.wiring.agent import Parts
from nodeagent.wiring.base import Base
from nodeagent.wiring.stats import warn_of_old_cgroups
from orch.component import tls as component_tls
from orch.component.diagnostics import zpages
from orch.component.diagnostics.framework_metrics import CertificateHolder, CertificateMetrics
from orch.component.diagnostics.zpages import ZPages
from orch.component.flags.features import FeatureError, FeatureGate, Features
from orch.component.process import log as logs
from orch.component.process import log_queue, notify
from orch.component.process.daemon import (
    SetupError,
    Stop,
    configure_allocator,
    freeze_gc,
    run_daemon,
    supervise,
)
from orch.component.process.loops import Periodic, cancel, spawn
from orch.component.process.notify import Notifier
from orch.wire import names

log = logging.getLogger("nodeagent")

REMOVE_PODS_WITHIN_S = 30.0
_ROOT_MODE = 0o750  # volumes and secrets of pods lie below
_SWITCH_S = 0.001  # how long a reading in its thread may keep the event loop waiting


def start_line(base: Base, missing: Sequence[str]) -> str:
    """Which agent this is, and what it runs without: a phrase for each."""
    parts = [
        f"configuration {base.current.digest} from {base.options.config or 'defaults and flags'}",
        f"serving {base.config.address}:{base.config.port}",
        *missing,
        *_gates(base.features),
    ]
    return f"node agent {names.VERSION} for node {base.node_name}: {'; '.join(parts)}"


def _gates(features: Features) -> list[str]:
    """The gates that are on, those that are off and why, and those that were set."""
    states = list(features.all())
    switched = [f"{gate.name}={str(on).lower()}" for gate, on in states if on != gate.default]
    on = [gate.name for gate, enabled in states if enabled]
    off = [f"{gate.name} ({_why_off(gate)})" for gate, enabled in states if not enabled]
    parts = (("features on", on), ("off", off), ("gates set", switched))
    return [f"{heading}: {', '.join(listed)}" for heading, listed in parts if listed]


def _why_off(gate: FeatureGate) -> str:
    return "switched off" if gate.default else gate.stage.value.lower()


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
        features = Features(config.featureGates, options.emulated_version)
    except (ConfigError, FeatureError) as error:
        lines = str(error).splitlines()
        log_queue.print_final_line("\n".join(f"nodeagent: error: {line}" for line in lines))
        return 1
    logs.configure(level=config.logging.level, format=config.logging.format)
    configure_allocator()
    shown = zpages.flags_of(flags, command_line.in_force(given, options, config))
    pages = ZPages("nodeagent", shown, emulated=options.emulated_version)
    current = CurrentConfig(config)
    return run_daemon(lambda stop: _run(options, current, features, pages, stop), name="nodeagent")


async def _run(
    options: Options, current: CurrentConfig, features: Features, pages: ZPages, stop: Stop
) -> None:
    held = await lock.take_lock(options.lock_file, wait=options.exit_on_lock_contention)
    notifier = Notifier.from_environment()
    watchdog_s = notify.watchdog_interval_s(os.environ, os.getpid())
    tls = _serving_tls(options, current.value)
    built = agent.build(options, current, features)
    _make_directories(options, current.value)
    watchdog = built.watchdog(notifier, interval_s=watchdog_s) if watchdog_s else None
    services = built.services(watchdog, options.metric_policy, pages)
    listeners = nodeagent_listeners.build_listeners(options, current.value, services, tls)
    reloader = Reloader(
        options,
        current,
        notifier,
        apply=lambda config: _apply(config, built),
        renew=listeners.renewal.step,
    )
    services.metrics.register(reloader)
    services.metrics.register(CertificateMetrics(_certificates(built, listeners)))
    reloader.listen()
    await built.enforce_reserved()
    built.status.serve_on(await listeners.start())
    recovery = spawn(built.recover(), name="recover checkpoints")
    try:
        log.info("%s", start_line(built.base, built.missing))
        warn_of_old_cgroups(built.measuring.sampler.reader.layout.version)
        freeze_gc()
        sys.setswitchinterval(_SWITCH_S)
        notifier.ready("running")
        await supervise(stop, _loops(stop, built, listeners, reloader, watchdog, held))
    finally:
        notifier.stopping()
        await cancel(recovery)
        await built.stop_checkpoints()
        if options.remove_pods_on_stop and built.pods:
            await built.pods.workers.remove_all(REMOVE_PODS_WITHIN_S)
        await listeners.stop()
        await built.close()
        if held >= 0:
            os.close(held)


def _certificates(built: Parts, listeners: Listeners) -> dict[str, CertificateHolder]:
    """Who holds them, by what they are used for."""
    holders: dict[str, CertificateHolder] = {"serving": listeners.renewal}
    if built.base.client:
        holders["client"] = built.base.client.transport
    return holders


class _Loop(Protocol):
    async def run(self) -> None: ...


def _loops(
    stop: Stop,
    built: Parts,
    listeners: Listeners,
    reloader: Reloader,
    watchdog: Watchdog | None,
    held: int,
) -> dict[str, Coroutine[Any, Any, None]]:
    """Every loop of the agent, by name; `held` is the descriptor of its lock."""
    base, measuring = built.base, built.measuring
    step, interval_s = listeners.renewal.step, component_tls.INTERVAL_S
    certificates = Periodic("certificates", step, interval_s=interval_s)
    if built.rotation:
        built.rotation.on_new = certificates.wake
    loops: dict[str, _Loop | None] = {
        "sampling": measuring.sampling,
        "new disks": measuring.new_disks,
        "pressure": measuring.pressure,
        "directories": measuring.directories,
        "runtime disks": measuring.runtime_disks,
        "runtime cgroup": measuring.runtime_part,
        "runtime statistics": measuring.runtime_stats,
        "runtime watch": base.watch,
        "node status": built.status,
        "lease": built.lease,
        "events": base.events if base.clients else None,
        "evictions": built.evictions,
        "shutdown": built.shutdown,
        "pressure triggers": built.triggers,
        "health checks": built.health.loop,
        certificates.name: certificates,
        "rotation": built.rotation,
        "client certificates": built.client_renewal,
        "reload": reloader,
        "watchdog": watchdog,
    }
    if pods := built.pods:
        loops |= {
            "pods": pods.workers,
            "pod statuses": pods.statuses,
            "mirror pods": pods.mirrors,
            "container logs": pods.log_rotation,
            "local storage": pods.local_storage,
            "images": pods.images,
            "devices": pods.devices,
            "pod resources": pods.pod_resources,
        }
    if checkpoints := built.checkpoints:
        loops |= {
            "checkpoint store": checkpoints.pruner,
            "frozen containers": checkpoints.frozen,
        }
    running = {name: loop.run() for name, loop in loops.items() if loop}
    running["node watch"] = built.status.watch()
    if base.options.exit_on_lock_contention:
        running["lock file"] = lock.yield_on_contention(base.options.lock_file, held, stop)
    return running


def _apply(config: NodeAgentConfiguration, built: Parts) -> None:
    """Put a reloaded configuration in force where it was read at the start."""
    logs.configure(level=config.logging.level, format=config.logging.format)
    for loop in (built.measuring.sampling, built.measuring.runtime_stats):
        if loop:
            loop.interval_s = config.housekeepingInterval
            loop.wake()
    built.status.retime(
        update_s=config.nodeStatusUpdateFrequency, report_s=config.nodeStatusReportFrequency
    )
    built.status.wake()


def _serving_tls(options: Options, config: NodeAgentConfiguration) -> nodeagent_listeners.Tls:
    """The TLS of the secure port; a self-signed certificate lies below the root directory."""
    if not config.tlsCertFile:
        _make_directory(options.root_dir, _ROOT_MODE)
    return nodeagent_listeners.read_tls(options, config)


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


if __name__ == "__main__":
    sys.exit(main())
