"""Every row of the specification's kernel table, at its edge."""

import pytest

from nodeagent.doctor.kernel import IPVS_SYSCTL, SYSCTLS, KernelFacts, check_kernel, numbers_in
from orch.component.diagnostics.findings import Finding

ALL = frozenset([*(name for name, _ in SYSCTLS), IPVS_SYSCTL])
SUPPORTED = dict.fromkeys(("cpu", "memory", "io"), "supported")


def facts(
    release: str = "6.1.0-9-amd64",
    *,
    sysctls: frozenset[str] = ALL,
    nft: str = "1.0.6",
    psi: str = "supported",
) -> KernelFacts:
    return KernelFacts(release, sysctls, nft, dict.fromkeys(("cpu", "memory", "io"), psi))


def find(found: list[Finding], check: str) -> Finding:
    return next(finding for finding in found if finding.check == check)


# spec.md, "Kernel requirements": the check, the last kernel too old for it, the first that will do
ROWS = [
    ("sysctl net.ipv4.ip_local_reserved_ports", "3.15", "3.16"),
    ("sysctl net.ipv4.tcp_keepalive_time", "4.4", "4.5"),
    ("sysctl net.ipv4.tcp_keepalive_intvl", "4.4", "4.5"),
    ("sysctl net.ipv4.tcp_keepalive_probes", "4.4", "4.5"),
    ("sysctl net.ipv4.tcp_fin_timeout", "4.5", "4.6"),
    ("sysctl net.ipv4.tcp_syncookies", "4.5", "4.6"),
    ("sysctl net.ipv4.tcp_rmem", "4.14", "4.15"),
    ("sysctl net.ipv4.tcp_wmem", "4.14", "4.15"),
    ("sysctl net.ipv4.vs.conn_reuse_mode", "4.0", "4.1"),
    ("nftables proxy mode", "5.12", "5.13"),
    ("recursive read-only mounts", "5.11", "5.12"),
]


@pytest.mark.parametrize(("check", "too_old", "enough"), ROWS)
def test_a_row_needs_its_kernel(check: str, too_old: str, enough: str) -> None:
    old = find(check_kernel(facts(f"{too_old}.99-generic")), check)
    assert old.verdict == "warn"
    assert enough in old.message
    assert old.advice
    new = find(check_kernel(facts(f"{enough}.0")), check)
    assert (new.verdict, new.advice) == ("ok", "")


# kernel, nft → verdict, part of the advice
NFTABLES = [
    ("5.13.0", "1.0.1", "ok", ""),
    ("5.13.0", "1.0.0", "warn", "1.0.1"),
    ("5.13.0", "0.9.8", "warn", "1.0.1"),
    ("5.13.0", "", "note", "install nftables"),
    ("5.4.0", "1.0.6", "warn", "nftables.skipKernelVersionCheck"),
    ("5.3.18", "1.0.6", "warn", "boot kernel 5.13"),
]


@pytest.mark.parametrize(("release", "nft", "verdict", "advice"), NFTABLES)
def test_nftables_needs_kernel_and_tool(release: str, nft: str, verdict: str, advice: str) -> None:
    found = find(check_kernel(facts(release, nft=nft)), "nftables proxy mode")
    assert found.verdict == verdict
    assert advice in found.advice


# kernel, state → verdict, part of the advice
PSI = [
    ("4.20.0", "supported", "ok", ""),
    ("4.20.0", "disabled", "warn", "psi=1"),
    ("4.20.0", "absent", "warn", "CONFIG_PSI=y"),
    ("4.19.0", "absent", "warn", "boot kernel 4.20"),
]


@pytest.mark.parametrize(("release", "state", "verdict", "advice"), PSI)
def test_pressure_stalls_have_three_states(
    release: str, state: str, verdict: str, advice: str
) -> None:
    found = check_kernel(facts(release, psi=state))
    for resource in ("cpu", "io", "memory"):
        finding = find(found, f"pressure stalls {resource}")
        assert finding.verdict == verdict
        assert advice in finding.advice


def test_pressure_stalls_are_not_checked_when_their_gate_is_off() -> None:
    found = check_kernel(facts(psi="absent"), psi_wanted=False)
    assert not [finding for finding in found if finding.check.startswith("pressure")]


def test_a_sysctl_that_the_kernel_lacks_warns_and_ipvs_that_is_not_loaded_does_not() -> None:
    found = check_kernel(facts(sysctls=frozenset()))
    assert find(found, "sysctl net.ipv4.tcp_rmem").verdict == "warn"
    assert find(found, f"sysctl {IPVS_SYSCTL}").verdict == "note"


def test_a_release_that_is_not_a_version_is_a_warning() -> None:
    (finding,) = check_kernel(facts("custom"))
    assert finding.verdict == "warn"


VERSIONS = [
    ("6.18.44-fc-v669", (6, 18, 44)),
    ("v1.0.6", (1, 0, 6)),
    ("5.4", (5, 4)),
    ("5", ()),
    ("", ()),
    ("x5.4", ()),
]


@pytest.mark.parametrize(("text", "numbers"), VERSIONS)
def test_a_version_is_read_from_what_a_text_begins_with(
    text: str, numbers: tuple[int, ...]
) -> None:
    assert numbers_in(text) == numbers
