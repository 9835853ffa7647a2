from __future__ import annotations

from pathlib import Path

import pytest

from orch.component.process.daemon import SetupError
from orch.server import flags

REQUIRED = ["--tls-cert-file=c", "--tls-private-key-file=k"]


def test_defaults_are_those_of_the_reference_and_secure() -> None:
    parsed = flags.parse(REQUIRED)
    assert (parsed.bind_addresses, parsed.secure_port) == (["0.0.0.0"], 6443)
    assert parsed.storage.file == Path("/var/lib/orch-apiserver/state.db")
    assert parsed.auth.anonymous_health
    assert not parsed.node_proxy_allow_loopback
    assert parsed.client_ca_file is None
    assert (parsed.logging_format, parsed.verbosity) == ("text", 0)


@pytest.mark.parametrize(
    ("argument", "field", "value"),
    [
        ("--secure-port=0", "secure_port", 0),
        ("--node-proxy-allow-loopback", "node_proxy_allow_loopback", True),
        ("--shutdown-delay-duration=1m30s", "shutdown_delay_s", 90.0),
        ("--logging-format=json", "logging_format", "json"),
        ("-v=4", "verbosity", 4),
        ("--max-connections=7", "max_connections", 7),
        ("--port-file=p", "port_file", Path("p")),
        ("--bind-address=127.0.0.1,192.0.2.1", "bind_addresses", ["127.0.0.1", "192.0.2.1"]),
    ],
)
def test_each_flag_sets_its_value(argument: str, field: str, value: object) -> None:
    assert getattr(flags.parse([*REQUIRED, argument]), field) == value


@pytest.mark.parametrize(
    "arguments",
    [
        ["--nodeagent-client-key=k"],
        ["--nodeagent-client-certificate=c"],
        ["--secure-port=65536"],
        ["--secure-port=-1"],
        ["--bind-address=127.0.0.1,"],
        ["--feature-gates=ComponentStatus=true"],
    ],
)
def test_what_cannot_work_is_a_setup_error(arguments: list[str]) -> None:
    with pytest.raises(SetupError, match="--"):
        flags.parse([*REQUIRED, *arguments])


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--unknown"],
        ["--secure-por=1"],
        ["--feature-gates=ComponentStatusz"],
        ["--shutdown-delay-duration=soon"],
        ["-v=x"],
        ["--service-account-issuer="],
        ["--service-account-issuer= "],
    ],
)
def test_wrong_usage_exits_with_2(arguments: list[str], capsys) -> None:
    with pytest.raises(SystemExit) as caught:
        flags.parse([*(REQUIRED if arguments else []), *arguments])
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("orch-apiserver: error: ")
    assert not arguments or arguments[0].partition("=")[0] in error


def test_gates_are_switched_and_every_flag_can_be_shown() -> None:
    parsed = flags.parse([*REQUIRED, "--feature-gates=ComponentStatusz=true,ComponentFlagz=True"])
    assert parsed.features.enabled("ComponentStatusz")
    assert parsed.shown["feature-gates"] == "ComponentFlagz=true,ComponentStatusz=true"
    assert parsed.shown["tls-cert-file"] == "c"
    assert parsed.shown["client-ca-file"] == ""
    assert not flags.parse(REQUIRED).features.enabled("ComponentFlagz")
