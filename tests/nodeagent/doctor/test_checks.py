"""From facts to findings, by tables."""

import pytest

from nodeagent.doctor import checks
from nodeagent.doctor.checks import CriuFacts, DiskFacts, PortFacts, RuntimeFacts

ALL = frozenset(["cpu", "memory", "pids", "io", "cpuset"])

CGROUPS = [
    ("v2", ALL, True, "ok"),
    ("v2", ALL - {"io"}, False, "warn"),
    ("hybrid", frozenset(), False, "warn"),
    ("v1", frozenset(), False, "warn"),
    ("v1", frozenset(), True, "fail"),
    ("hybrid", frozenset(), True, "fail"),
    ("none", frozenset(), False, "fail"),
]


@pytest.mark.parametrize(("version", "controllers", "fail_v1", "verdict"), CGROUPS)
def test_cgroups(version: str, controllers: frozenset[str], fail_v1: bool, verdict: str) -> None:
    found = checks.check_cgroups(version, controllers, fail_v1=fail_v1)
    assert found.verdict == verdict
    assert bool(found.advice) == (verdict != "ok")


def test_missing_capabilities_say_what_is_lost() -> None:
    everything = checks.check_capabilities(0x1FFFFFFFFFF, root=True)
    assert {finding.verdict for finding in everything} == {"ok"}
    nothing = checks.check_capabilities(0, root=False)
    assert [finding.verdict for finding in nothing] == ["warn", "warn", "warn"]
    assert "CAP_DAC_READ_SEARCH" in nothing[0].advice
    assert checks.check_capabilities(None, root=True)[0].verdict == "note"


# facts → verdicts in order
RUNTIMES = [
    (RuntimeFacts(""), ["note"]),
    (RuntimeFacts("unix:///x"), ["fail"]),
    (RuntimeFacts("unix:///x", True, error="deadline exceeded"), ["fail"]),
    (RuntimeFacts("unix:///x", True, "containerd", "2.1.9"), ["ok", "ok"]),
    (RuntimeFacts("unix:///x", True, "containerd", "v1.6.0"), ["ok", "ok"]),
    (RuntimeFacts("unix:///x", True, "containerd", "1.5.18"), ["ok", "warn"]),
    (RuntimeFacts("unix:///x", True, "cri-o", "1.22.9"), ["ok", "warn"]),
    (RuntimeFacts("unix:///x", True, "cri-o", "1.23.0"), ["ok", "ok"]),
    (RuntimeFacts("unix:///x", True, "other", "9.9.9"), ["ok", "note"]),
    (RuntimeFacts("unix:///x", True, "containerd", "2.1.9", ("no CNI",)), ["ok", "warn", "ok"]),
]


@pytest.mark.parametrize(("facts", "verdicts"), RUNTIMES)
def test_the_runtime_and_its_statistics(facts: RuntimeFacts, verdicts: list[str]) -> None:
    found = checks.check_runtime(facts)
    assert [finding.verdict for finding in found] == verdicts
    assert all(finding.advice for finding in found if finding.verdict != "ok")


NEW = RuntimeFacts("unix:///x", True, "containerd", "2.1.9")
CHECKPOINTS = [
    (NEW, CriuFacts("4.2.1"), True, "ok", ""),
    (NEW, CriuFacts("4.2.1"), False, "note", "ContainerCheckpoint"),
    (RuntimeFacts(""), CriuFacts("4.2.1"), True, "note", "when the runtime answers"),
    (NEW, CriuFacts(), True, "warn", "install criu"),
    (NEW, CriuFacts("3.1", "Error: no uffd"), True, "warn", "criu check"),
    (RuntimeFacts("x", True, "containerd", "1.7.2"), CriuFacts("4.2"), True, "warn", "2.0.0"),
    (RuntimeFacts("x", True, "cri-o", "1.24.9"), CriuFacts("4.2"), True, "warn", "1.25.0"),
    (RuntimeFacts("x", True, "other", "0.1"), CriuFacts("4.2"), True, "ok", ""),
]


@pytest.mark.parametrize(("facts", "criu", "gate", "verdict", "advice"), CHECKPOINTS)
def test_checkpoints_need_gate_runtime_and_criu(
    facts: RuntimeFacts, criu: CriuFacts, gate: bool, verdict: str, advice: str
) -> None:
    found = checks.check_checkpoint(facts, criu, gate=gate)
    assert found.verdict == verdict
    assert advice in found.advice


SECCOMP = [
    (True, True, (), ["ok"]),
    (True, False, (), ["note"]),
    (False, False, (), ["warn", "note"]),
    (True, True, ("a.json: not JSON",), ["warn"]),
]


@pytest.mark.parametrize(("supported", "exists", "bad", "verdicts"), SECCOMP)
def test_seccomp_and_its_profiles(
    supported: bool, exists: bool, bad: tuple[str, ...], verdicts: list[str]
) -> None:
    found = checks.check_seccomp("/s", supported=supported, exists=exists, bad_profiles=bad)
    assert [finding.verdict for finding in found] == verdicts


CLOCKS = [
    ("", None, "", "API server", "note"),
    ("https://x", None, "refused", "API server", "fail"),
    ("https://x", 0.0, "", "clock", "ok"),
    ("https://x", 2.0, "", "clock", "ok"),
    ("https://x", -2.1, "", "clock", "warn"),
    ("https://x", 29.0, "", "clock", "warn"),
    ("https://x", -31.0, "", "clock", "fail"),
]


@pytest.mark.parametrize(("server", "skew_s", "error", "check", "verdict"), CLOCKS)
def test_the_clock_against_the_api_server(
    server: str, skew_s: float | None, error: str, check: str, verdict: str
) -> None:
    found = checks.check_clock(server, skew_s, error)
    assert (found.check, found.verdict) == (check, verdict)


DISKS = [(50, 50, "ok"), (10, 5, "ok"), (9.9, 50, "warn"), (50, 4.9, "warn"), (1.9, 50, "fail")]


@pytest.mark.parametrize(("available", "inodes", "verdict"), [*DISKS, (50, 0.5, "fail")])
def test_disks(available: float, inodes: float, verdict: str) -> None:
    assert checks.check_disk(DiskFacts("/x", available, inodes)).verdict == verdict


DESCRIPTORS = [
    (8192, 5120, 100, 1000, ["ok"]),
    (1024, 5120, 100, 1000, ["warn"]),
    (8192, 5120, 801, 1000, ["ok", "warn"]),
    (8192, 5120, 0, 0, ["ok"]),
]


@pytest.mark.parametrize(("limit", "wanted", "used", "most", "verdicts"), DESCRIPTORS)
def test_descriptors(limit: int, wanted: int, used: int, most: int, verdicts: list[str]) -> None:
    found = checks.check_descriptors(limit, wanted, used, most)
    assert [finding.verdict for finding in found] == verdicts


def test_the_lock_file() -> None:
    assert checks.check_lock("/l", "", "").verdict == "ok"
    assert "(pid 12)" in checks.check_lock("/l", "pid 12", "").message
    assert checks.check_lock("/l", "", "/ cannot be written").verdict == "fail"


def test_a_port_in_use_is_as_it_should_be_while_an_agent_runs() -> None:
    taken = PortFacts("serving", "0.0.0.0", 10250, "Address already in use")
    assert checks.check_port(taken, agent_runs=True).verdict == "ok"
    refused = checks.check_port(taken, agent_runs=False)
    assert refused.verdict == "fail"
    assert "sport = :10250" in refused.advice
    assert checks.check_port(PortFacts("x", "::", 1), agent_runs=False).verdict == "ok"
