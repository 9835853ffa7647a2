"""The kernel parameters that a pod may set; pure.

Safe ones are confined to the pod's namespaces by kernels that are new enough (spec.md, "Kernel
requirements"); all others are refused.
"""

from __future__ import annotations

import re

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


def sysctl_problem(pod: Pod, kernel_version: str) -> str:
    """Why the pod's first bad sysctl is refused; "" when all are fine."""
    context = pod.spec.securityContext
    for sysctl in (context and context.sysctls) or ():
        name = sysctl.name.replace("/", ".")
        if name not in SAFE:
            return f'forbidden sysctl: "{name}" not allowlisted'
        needed = SAFE[name]
        if not is_at_least(kernel_version, needed):
            return (
                f'forbidden sysctl: "{name}" needs kernel {needed[0]}.{needed[1]}, '
                f"this node has {kernel_version}"
            )
        if name.startswith("net.") and pod.spec.hostNetwork:
            return f'forbidden sysctl: "{name}" not allowed with host net enabled'
        if name.startswith("kernel.shm") and pod.spec.hostIPC:
            return f'forbidden sysctl: "{name}" not allowed with host ipc enabled'
    return ""


def is_at_least(version: str, needed: tuple[int, int]) -> bool:
    """An unreadable version counts as new enough: the runtime has the last word."""
    match = _VERSION.match(version)
    return match is None or (int(match[1]), int(match[2])) >= needed
