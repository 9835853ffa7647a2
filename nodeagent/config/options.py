"""The command line of `nodeagent`: flags without a configuration field, and overrides of fields.

An override wins over every file. The names are those of the reference agent.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, get_origin

from nodeagent.config.layers import FlagValue
from nodeagent.config.types import NodeAgentConfiguration
from orch.component.flags import program_flags
from orch.component.flags.program_flags import Parser
from orch.component.flags.stability import MetricPolicy, Release
from orch.wire import names

# In --cert-dir, certificate and key in one, as the reference names them.
CLIENT_FILE = "nodeagent-client-current.pem"
SERVING_FILE = "nodeagent-server-current.pem"
OWN_CERTIFICATE = "nodeagent"  # the self-signed pair in --cert-dir


@dataclass(frozen=True, slots=True)
class Options:
    """Settings that exist only on the command line, and its overrides of fields."""

    config: str | None
    config_dir: str | None
    kubeconfig: str | None
    root_dir: str
    lock_file: str
    exit_on_lock_contention: bool
    cert_dir: str
    hostname_override: str
    node_ip: str
    node_labels: dict[str, str]
    remove_pods_on_stop: bool
    mount_helper: str
    image_credential_provider_config: str
    image_credential_provider_bin_dir: str
    emulated_version: Release
    overrides: tuple[FlagValue, ...]
    metric_policy: MetricPolicy

    @property
    def serving_file(self) -> str:
        """The certificate with its key that the cluster issues, for `serverTLSBootstrap`."""
        return f"{self.cert_dir}/{SERVING_FILE}"

    @property
    def client_file(self) -> str:
        """The same for the client, for `rotateCertificates`."""
        return f"{self.cert_dir}/{CLIENT_FILE}"

    def certificate_files(self, config: NodeAgentConfiguration) -> tuple[str, str]:
        """The agent's certificate and key: configured or self-signed."""
        if config.tlsCertFile:
            return config.tlsCertFile, config.tlsPrivateKeyFile
        if config.serverTLSBootstrap:
            return (self.serving_file,) * 2
        own = f"{self.cert_dir}/{OWN_CERTIFICATE}"
        return f"{own}.crt", f"{own}.key"


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _pairs(text: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if not equals or not key:
            raise argparse.ArgumentTypeError(f"{part!r} is not KEY=VALUE")
        pairs[key.strip()] = value.strip()
    return pairs


# Flag → field, help.
_OVERRIDES = {
    "--address": ("address", "address to serve on"),
    "--port": ("port", "port to serve on"),
    "--healthz-bind-address": ("healthzBindAddress", "address of the plain /healthz and /readyz"),
    "--healthz-port": ("healthzPort", "port of both; 0 turns it off"),
    "--tls-cert-file": ("tlsCertFile", "serving certificate"),
    "--tls-private-key-file": ("tlsPrivateKeyFile", "its key"),
    "--tls-min-version": ("tlsMinVersion", "VersionTLS12 or VersionTLS13"),
    "--tls-cipher-suites": ("tlsCipherSuites", "IANA names of suites, NAME,…"),
    "--read-only-port": ("readOnlyPort", "plain read-only port, unauthenticated; 0: none"),
    "--client-ca-file": ("authentication.x509.clientCAFile", "CA of client certs"),
    "--anonymous-auth": ("authentication.anonymous.enabled", "admit anonymous callers"),
    "--authentication-token-webhook": (
        "authentication.webhook.enabled",
        "have bearer tokens reviewed by the API server",
    ),
    "--authentication-token-webhook-cache-ttl": (
        "authentication.webhook.cacheTTL",
        "how long token reviews are cached",
    ),
    "--authorization-mode": ("authorization.mode", "Webhook or AlwaysAllow"),
    "--authorization-webhook-cache-authorized-ttl": (
        "authorization.webhook.cacheAuthorizedTTL",
        "how long permissions are cached",
    ),
    "--authorization-webhook-cache-unauthorized-ttl": (
        "authorization.webhook.cacheUnauthorizedTTL",
        "how long refusals are cached",
    ),
    "--pod-manifest-path": ("staticPodPath", "directory or file of static pods"),
    "--pod-logs-dir": ("podLogsDir", "directory of pod logs"),
    "--container-runtime-endpoint": (
        "containerRuntimeEndpoint",
        'CRI socket; "" runs without a runtime',
    ),
    "--runtime-request-timeout": ("runtimeRequestTimeout", "deadline of a runtime call"),
    "--cgroup-root": ("cgroupRoot", "cgroup below which pods run"),
    "--system-cgroups": ("systemCgroups", "cgroup of other processes, to be measured"),
    "--max-pods": ("maxPods", "most pods on this node"),
    "--register-node": ("registerNode", "register with the API server"),
    "--node-status-update-frequency": ("nodeStatusUpdateFrequency", "status interval"),
    "--seccomp-default": ("seccompDefault", "RuntimeDefault for containers without a profile"),
    "--fail-cgroupv1": ("failCgroupV1", "refuse to start on cgroup v1"),
    "--feature-gates": ("featureGates", "NAME=true|false,…"),
    "--logging-format": ("logging.format", "text or json"),
    "--log-level": ("logging.level", "debug, info, warning or error"),
}


def parser() -> argparse.ArgumentParser:
    """The flags of the daemon."""
    flags = Parser(
        prog="nodeagent",
        description="The node agent: runs the host's pods, measures them, reports the node.",
        epilog="Commands: nodeagent checkpoint, config, debug, doctor, image, join, leave, reset,"
        " seccomp.",
        allow_abbrev=False,
    )
    add_flags(flags)
    return flags


def add_flags(flags: argparse.ArgumentParser) -> None:
    """Add the daemon's flags; its offline commands take them too."""
    flags.add_argument("--config", help="configuration file (NodeAgentConfiguration)")
    flags.add_argument("--config-dir", help="directory of drop-ins (*.conf), merged in order")
    flags.add_argument("--kubeconfig", help="how to reach the API server; without it: standalone")
    flags.add_argument("--root-dir", default=names.DEFAULT_ROOT_DIR, help="the agent's state")
    flags.add_argument("--lock-file", default=names.DEFAULT_LOCK_FILE, help="one agent per file")
    flags.add_argument(
        "--exit-on-lock-contention",
        action="store_true",
        help="exit when another process opens the lock file",
    )
    flags.add_argument("--cert-dir", default="", help="directory of the self-signed certificate")
    flags.add_argument("--hostname-override", default="", help="node name instead of the hostname")
    flags.add_argument("--node-ip", default="", help="address to report for this node")
    flags.add_argument("--node-labels", type=_pairs, default={}, help="KEY=VALUE,… at registration")
    flags.add_argument(
        "--remove-pods-on-stop",
        action="store_true",
        help="remove every pod when stopping (for disposable nodes)",
    )
    flags.add_argument(
        "--mount-helper", default="", help="socket of nodeagent-mounts; default: mount by itself"
    )
    flags.add_argument(
        "--image-credential-provider-config", default="", metavar="PATH",
        help="file, or directory of files, that names plugins which know registries' passwords",
    )  # fmt: skip
    flags.add_argument(
        "--image-credential-provider-bin-dir", default="", metavar="DIR", help="their programs"
    )
    program_flags.add_version_flags(flags, "nodeagent")
    program_flags.add_metric_flags(flags)
    for flag, (path, text) in _OVERRIDES.items():
        value = flag.removeprefix("--").upper().replace("-", "_")
        flags.add_argument(flag, dest=_dest(path), type=_reader(path), metavar=value, help=text)


def parse(argv: Sequence[str]) -> Options:
    """Read the command line; argparse prints its own error and exits 2."""
    return options_of(parser().parse_args(argv))


def options_of(arguments: argparse.Namespace) -> Options:
    """The options among parsed arguments; other arguments are ignored."""
    own = {name: getattr(arguments, name) for name in _OWN}
    own["cert_dir"] = own["cert_dir"] or f"{own['root_dir']}/pki"
    overrides = tuple(
        FlagValue(flag, tuple(path.split(".")), value)
        for flag, (path, _) in _OVERRIDES.items()
        if (value := getattr(arguments, _dest(path))) is not None
    )
    return Options(**own, overrides=overrides, metric_policy=program_flags.policy_of(arguments))


def in_force(
    arguments: argparse.Namespace, options: Options, config: NodeAgentConfiguration
) -> argparse.Namespace:
    """The arguments with the values of this configuration where a flag was not given."""
    values: dict[str, Any] = {**vars(arguments), "cert_dir": options.cert_dir}
    fields_in_force = config.model_dump(mode="json")
    for path, _ in _OVERRIDES.values():
        value: Any = fields_in_force
        for name in path.split("."):
            value = value[name]
        values[_dest(path)] = value
    return argparse.Namespace(**values)


def _dest(path: str) -> str:
    return f"config.{path}"


def _reader(path: str) -> Callable[[str], Any]:
    """How a flag's text becomes a value, by the type of the field."""
    kind: Any = NodeAgentConfiguration
    for name in path.split("."):
        kind = kind.model_fields[name].annotation
    return _READERS.get(get_origin(kind) or kind, str)


_READERS: Mapping[Any, Callable[[str], Any]] = {
    bool: program_flags.boolean,
    int: int,
    list: _words,
    dict: program_flags.gates,
}


_OWN = tuple(
    field.name for field in fields(Options) if field.name not in ("overrides", "metric_policy")
)
