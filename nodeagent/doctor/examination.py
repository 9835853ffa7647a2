"""Examines this host: gathers facts, applies the checks, returns findings in a fixed order.

Must not judge facts (`checks`, `kernel`, `hardening` do), except for paths and network links.
Blocking; runs an event loop for the remote facts.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

from nodeagent.config.options import Options
from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.doctor import checks, criu, gather, hardening, kernel, remote
from nodeagent.doctor.checks import CriuFacts, RuntimeFacts
from nodeagent.runtime.endpoint import socket_path
from nodeagent.stats.cgroup.layout import detect_layout
from nodeagent.stats.host import network
from nodeagent.stats.host.network import LinkFacts
from orch.client.kubeconfig import ClientConfig, load_kubeconfig
from orch.component.diagnostics.certificate_findings import check_certificate
from orch.component.diagnostics.findings import Finding, fail, note, ok, warn
from orch.component.flags.features import Features
from orch.component.process import system
from orch.component.process.daemon import SetupError

_SPARE_DESCRIPTORS = 1024  # besides cached kernel files: connections, logs


def check_interfaces(read: Callable[[], Sequence[LinkFacts]] = network.read_links) -> Finding:
    """Whether the interface of the default route, over which pods are reached, is up."""
    try:
        links = read()
    except OSError as error:
        advice = "allow netlink sockets (RestrictAddressFamilies=AF_NETLINK)"
        return warn("network", f"the kernel does not list its interfaces: {error}", advice)
    defaults = [link for link in links if link.is_default]
    if not defaults:
        return note("network", "there is no default route", "fine for an isolated machine")
    down = [link.name for link in defaults if not link.is_up]
    if len(down) == len(defaults):
        return warn("network", f"{down[0]} has the default route and is down", "bring the link up")
    shown = ", ".join(f"{link.name} (mtu {link.mtu})" for link in defaults if link.is_up)
    return ok("network", f"the default route is over {shown}")


def examine(options: Options, config: NodeAgentConfiguration, now: datetime) -> list[Finding]:
    """All findings about this host; nothing is changed."""
    features = Features(config.featureGates, options.emulated_version)
    found = kernel.check_kernel(gather.read_kernel(), psi_wanted=features.enabled("NodeAgentPSI"))
    layout = detect_layout("/sys/fs/cgroup")
    controllers = gather.read_controllers()
    found.append(checks.check_cgroups(layout.version, controllers, fail_v1=config.failCgroupV1))
    found += checks.check_capabilities(gather.read_capabilities(), root=os.geteuid() == 0)
    found.append(check_interfaces())
    found += _runtime(config, checkpoint=features.enabled("ContainerCheckpoint"))
    found += _seccomp(f"{options.root_dir}/seccomp")
    api, problem = _api(options)
    if problem:
        found.append(fail("kubeconfig", problem, "correct the file or --kubeconfig"))
    elif api:
        skew_s, error = asyncio.run(remote.clock_skew(api))
        found.append(checks.check_clock(api.server, skew_s, error))
    else:
        found.append(checks.check_clock("", None, ""))
    found += _settings(options, config, now)
    found += _disks(options, config)
    limit, used, most = gather.read_descriptors()
    wanted = config.openFileBudget + _SPARE_DESCRIPTORS
    return [*found, *checks.check_descriptors(limit, wanted, used, most)]


def examine_configuration(
    options: Options, config: NodeAgentConfiguration, now: datetime
) -> list[Finding]:
    """Only what the configuration refers to: paths, socket, certificates, ports, lock file."""
    return [*_socket(config.containerRuntimeEndpoint), *_settings(options, config, now)]


def _settings(options: Options, config: NodeAgentConfiguration, now: datetime) -> list[Finding]:
    found = list(_paths(options, config))
    api, _ = _api(options)
    for facts in gather.read_certificates(options, config, api):
        found += check_certificate(facts, now)
    pid, problem = gather.read_lock(options.lock_file)
    holder = system.describe_process(pid) if pid else ""
    found.append(checks.check_lock(options.lock_file, holder, problem))
    found += _exposure(options, config, api)
    ports = [
        ("serving", config.address, config.port),
        ("health", config.healthzBindAddress, config.healthzPort),
        ("read-only", config.address, config.readOnlyPort),
    ]
    found += [
        checks.check_port(gather.read_port(role, address, port), agent_runs=pid is not None)
        for role, address, port in ports
        if port
    ]
    return found


def _exposure(
    options: Options, config: NodeAgentConfiguration, api: ClientConfig | None
) -> Iterator[Finding]:
    """Settings that expose the agent, and gates that this host does not support."""
    rotates = api is None or not (api.cert_data or api.token)
    yield from hardening.check_hardening(
        config, hostname_override=options.hostname_override, rotates=rotates
    )
    yield from hardening.check_gates(
        config,
        Features(config.featureGates, options.emulated_version),
        unified=detect_layout("/sys/fs/cgroup").unified is not None,
        pressure=Path("/proc/pressure/cpu").exists(),
    )
    ca_file = config.authentication.x509.clientCAFile
    if ca_file and system.is_open_to_others(ca_file, system.WRITE):
        yield warn("client CA file", f"others can write {ca_file}", f"chmod 644 {ca_file}")


def _paths(options: Options, config: NodeAgentConfiguration) -> Iterator[Finding]:
    for check, path in (("root directory", options.root_dir), ("pod logs", config.podLogsDir)):
        yield _directory(check, path)
    pods = config.staticPodPath
    if pods and not Path(pods).exists():
        advice = "create it; until then this node has no static pods"
        yield warn("static pods", f"{pods} does not exist", advice)
    elif pods:
        yield ok("static pods", f"{pods} exists")
    for name, file in (("kubeconfig", options.kubeconfig), ("configuration", options.config)):
        if file and system.is_open_to_others(file, system.READ):
            report = warn if name == "kubeconfig" else note
            yield report(f"{name} file", f"others can read {file}", f"chmod 600 {file}")


def _directory(check: str, path: str) -> Finding:
    existing = gather.existing_ancestor(path)
    if not existing.is_dir():
        advice = "use another directory, or move the file away"
        return fail(check, f"{existing} is not a directory", advice)
    if not os.access(existing, os.W_OK | os.X_OK):
        return fail(check, f"{existing} is not writable", "run as root, or use another directory")
    return ok(check, f"{path} {'exists' if Path(path).exists() else 'can be created'}")


def _socket(endpoint: str) -> Iterator[Finding]:
    check = "runtime socket"
    if not endpoint:
        return
    path = socket_path(endpoint)
    try:
        is_socket = stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError as error:
        advice = "start the runtime, or correct containerRuntimeEndpoint"
        yield fail(check, f"{path}: {error.strerror or error}", advice)
        return
    if is_socket:
        yield ok(check, f"{path} exists")
    else:
        yield fail(check, f"{path} is not a socket", "correct containerRuntimeEndpoint")


def _runtime(config: NodeAgentConfiguration, *, checkpoint: bool) -> list[Finding]:
    endpoint = config.containerRuntimeEndpoint
    if endpoint and Path(socket_path(endpoint)).exists():
        facts = asyncio.run(remote.query_runtime(endpoint))
    else:
        facts = RuntimeFacts(endpoint)
    found = criu.read_criu(endpoint) if facts.name else CriuFacts()
    return [*checks.check_runtime(facts), checks.check_checkpoint(facts, found, gate=checkpoint)]


def _seccomp(directory: str) -> Iterator[Finding]:
    return checks.check_seccomp(
        directory,
        supported=gather.has_seccomp(),
        exists=Path(directory).is_dir(),
        bad_profiles=gather.bad_profiles(directory),
    )


def _api(options: Options) -> tuple[ClientConfig | None, str]:
    if not options.kubeconfig:
        return None, ""
    try:
        return load_kubeconfig(options.kubeconfig), ""
    except SetupError as error:
        return None, str(error)


def _disks(options: Options, config: NodeAgentConfiguration) -> Iterator[Finding]:
    for path in dict.fromkeys((options.root_dir, config.podLogsDir)):
        facts = gather.read_disk(path)
        if facts is not None:
            yield checks.check_disk(facts)
