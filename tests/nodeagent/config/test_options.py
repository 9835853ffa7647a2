"""Flags of the agent: their own values, and the configuration fields they override."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nodeagent.config import options
from nodeagent.config.load import ConfigError, load_config
from nodeagent.config.options import parse, parser
from nodeagent.config.types import NodeAgentConfiguration
from orch.component.diagnostics import zpages


def test_without_flags_the_configuration_has_the_word() -> None:
    given = parse([])
    assert given.overrides == ()
    assert (given.config, given.config_dir, given.kubeconfig) == (None, None, None)
    assert (given.root_dir, given.lock_file) == ("/var/lib/nodeagent", "/var/run/nodeagent.lock")
    assert (given.hostname_override, given.node_ip, given.node_labels) == ("", "", {})
    assert not given.remove_pods_on_stop


def test_certificates_are_below_the_root_directory_by_default() -> None:
    assert parse(["--root-dir=/srv/agent"]).cert_dir == "/srv/agent/pki"
    assert parse(["--root-dir=/srv/agent", "--cert-dir=/etc/agent"]).cert_dir == "/etc/agent"


def test_node_labels_are_pairs() -> None:
    assert parse(["--node-labels=zone=a,disk="]).node_labels == {"zone": "a", "disk": ""}
    assert parse(["--node-labels="]).node_labels == {}


# Every flag that overrides a field: what is written, where it goes, what the field becomes.
OVERRIDES: dict[str, tuple[str, Any]] = {
    "--address=127.0.0.1": ("address", "127.0.0.1"),
    "--port=10251": ("port", 10251),
    "--healthz-bind-address=0.0.0.0": ("healthzBindAddress", "0.0.0.0"),
    "--healthz-port=0": ("healthzPort", 0),
    "--tls-cert-file=/a.crt --tls-private-key-file=/a.key": ("tlsCertFile", "/a.crt"),
    "--tls-private-key-file=/a.key --tls-cert-file=/a.crt": ("tlsPrivateKeyFile", "/a.key"),
    "--tls-min-version=VersionTLS13": ("tlsMinVersion", "VersionTLS13"),
    "--tls-cipher-suites=A,B": ("tlsCipherSuites", ["A", "B"]),
    "--read-only-port=10255": ("readOnlyPort", 10255),
    "--anonymous-auth=true": ("authentication.anonymous.enabled", True),
    "--authentication-token-webhook=false": ("authentication.webhook.enabled", False),
    "--authentication-token-webhook-cache-ttl=0s": ("authentication.webhook.cacheTTL", 0.0),
    "--authorization-mode=AlwaysAllow": ("authorization.mode", "AlwaysAllow"),
    "--authorization-webhook-cache-authorized-ttl=1m": (
        "authorization.webhook.cacheAuthorizedTTL",
        60.0,
    ),
    "--authorization-webhook-cache-unauthorized-ttl=1s": (
        "authorization.webhook.cacheUnauthorizedTTL",
        1.0,
    ),
    "--client-ca-file=/ca.crt": ("authentication.x509.clientCAFile", "/ca.crt"),
    "--pod-manifest-path=/pods": ("staticPodPath", "/pods"),
    "--pod-logs-dir=/logs": ("podLogsDir", "/logs"),
    "--container-runtime-endpoint=": ("containerRuntimeEndpoint", ""),
    "--runtime-request-timeout=30s": ("runtimeRequestTimeout", 30.0),
    "--cgroup-root=/slice": ("cgroupRoot", "/slice"),
    "--system-cgroups=/system.slice": ("systemCgroups", "/system.slice"),
    "--max-pods=7": ("maxPods", 7),
    "--register-node=false": ("registerNode", False),
    "--node-status-update-frequency=1m30s": ("nodeStatusUpdateFrequency", 90.0),
    "--seccomp-default=true": ("seccompDefault", True),
    "--fail-cgroupv1=1": ("failCgroupV1", True),
    "--feature-gates=NodeAgentPSI=false,ComponentFlagz=true": (
        "featureGates",
        {"NodeAgentPSI": False, "ComponentFlagz": True},
    ),
    "--logging-format=json": ("logging.format", "json"),
    "--log-level=debug": ("logging.level", "debug"),
}


def field_of(config: NodeAgentConfiguration, path: str) -> Any:
    found: Any = config
    for part in path.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("flags", OVERRIDES)
def test_a_flag_sets_its_field(flags: str) -> None:
    path, expected = OVERRIDES[flags]
    config = load_config(None, None, parse(flags.split()).overrides)
    assert field_of(config, path) == expected


def test_every_overriding_flag_has_a_case_here() -> None:
    given = parse([word for flags in OVERRIDES for word in flags.split()])
    arguments = vars(options.parser().parse_args([]))
    offered = {name for name in arguments if name.startswith("config.")}
    assert {"config." + ".".join(map(str, flag.path)) for flag in given.overrides} == offered
    assert {flag.flag for flag in given.overrides} == {flags.split("=")[0] for flags in OVERRIDES}


@pytest.mark.parametrize(
    ("flag", "complaint"),
    [
        ("--port=many", "invalid int value: 'many'"),
        ("--register-node=perhaps", "'perhaps' is neither true nor false"),
        ("--feature-gates=NodeAgentPSI", "'NodeAgentPSI' is not NAME=true or NAME=false"),
        ("--feature-gates=NodeAgentPSI=on", "'NodeAgentPSI=on' is not NAME=true or NAME=false"),
        ("--node-labels=zone", "'zone' is not KEY=VALUE"),
        ("--node-labels==a", "'=a' is not KEY=VALUE"),
        ("--hostname=x", "unrecognized arguments: --hostname=x"),  # no abbreviations
    ],
)
def test_wrong_usage_names_the_value(
    flag: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        parse([flag])
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert complaint in said
    assert said.startswith("nodeagent: error: ")
    assert said.endswith("; see 'nodeagent --help'\n")


def test_the_help_names_values_by_the_flags_not_by_the_code() -> None:
    text = parser().format_help()
    assert "--client-ca-file CLIENT_CA_FILE" in text
    assert "CONFIG." not in text


def test_a_value_that_the_field_does_not_take_is_blamed_on_the_flag() -> None:
    with pytest.raises(ConfigError, match=r"^--max-pods: .* greater than or equal to 1$"):
        load_config(None, None, parse(["--max-pods=0"]).overrides)


def test_the_flags_that_govern_metrics_become_a_policy() -> None:
    policy = parse(["--disabled-metrics=a,b", "--show-hidden-metrics-for-version=1.34"])
    assert policy.metric_policy.disabled == {"a", "b"}
    assert policy.metric_policy.show_hidden


def test_the_flags_are_shown_with_what_is_in_force_where_they_are_not_given(tmp_path: Path) -> None:
    flags = parser()
    given = flags.parse_args(["--max-pods=9", "--root-dir=/r"])
    read = options.options_of(given)
    file = tmp_path / "agent.yaml"
    head = "apiVersion: nodeagent.config.orch.io/v1beta1\nkind: NodeAgentConfiguration\n"
    file.write_text(f"{head}maxPods: 8\nhealthzPort: 1\nfeatureGates: {{NodeAgentPSI: false}}\n")
    config = load_config(str(file), None, read.overrides)
    shown = zpages.flags_of(flags, options.in_force(given, read, config))
    assert (shown["max-pods"], shown["healthz-port"]) == ("9", "1")
    assert shown["feature-gates"] == "NodeAgentPSI=false"
    assert shown["cert-dir"] == "/r/pki"
    assert shown["runtime-request-timeout"] == "2m0s"
    assert {name for name, text in shown.items() if not text} == {
        "allow-metric-labels", "allow-metric-labels-manifest", "disabled-metrics",
        "show-hidden-metrics-for-version",
        "client-ca-file", "config", "config-dir", "hostname-override",
        "image-credential-provider-bin-dir", "image-credential-provider-config", "kubeconfig",
        "mount-helper",
        "node-ip", "node-labels", "pod-manifest-path", "system-cgroups", "tls-cert-file",
        "tls-cipher-suites", "tls-min-version", "tls-private-key-file",
    }  # fmt: skip
