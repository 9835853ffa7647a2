"""Facts about this host: kernel files, ports, disks, certificates. Reads only, never raises.

`kernel` and `checks` judge them. Blocking: for commands, not for the daemon.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

from nodeagent.config.options import Options
from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.doctor import criu, kernel
from nodeagent.doctor.checks import DiskFacts, PortFacts
from nodeagent.doctor.kernel import KernelFacts
from nodeagent.profiles.file import MAX_PROFILE_BYTES
from nodeagent.stats.host.machine import read_pressure, read_text
from orch.client.kubeconfig import ClientConfig
from orch.component.certificates import expiry
from orch.component.diagnostics.certificate_findings import (
    CertificateFacts,
    read_certificate,
    read_pair,
)
from orch.component.process import system

_PRESSURES = ("cpu", "memory", "io")


def read_kernel(proc_root: str = "/proc") -> KernelFacts:
    names = [*(name for name, _ in kernel.SYSCTLS), kernel.IPVS_SYSCTL]
    sysctls = Path(proc_root, "sys")
    return KernelFacts(
        release=read_text(sysctls / "kernel/osrelease"),
        sysctls=frozenset(n for n in names if (sysctls / n.replace(".", "/")).exists()),
        nft=criu.version_of(["nft"]),
        psi={name: read_pressure(proc_root, name)[1] for name in _PRESSURES},
    )


def read_controllers(cgroup_root: str = "/sys/fs/cgroup") -> frozenset[str]:
    """The controllers of cgroup v2; empty on version 1."""
    return frozenset(read_text(Path(cgroup_root, "cgroup.controllers")).split())


def read_capabilities(proc_root: str = "/proc") -> int | None:
    """The effective set of this process as a bit mask; None when /proc does not show it."""
    text = _status_field(proc_root, "CapEff")
    return int(text, 16) if text else None


def has_seccomp(proc_root: str = "/proc") -> bool:
    return bool(_status_field(proc_root, "Seccomp"))


def bad_profiles(directory: str) -> tuple[str, ...]:
    """The problems of the profiles below a directory, a text per unusable file."""
    return tuple(
        f"{path}: {problem}"
        for path in sorted(Path(directory).rglob("*.json"))
        if (problem := _profile_problem(path))
    )


def existing_ancestor(path: str) -> Path:
    """The path itself or the nearest directory above it that exists."""
    existing = Path(path).absolute()
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    return existing


def read_disk(path: str) -> DiskFacts | None:
    """The file system that holds a path, or will hold it; None when it is not readable."""
    try:
        found = os.statvfs(existing_ancestor(path))
    except OSError:
        return None
    inodes = 100.0 * found.f_favail / found.f_files if found.f_files else 100.0
    return DiskFacts(path, 100.0 * found.f_bavail / max(found.f_blocks, 1), inodes)


def read_descriptors(proc_root: str = "/proc") -> tuple[int, int, int]:
    """This process's limit, the system's open files, and the system's limit (0: unknown)."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    words = read_text(Path(proc_root, "sys/fs/file-nr")).split()
    used, most = (int(words[0]), int(words[2])) if len(words) == 3 else (0, 0)
    return limit, used, most


def read_lock(path: str, proc_root: str = "/proc") -> tuple[int | None, str]:
    """The pid that holds a lock file (None: no process), and why it cannot be created ("")."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        folder = Path(path).absolute().parent
        return None, "" if os.access(folder, os.W_OK) else f"{folder} is not writable"
    except OSError as error:
        return None, error.strerror or str(error)
    device = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    for line in read_text(Path(proc_root, "locks")).splitlines():
        words = line.split()  # 1: POSIX ADVISORY WRITE 123 fe:01:456 0 EOF
        if len(words) >= 6 and words[1] == "POSIX" and words[5] == device:
            return int(words[4]), ""
    return None, ""


def read_port(role: str, address: str, port: int) -> PortFacts:
    """Whether a server could listen there; SO_REUSEADDR is set, as servers do."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address, port))
            probe.listen(1)
    except (OSError, OverflowError) as error:
        in_use = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        pid = system.listening_process(address, port) if in_use else None
        holder = system.describe_process(pid) if pid else ""
        why = str(getattr(error, "strerror", None) or error)
        return PortFacts(role, address, port, why, holder)
    return PortFacts(role, address, port)


def read_certificates(
    options: Options, config: NodeAgentConfiguration, api: ClientConfig | None
) -> Iterator[CertificateFacts]:
    """The serving pair, the CAs, and the credential for the API server."""
    certificate, key = options.certificate_files(config)
    if config.tlsCertFile or Path(certificate).exists():
        yield read_pair("serving", certificate, key)
    else:
        yield CertificateFacts("serving", certificate)
    if ca_file := config.authentication.x509.clientCAFile:
        yield read_certificate("client CA", ca_file)
    if api and api.ca_file:
        yield read_certificate("API server CA", api.ca_file)
    if api and api.cert_file and api.key_file:
        yield read_pair("API client", api.cert_file, api.key_file)
    elif api and api.cert_data:
        yield CertificateFacts("API client", options.kubeconfig or "", expiry(api.cert_data))


def _profile_problem(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_PROFILE_BYTES:
            return f"larger than {MAX_PROFILE_BYTES} bytes"
        profile = json.loads(path.read_bytes())
    except OSError as error:
        return error.strerror or str(error)
    except (ValueError, RecursionError) as error:
        return f"not JSON: {error}"
    if not isinstance(profile, dict) or not isinstance(profile.get("defaultAction"), str):
        return "not a seccomp profile: defaultAction is missing"
    return ""


def _status_field(proc_root: str, name: str) -> str:
    for line in read_text(Path(proc_root, "self/status")).splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return value.strip()
    return ""
