"""Turns facts about this host into findings, a function per check; pure.

Must not read anything: facts come from `gather`, `criu` and `remote`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nodeagent.doctor.kernel import numbers_in
from orch.component.diagnostics.findings import Finding, fail, note, ok, warn

# Lowest versions with complete CRI statistics (spec.md, kernel table), and with checkpoints.
_STATS_SINCE = {"containerd": (1, 6, 0), "cri-o": (1, 23, 0)}
_CHECKPOINT_SINCE = {"containerd": (2, 0, 0), "cri-o": (1, 25, 0)}
_SKEW_WARN_S, _SKEW_FAIL_S = 2.0, 30.0
_WANTED_CAPABILITIES = {  # bit of CapEff → name, effect of its absence
    2: ("CAP_DAC_READ_SEARCH", "logs and volumes of other users cannot be measured"),
    21: ("CAP_SYS_ADMIN", "emptyDir volumes of medium Memory cannot be mounted"),
}


@dataclass(frozen=True, slots=True)
class RuntimeFacts:
    """The runtime's answers; `error` when there is none, `not_ready` its false conditions."""

    endpoint: str
    socket_exists: bool = False
    name: str = ""
    version: str = ""
    not_ready: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class CriuFacts:
    """`version` is "" without the program; `problem` is the last line of a failed `criu check`."""

    version: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class DiskFacts:
    path: str
    available_percent: float
    inodes_free_percent: float  # 100 if the file system does not count them


@dataclass(frozen=True, slots=True)
class PortFacts:
    role: str
    address: str
    port: int
    error: str = ""  # why listening fails
    holder: str = ""  # the listening process, if known


def check_cgroups(version: str, controllers: frozenset[str], *, fail_v1: bool) -> Finding:
    if version == "none":
        return fail("cgroups", "none are mounted", "mount cgroup2 on /sys/fs/cgroup")
    if version != "v2":
        report = fail if fail_v1 else warn
        return report(
            "cgroups",
            f"{version}: cgroup v1 is in maintenance mode",
            "boot with systemd.unified_cgroup_hierarchy=1 for cgroup v2",
        )
    missing = sorted({"cpu", "memory", "pids", "io"} - controllers)
    if missing:
        advice = "enable them on the kernel command line (cgroup_enable=…) or in the parent cgroup"
        return warn("cgroups", f"v2 without the controllers {', '.join(missing)}", advice)
    return ok("cgroups", "v2 with cpu, memory, pids and io")


def check_capabilities(effective: int | None, *, root: bool) -> list[Finding]:
    if effective is None:
        return [note("capabilities", "not known without /proc/self/status", "mount /proc")]
    found = []
    for bit, (name, lost) in _WANTED_CAPABILITIES.items():
        if effective >> bit & 1:
            found.append(ok(f"capability {name}", "held"))
        else:
            found.append(warn(f"capability {name}", f"missing: {lost}", f"add {name} to the unit"))
    if not root:
        advice = "run the agent and this command as root to use a runtime and its pods"
        found.append(warn("user", "not root: the runtime's socket and logs may be closed", advice))
    return found


def check_runtime(facts: RuntimeFacts) -> list[Finding]:
    check = "container runtime"
    if not facts.endpoint:
        advice = "set containerRuntimeEndpoint to run pods; node statistics work without"
        return [note(check, "none is configured", advice)]
    if not facts.socket_exists:
        advice = "start the runtime, or set containerRuntimeEndpoint to its socket"
        return [fail(check, f"there is no socket at {facts.endpoint}", advice)]
    if facts.error:
        advice = "see the runtime's log; the agent waits for it and runs no pods until then"
        return [fail(check, f"{facts.endpoint} does not answer: {facts.error}", advice)]
    found = [ok(check, f"{facts.name} {facts.version} at {facts.endpoint}")]
    advice = "see the runtime's log and its network configuration"
    found += [warn(check, condition, advice) for condition in facts.not_ready]
    return [*found, _statistics(facts)]


def _statistics(facts: RuntimeFacts) -> Finding:
    check, since = "runtime statistics", _STATS_SINCE.get(facts.name)
    if since is None:
        advice = "use containerd 1.6.0 or CRI-O 1.23.0 for PodAndContainerStatsFromCRI"
        return note(check, f"{facts.name} is not a known runtime", advice)
    needed = ".".join(map(str, since))
    if numbers_in(facts.version) < since:
        return warn(check, f"{facts.name} {needed} is needed", f"upgrade to {needed} or newer")
    return ok(check, f"complete since {facts.name} {needed}")


