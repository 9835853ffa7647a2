"""Findings about the kernel, by the table of spec.md "Kernel requirements", and about PSI; pure.

A kernel too old for a row loses only that feature, so a row warns and never fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from orch.component.diagnostics.findings import Finding, note, ok, warn

Numbers = tuple[int, ...]

# sysctl, lowest kernel
SYSCTLS: tuple[tuple[str, Numbers], ...] = (
    ("net.ipv4.ip_local_reserved_ports", (3, 16)),
    ("net.ipv4.tcp_keepalive_time", (4, 5)),
    ("net.ipv4.tcp_keepalive_intvl", (4, 5)),
    ("net.ipv4.tcp_keepalive_probes", (4, 5)),
    ("net.ipv4.tcp_fin_timeout", (4, 6)),
    ("net.ipv4.tcp_syncookies", (4, 6)),
    ("net.ipv4.tcp_rmem", (4, 15)),
    ("net.ipv4.tcp_wmem", (4, 15)),
)
IPVS_SYSCTL = "net.ipv4.vs.conn_reuse_mode"
_IPVS, _NFTABLES, _NFTABLES_TESTING = (4, 1), (5, 13), (5, 4)
_NFT_TOOL = (1, 0, 1)
_PSI, _MOUNTS = (4, 20), (5, 12)


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """`sysctls` are those found in /proc/sys; `nft` is the tool's version, "" without it.

    `psi` maps cpu, memory and io to supported, disabled or absent.
    """

    release: str
    sysctls: frozenset[str]
    nft: str
    psi: Mapping[str, str]


def check_kernel(facts: KernelFacts, *, psi_wanted: bool = True) -> list[Finding]:
    """A finding per row of the table."""
    version = numbers_in(facts.release)
    if not version:
        text = f"the kernel release {facts.release!r} is not a version"
        return [warn("kernel", text, "check manually what docs/doctor.md lists for the kernel")]
    found = [ok("kernel", f"release {facts.release}")]
    found += [_sysctl(name, lowest, version, facts) for name, lowest in SYSCTLS]
    found += [_ipvs(version, facts), _nftables(version, facts.nft)]
    found.append(_lowest("recursive read-only mounts", "mount_setattr", _MOUNTS, version))
    found += _pressure(version, facts.psi) if psi_wanted else []
    return found


def numbers_in(text: str) -> Numbers:
    """The version at the start of a text: `v5.10.0-8-amd64` is (5, 10, 0); () without one."""
    found = re.match(r"v?(\d+(?:\.\d+)+)", text.strip())
    return tuple(int(part) for part in found[1].split(".")) if found else ()


def _shown(version: Numbers) -> str:
    return ".".join(map(str, version))


def _too_old(check: str, what: str, lowest: Numbers) -> Finding:
    needed = _shown(lowest)
    return warn(check, f"{what} needs kernel {needed}", f"boot kernel {needed} or newer to use it")


def _lowest(check: str, what: str, lowest: Numbers, version: Numbers) -> Finding:
    if version < lowest:
        return _too_old(check, what, lowest)
    return ok(check, f"{what} needs kernel {_shown(lowest)}")


def _sysctl(name: str, lowest: Numbers, version: Numbers, facts: KernelFacts) -> Finding:
    check = f"sysctl {name}"
    if version < lowest:
        return _too_old(check, "setting it for a pod", lowest)
    if name not in facts.sysctls:
        return warn(check, "the kernel does not have it", "use a kernel built with CONFIG_INET")
    return ok(check, f"can be set for a pod (kernel {_shown(lowest)})")


def _ipvs(version: Numbers, facts: KernelFacts) -> Finding:
    check = f"sysctl {IPVS_SYSCTL}"
    if version < _IPVS:
        return _too_old(check, "the ipvs proxy mode", _IPVS)
    if IPVS_SYSCTL not in facts.sysctls:
        return note(check, "ipvs is not loaded", "modprobe ip_vs, if the proxy uses its ipvs mode")
    return ok(check, f"available (kernel {_shown(_IPVS)})")


def _nftables(version: Numbers, nft: str) -> Finding:
    check = "nftables proxy mode"
    if version < _NFTABLES_TESTING:
        return _too_old(check, "it", _NFTABLES)
    if version < _NFTABLES:
        return warn(
            check,
            f"it needs kernel {_shown(_NFTABLES)}",
            "boot a newer kernel; for testing only, set nftables.skipKernelVersionCheck",
        )
    tool = numbers_in(nft)
    if not tool:
        return note(
            check, "the nft tool is missing", "install nftables 1.0.1, if the proxy uses it"
        )
    if tool < _NFT_TOOL:
        return warn(check, f"nft is version {nft}", "install nftables 1.0.1 or newer")
    return ok(check, f"kernel {_shown(_NFTABLES)} and nft 1.0.1 are available (nft {nft})")


def _pressure(version: Numbers, psi: Mapping[str, str]) -> Iterator[Finding]:
    for resource, state in sorted(psi.items()):
        check = f"pressure stalls {resource}"
        if state == "supported":
            yield ok(check, "reported by the kernel")
        elif version < _PSI:
            yield _too_old(check, "PSI", _PSI)
        elif state == "disabled":
            yield warn(check, "built in, but disabled", "boot with the kernel parameter psi=1")
        else:
            yield warn(
                check,
                "not reported by this kernel",
                "use a kernel built with CONFIG_PSI=y, booted with psi=1",
            )
