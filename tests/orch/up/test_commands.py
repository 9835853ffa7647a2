"""The command lines of the daemons, read by the daemons' own parsers."""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nodeagent.config import options as agent
from orch.component.process.daemon import SetupError
from orch.lifecycle import options as controller
from orch.server import flags as server
from orch.up import commands
from orch.up.commands import Ports
from orch.up.layout import Certificates, Layout, issue_certificates

PORTS = Ports(apiserver=1001, nodeagent=1002, healthz=1003, controller=1004)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path)
    layout.make()
    return layout


@pytest.fixture
def certificates(layout: Layout) -> Certificates:
    return issue_certificates(layout.pki, "n1", now=datetime(2026, 1, 31, tzinfo=UTC))


def agent_overrides(command: commands.Command) -> dict[str, object]:
    return {one.flag: one.value for one in agent.parse(command[1:]).overrides}


def test_programs_lie_beside_the_interpreter(layout: Layout, certificates: Certificates) -> None:
    beside = Path(sys.executable).parent
    made = (
        commands.apiserver(layout, PORTS, certificates),
        commands.controller_manager(layout, PORTS, certificates),
        commands.nodeagent(layout, PORTS, certificates, "n1", None),
    )
    assert [command[0] for command in made] == [
        str(beside / name) for name in ("orch-apiserver", "orch-controller-manager", "nodeagent")
    ]


def test_the_api_server_takes_its_command_line(layout: Layout, certificates: Certificates) -> None:
    given = server.parse(commands.apiserver(layout, PORTS, certificates)[1:])
    assert (given.bind_addresses, given.secure_port) == (["127.0.0.1"], 1001)
    assert given.client_ca_file == certificates.ca_file
    assert given.tls_cert_file == certificates.apiserver.cert_file
    assert str(layout.store) in str(given)


def test_the_api_server_also_listens_where_pods_reach_the_machine(
    layout: Layout, certificates: Certificates
) -> None:
    ports = replace(PORTS, host_address="192.0.2.1")
    given = server.parse(commands.apiserver(layout, ports, certificates)[1:])
    assert given.bind_addresses == ["127.0.0.1", "192.0.2.1"]


def test_the_api_server_gets_what_was_chosen_for_it(
    layout: Layout, certificates: Certificates
) -> None:
    chosen = ["--serve-upstream-aliases", "--etcd-servers=http://127.0.0.1:2379"]
    command = commands.apiserver(layout, PORTS, certificates, chosen)
    assert command[-2:] == tuple(chosen)
    assert server.parse(command[1:]).serve_upstream_aliases
    assert not any("etcd" in word for word in commands.apiserver(layout, PORTS, certificates))


def test_the_controller_manager_takes_its_command_line(
    layout: Layout, certificates: Certificates
) -> None:
    given = controller.parse(commands.controller_manager(layout, PORTS, certificates)[1:])
    assert given.client_ca_file == certificates.ca_file
    assert given.kubeconfig == str(layout.kubeconfig("controller-manager"))
    assert given.secure_port == 1004
    assert given.tls_cert_file == certificates.controller_serving.cert_file
    assert given.tls_private_key_file == certificates.controller_serving.key_file


def test_the_agent_takes_its_command_line(layout: Layout, certificates: Certificates) -> None:
    command = commands.nodeagent(layout, PORTS, certificates, "n1", "unix:///run/cri.sock")
    given = agent.parse(command[1:])
    assert given.config == str(layout.agent_config)
    assert given.config_dir == str(layout.agent_drop_ins)
    assert given.kubeconfig == str(layout.kubeconfig("node"))
    assert given.root_dir == str(layout.agent_root)
    assert Path(given.lock_file).parent == layout.run_dir
    assert (given.hostname_override, given.node_ip) == ("n1", "127.0.0.1")
    assert given.remove_pods_on_stop
    assert agent_overrides(command) == {
        "--address": "127.0.0.1",
        "--port": 1002,
        "--healthz-port": 1003,
        "--client-ca-file": certificates.ca_file,
        "--tls-cert-file": certificates.nodeagent.cert_file,
        "--tls-private-key-file": certificates.nodeagent.key_file,
        "--container-runtime-endpoint": "unix:///run/cri.sock",
    }


def test_without_a_runtime_the_agent_gets_an_empty_endpoint(
    layout: Layout, certificates: Certificates
) -> None:
    command = commands.nodeagent(layout, PORTS, certificates, "n1", None)
    assert agent_overrides(command)["--container-runtime-endpoint"] == ""


def test_a_port_of_0_becomes_a_free_one(free_port: Callable[[], int]) -> None:
    wanted = free_port()
    ports = Ports.choose(apiserver=0, nodeagent=wanted, healthz=0)
    assert ports.nodeagent == wanted
    assert all((ports.apiserver, ports.healthz, ports.controller))


def test_a_taken_port_is_named_with_its_holder_before_anything_is_started() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        advice = "choose another --healthz-port .make run: HEALTHZ_PORT=…"
        expected = f"127.0.0.1:{port}: address already in use .pid {os.getpid()}, .*{advice}"
        with pytest.raises(SetupError, match=expected):
            Ports.choose(apiserver=0, nodeagent=0, healthz=port)


def test_a_host_without_that_kind_of_address_is_said_to_be_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))

    monkeypatch.setattr(socket, "socket", refuse)
    why = "needs 127.0.0.1, the address of this machine: address family not supported"
    with pytest.raises(SetupError, match=why):
        Ports.choose(apiserver=0, nodeagent=0, healthz=0)


@pytest.mark.parametrize(
    ("servers", "aliases", "flags"),
    [
        ("", False, []),
        ("http://a:1", False, ["--etcd-servers=http://a:1"]),
        ("", True, ["--serve-upstream-aliases"]),
    ],
)
def test_options_for_the_api_server_become_its_flags(
    servers: str, aliases: bool, flags: list[str]
) -> None:
    assert commands.apiserver_flags(servers, upstream_aliases=aliases) == flags
