"""The paths, ports and network links of this host are examined."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent.config import options
from nodeagent.config.load import load_config
from nodeagent.doctor.examination import check_interfaces, examine, examine_configuration
from nodeagent.stats.host.network import LinkFacts
from orch.component.diagnostics.findings import Finding
from orch.component.process import clock


@pytest.fixture
def flags(tmp_path: Path, free_port: Callable[[], int]) -> list[str]:
    """Flags of an agent that finds everything it needs."""
    return [
        f"--root-dir={tmp_path}/root",
        f"--pod-logs-dir={tmp_path}/logs",
        f"--lock-file={tmp_path}/lock",
        "--container-runtime-endpoint=",
        f"--port={free_port()}",
        f"--healthz-port={free_port()}",
    ]


def check(flags: list[str]) -> dict[str, Finding]:
    given = options.parse(flags)
    config = load_config(None, None, given.overrides)
    return {one.check: one for one in examine_configuration(given, config, clock.utc_now())}


def test_a_host_that_fits_has_no_complaint(flags: list[str]) -> None:
    assert {one.verdict for one in check(flags).values()} <= {"ok", "note"}


def test_paths_that_cannot_be_used_fail(flags: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = check([*flags, f"--root-dir={tmp_path}/file/x", "--pod-manifest-path=/absent"])
    assert found["root directory"].verdict == "fail"
    assert found["static pods"].verdict == "warn"


def test_the_runtime_endpoint_is_a_socket_that_is_there(flags: list[str], tmp_path: Path) -> None:
    path = tmp_path / "s"
    endpoint = f"--container-runtime-endpoint=unix://{path}"
    assert "No such file" in check([*flags, endpoint])["runtime socket"].message
    path.touch()
    assert "not a socket" in check([*flags, endpoint])["runtime socket"].message
    path.unlink()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        assert check([*flags, endpoint])["runtime socket"].verdict == "ok"


def test_a_port_in_use_fails(flags: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = check([*flags, f"--healthz-port={port}"])
    assert found["port health"].verdict == "fail"


def test_a_disabled_port_is_not_checked(flags: list[str]) -> None:
    assert "port health" not in check([*flags, "--healthz-port=0"])


def test_a_kubeconfig_that_others_can_read_warns(flags: list[str], tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text("{}")
    path.chmod(0o644)
    assert check([*flags, f"--kubeconfig={path}"])["kubeconfig file"].verdict == "warn"


# What an examination looks at, whatever it finds.
LOOKED_AT = {
    # spec.md, "Kernel requirements"; the runtimes of its last row are in test_checks.py
    "kernel",
    "sysctl net.ipv4.ip_local_reserved_ports",
    "sysctl net.ipv4.tcp_keepalive_time",
    "sysctl net.ipv4.tcp_keepalive_intvl",
    "sysctl net.ipv4.tcp_keepalive_probes",
    "sysctl net.ipv4.tcp_fin_timeout",
    "sysctl net.ipv4.tcp_syncookies",
    "sysctl net.ipv4.tcp_rmem",
    "sysctl net.ipv4.tcp_wmem",
    "sysctl net.ipv4.vs.conn_reuse_mode",
    "nftables proxy mode",
    "recursive read-only mounts",
    "pressure stalls cpu",
    "pressure stalls memory",
    "pressure stalls io",
    # the rest of this host, and what the configuration names
    "cgroups",
    "capability CAP_DAC_READ_SEARCH",
    "capability CAP_SYS_ADMIN",
    "network",
    "container runtime",
    "checkpoint",
    "seccomp profiles",
    "API server",
    "certificate serving",
    "hardening",
    "feature gates",
    "root directory",
    "pod logs",
    "file descriptors",
    "lock file",
    "port serving",
    "port health",
}


def test_every_row_is_among_what_is_found(flags: list[str]) -> None:
    given = options.parse(flags)
    found = examine(given, load_config(None, None, given.overrides), clock.utc_now())
    checks = {one.check for one in found}
    assert LOOKED_AT - checks == set()
    assert len({check for check in checks if check.startswith("disk ")}) == 2  # state and logs


def test_an_examination_of_this_machine_has_advice(flags: list[str], tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text("clusters: 1")
    given = options.parse([*flags, f"--kubeconfig={path}"])
    found = examine(given, load_config(None, None, given.overrides), clock.utc_now())
    verdicts = {one.check: one.verdict for one in found}
    assert verdicts["kubeconfig"] == "fail"
    assert verdicts["kernel"] == "ok"
    assert all(one.advice for one in found if one.verdict != "ok")


def test_a_runtime_is_queried_only_if_its_socket_exists(flags: list[str], tmp_path: Path) -> None:
    def runtime(endpoint: str) -> Finding:
        given = options.parse([*flags, f"--container-runtime-endpoint={endpoint}"])
        config = load_config(None, None, given.overrides)
        found = examine(given, config, clock.utc_now())
        return next(one for one in found if one.check == "container runtime")

    assert runtime("").verdict == "note"
    assert "there is no socket" in runtime(f"unix://{tmp_path}/absent").message
    (tmp_path / "dead").touch()
    assert "does not answer" in runtime(f"unix://{tmp_path}/dead").message


def link(name: str, *, is_default: bool = False, is_up: bool = True) -> LinkFacts:
    return LinkFacts(name, is_default, "", is_up, 1500, "02:00:00:00:00:01")


@pytest.mark.parametrize(
    ("links", "verdict", "text"),
    [
        ([link("lo"), link("eth0", is_default=True)], "ok", "over eth0 (mtu 1500)"),
        ([link("lo")], "note", "no default route"),
        ([link("eth0", is_default=True, is_up=False)], "warn", "eth0 has the default route"),
        (
            [link("eth0", is_default=True, is_up=False), link("eth1", is_default=True)],
            "ok",
            "over eth1",
        ),
    ],
)
def test_the_link_of_the_default_route_is_checked(
    links: list[LinkFacts], verdict: str, text: str
) -> None:
    found = check_interfaces(lambda: links)
    assert found.verdict == verdict
    assert text in found.message


def test_a_kernel_that_does_not_answer_is_named() -> None:
    def refuse() -> list[LinkFacts]:
        raise PermissionError(1, "not permitted")

    found = check_interfaces(refuse)
    assert "not permitted" in found.message


def test_this_machine_has_links() -> None:
    assert check_interfaces().check == "network"
