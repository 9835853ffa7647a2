"""The kernel parameters that a pod may set; pure.

Safe ones are confined to the pod's namespaces by kernels that are new enough (spec.md, "Kernel
requirements"); others are refused, but for those that the node's administrator allows
(`allowedUnsafeSysctls`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from orch.wire.podrules.isolation import sysctl_namespace
from orch.wire.records.pods import Pod

# The first kernel that gives every namespace its own value; (0, 0): all supported ones.
SAFE: dict[str, tuple[int, int]] = {
    "kernel.shm_rmid_forced": (0, 0),
    "net.ipv4.ip_local_port_range": (0, 0),
    "net.ipv4.ping_group_range": (0, 0),
    "net.ipv4.ip_unprivileged_port_start": (0, 0),
    "net.ipv4.ip_local_reserved_ports": (3, 16),
    "net.ipv4.tcp_keepalive_time": (4, 5),
    "net.ipv4.tcp_keepalive_intvl": (4, 5),
    "net.ipv4.tcp_keepalive_probes": (4, 5),
    "net.ipv4.tcp_fin_timeout": (4, 6),
    "net.ipv4.tcp_syncookies": (4, 6),
    "net.ipv4.tcp_rmem": (4, 15),
    "net.ipv4.tcp_wmem": (4, 15),
}
_VERSION = re.compile(r"(\d+)\.(\d+)")


def sysctl_problem(pod: Pod, kernel_version: str, unsafe: Iterable[str] = ()) -> str:
    """Why the pod's first bad sysctl is refused; "" when all are fine.

    `unsafe` are names that are allowed beside the safe ones; one may end in `*`.
    """
    context, patterns = pod.spec.securityContext, tuple(unsafe)
    for sysctl in (context and context.sysctls) or ():
        name = sysctl.name.replace("/", ".")
        why = _name_problem(name, kernel_version, patterns) or _namespace_problem(name, pod)
        if why:
            return f'forbidden sysctl: "{name}" {why}'
    return ""


def _name_problem(name: str, kernel_version: str, unsafe: tuple[str, ...]) -> str:
    if any(_is_meant(name, pattern.replace("/", ".")) for pattern in unsafe):
        return ""
    if name not in SAFE:
        return "not allowlisted"
    needed = SAFE[name]
    if is_at_least(kernel_version, needed):
        return ""
    return f"needs kernel {needed[0]}.{needed[1]}, this node has {kernel_version}"


def _is_meant(name: str, pattern: str) -> bool:
    if pattern.endswith("*"):
        return name.startswith(pattern[:-1])
    return name == pattern


def _namespace_problem(name: str, pod: Pod) -> str:
    of_host = {"Net": pod.spec.hostNetwork, "IPC": pod.spec.hostIPC}
    namespace = sysctl_namespace(name)
    shown = namespace.lower()
    return f"not allowed with host {shown} enabled" if of_host.get(namespace) else ""


def is_at_least(version: str, needed: tuple[int, int]) -> bool:
    """An unreadable version counts as new enough: the runtime has the last word."""
    match = _VERSION.match(version)
    return match is None or (int(match[1]), int(match[2])) >= needed