def check_checkpoint(facts: RuntimeFacts, criu: CriuFacts, *, gate: bool) -> Finding:
    """Whether containers can be checkpointed; the runtime needs CRIU."""
    check = "checkpoint"
    if not gate:
        advice = "set the feature gate ContainerCheckpoint to use it"
        return note(check, "disabled by its feature gate", advice)
    if not facts.name:
        return note(check, "not known without a runtime", "run this again when the runtime answers")
    since = _CHECKPOINT_SINCE.get(facts.name)
    if since and numbers_in(facts.version) < since:
        needed = ".".join(map(str, since))
        text = f"{facts.name} {facts.version} cannot checkpoint"
        return warn(check, text, f"upgrade to {facts.name} {needed} or newer")
    if not criu.version:
        return warn(
            check,
            "CRIU is not in the runtime's PATH",
            "install criu where the runtime finds it",
        )
    if criu.problem:
        advice = "run 'criu check' as root and enable the kernel features it names"
        return warn(check, f"CRIU {criu.version}: {criu.problem}", advice)
    return ok(check, f"{facts.name} {facts.version} with CRIU {criu.version}")


def check_seccomp(
    directory: str, *, supported: bool, exists: bool, bad_profiles: Sequence[str]
) -> Iterator[Finding]:
    if not supported:
        advice = "use a kernel built with CONFIG_SECCOMP_FILTER=y; pods run unconfined or fail"
        yield warn("seccomp", "not supported by this kernel", advice)
    if not exists:
        advice = f"create {directory} and put profiles there if pods use Localhost profiles"
        yield note("seccomp profiles", f"{directory} does not exist", advice)
        return
    for problem in bad_profiles:
        advice = "correct it: pods that use it get CreateContainerError"
        yield warn("seccomp profiles", problem, advice)
    if not bad_profiles:
        yield ok("seccomp profiles", f"all profiles in {directory} are usable")


def check_clock(server: str, skew_s: float | None, error: str) -> Finding:
    """`skew_s` is how far this host is ahead; None when it is not known."""
    if not server:
        advice = "give --kubeconfig to check the API server and the clock against it"
        return note("API server", "none is configured: standalone", advice)
    if skew_s is None:
        advice = "check that it is running, and the address and certificates in the kubeconfig"
        return fail("API server", error or f"{server} did not report the time", advice)
    text = f"this host is {abs(skew_s):.1f} s {'ahead of' if skew_s > 0 else 'behind'} {server}"
    if abs(skew_s) > _SKEW_FAIL_S:
        return fail("clock", text, "synchronize the clock (chrony, systemd-timesyncd), now")
    if abs(skew_s) > _SKEW_WARN_S:
        return warn("clock", text, "synchronize the clock (chrony, systemd-timesyncd)")
    return ok("clock", f"within {_SKEW_WARN_S:g} s of {server}")


def check_disk(facts: DiskFacts) -> Finding:
    check = f"disk {facts.path}"
    text = f"{facts.available_percent:.0f}% free, {facts.inodes_free_percent:.0f}% of inodes"
    if facts.available_percent < 2 or facts.inodes_free_percent < 1:
        return fail(check, text, "free space: the agent cannot write state or logs")
    if facts.available_percent < 10 or facts.inodes_free_percent < 5:
        return warn(check, text, "free space, or the node reports DiskPressure")
    return ok(check, text)


def check_descriptors(limit: int, wanted: int, used: int, system_limit: int) -> Iterator[Finding]:
    """This process's limit against the agent's need; the system's use against its limit."""
    if limit < wanted:
        advice = f"set LimitNOFILE={wanted} or more in the unit, or lower openFileBudget"
        yield warn("file descriptors", f"the limit is {limit}, {wanted} may be needed", advice)
    else:
        yield ok("file descriptors", f"the limit is {limit}")
    if system_limit and used > system_limit * 0.8:
        text = f"{used} of the system's {system_limit}"
        yield warn("open files", text, "raise the sysctl fs.file-max")


def check_lock(path: str, holder: str, problem: str) -> Finding:
    """`holder` describes the process that holds it, "" when there is none."""
    if problem:
        return fail("lock file", f"{path}: {problem}", "give --lock-file a writable path")
    if holder:
        advice = "stop it before starting another on this host"
        return note("lock file", f"an agent is running ({holder}) and holds {path}", advice)
    return ok("lock file", f"{path} is free")


def check_port(facts: PortFacts, *, agent_runs: bool) -> Finding:
    check = f"port {facts.role}"
    where = f"{facts.address}:{facts.port}"
    if not facts.error:
        return ok(check, f"{where} is free")
    if agent_runs:
        return ok(check, f"{where} is in use, and an agent is running")
    if facts.holder:
        advice = "stop that process, or choose another port"
        return fail(check, f"{where}: {facts.error} by {facts.holder}", advice)
    advice = f"find the process (ss -ltnp 'sport = :{facts.port}'), or choose another port"
    return fail(check, f"{where}: {facts.error}", advice)
