"""Command-line flags of orch-apiserver, with the names operators know from the reference."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orch.component.diagnostics import zpages
from orch.component.flags import program_flags
from orch.component.flags.features import Features
from orch.component.flags.program_flags import Parser
from orch.component.flags.stability import MetricPolicy, Release
from orch.component.process.daemon import SetupError
from orch.server.audit.log import Rotation
from orch.server.authn import flags as authn_flags
from orch.server.authn.flags import AuthFlags
from orch.server.nodes.proxy import AgentTls
from orch.server.storage import flags as storage_flags
from orch.server.storage.flags import StorageFlags
from orch.wire.names import APISERVER_PORT

COMMANDS = ("doctor", "hash-password", "init")
DEBUG_LEVEL = 4  # of -v
DEFAULT_MAX_CONNECTIONS = 8192  # about 43 kB each; a node's agent holds two or three
DEFAULT_TIMEOUT_S = 60.0
MAX_READS = 400
MAX_WRITES = 200
TENANT_CHANGES = 500
_CHANGES_OF_ETCD = 250  # each takes the event loop twice as long
_MIB = 1024 * 1024
_number = program_flags.whole_number


@dataclass(frozen=True, slots=True)
class LimitFlags:
    """0: no limit."""

    max_reads: int = MAX_READS
    max_writes: int = MAX_WRITES
    tenant_changes: int = TENANT_CHANGES  # a second
    timeout_s: float = DEFAULT_TIMEOUT_S
    memory_bytes: int = 0  # 0: the limit of the process

    @property
    def seats(self) -> int:
        """For reads and writes together; 0: no limit."""
        return self.max_reads + self.max_writes if self.max_reads and self.max_writes else 0


@dataclass(frozen=True, slots=True)
class AuditFlags:
    """`log_path` None: no audit log."""

    log_path: str | None = None
    policy_file: Path | None = None
    rotation: Rotation = field(default_factory=Rotation)


@dataclass(frozen=True, slots=True)
class Flags:
    """`None` where a flag was not given."""

    bind_addresses: Sequence[str]
    secure_port: int
    port_file: Path | None
    max_connections: int
    tls_cert_file: str
    tls_private_key_file: str
    client_ca_file: str | None
    storage: StorageFlags
    limits: LimitFlags
    audit: AuditFlags
    admission_file: Path | None
    agent_tls: AgentTls
    node_proxy_allow_loopback: bool
    auth: AuthFlags
    serve_upstream_aliases: bool
    shutdown_delay_s: float
    logging_format: str
    verbosity: int
    features: Features
    emulated_version: Release
    metric_policy: MetricPolicy
    shown: Mapping[str, str]  # every flag by name, as /flagz shows it


def parse(argv: Sequence[str]) -> Flags:
    """SetupError for combinations that cannot work; SystemExit 2 for wrong usage."""
    flags = parser()
    values = flags.parse_args(argv)
    if bool(values.nodeagent_client_certificate) != bool(values.nodeagent_client_key):
        raise SetupError(
            "--nodeagent-client-certificate and --nodeagent-client-key belong together: give both"
        )
    if not 0 <= values.secure_port < 65536:
        raise SetupError(f"--secure-port={values.secure_port}: must be between 0 and 65535")
    return Flags(
        bind_addresses=_addresses(values.bind_address),
        secure_port=values.secure_port,
        port_file=values.port_file,
        max_connections=values.max_connections,
        tls_cert_file=values.tls_cert_file,
        tls_private_key_file=values.tls_private_key_file,
        client_ca_file=values.client_ca_file,
        storage=storage_flags.flags_of(values),
        limits=_limits_of(values),
        audit=_audit_of(values),
        admission_file=values.admission_control_config_file,
        agent_tls=AgentTls(
            values.nodeagent_certificate_authority,
            values.nodeagent_client_certificate,
            values.nodeagent_client_key,
        ),
        node_proxy_allow_loopback=values.node_proxy_allow_loopback,
        auth=authn_flags.flags_of(values),
        serve_upstream_aliases=values.serve_upstream_aliases,
        shutdown_delay_s=values.shutdown_delay_duration,
        logging_format=values.logging_format,
        verbosity=values.v,
        features=program_flags.features_of(values),
        emulated_version=values.emulated_version,
        metric_policy=program_flags.policy_of(values),
        shown=zpages.flags_of(flags, values),
    )


def _addresses(text: str) -> Sequence[str]:
    addresses = text.split(",")
    if not all(addresses):  # an empty one would be every address of the machine
        raise SetupError(f"--bind-address={text}: an address is empty")
    return addresses


def parser() -> argparse.ArgumentParser:
    """All flags with their help texts."""
    flags = Parser(
        prog="orch-apiserver",
        description="HTTPS API server: nodes, pods, leases, events, namespaces, node proxy.",
        epilog=f"Commands: orch-apiserver {', '.join(COMMANDS)}.",
        allow_abbrev=False,
    )
    program_flags.add_version_flags(flags, "orch-apiserver")
    _serving_flags(flags.add_argument_group("serving"))
    authn_flags.add_to(flags.add_argument_group("authentication and authorization"))
    storage_flags.add_to(flags.add_argument_group("storage"))
    _limit_flags(flags.add_argument_group("limits"))
    _audit_flags(flags.add_argument_group("audit"))
    _admission_flags(flags.add_argument_group("admission"))
    _proxy_flags(flags.add_argument_group("node proxy"))
    _logging_flags(flags.add_argument_group("logging"))
    program_flags.add_feature_flags(flags)
    program_flags.add_metric_flags(flags)
    return flags


_Group = argparse._ArgumentGroup


def _serving_flags(group: _Group) -> None:
    group.add_argument(
        "--bind-address",
        default="0.0.0.0",  # noqa: S104
        metavar="ADDRESS,…",
        help="address to listen on, or several",
    )
    group.add_argument(
        "--secure-port", type=int, default=APISERVER_PORT, help="HTTPS port; 0 picks a free one"
    )
    group.add_argument("--port-file", type=Path, help="file to write the bound port to")
    group.add_argument(
        "--max-connections",
        type=int,
        default=DEFAULT_MAX_CONNECTIONS,
        help="maximum of open connections, half of them from one address",
    )
    group.add_argument("--tls-cert-file", required=True, help="serving certificate, PEM")
    group.add_argument("--tls-private-key-file", required=True, help="its key, PEM")
    group.add_argument(
        "--client-ca-file", help="CA whose client certificates are identities; none without it"
    )
    group.add_argument(
        "--serve-upstream-aliases",
        action="store_true",
        help="also serve the group names of the reference system (*.k8s.io), and metrics.k8s.io",
    )
    group.add_argument(
        "--shutdown-delay-duration",
        type=program_flags.duration,
        default=0.0,
        metavar="DURATION",
        help="keep serving for this long after /readyz begins to fail",
    )


def _limit_flags(group: _Group) -> None:
    group.add_argument(
        "--max-requests-inflight", type=_number, default=MAX_READS, metavar="N",
        help="this and --max-mutating-requests-inflight together are the seats for requests"
        " in flight, 60 %% of them for nodes and the control plane; 0: no limit",
    )  # fmt: skip
    group.add_argument(
        "--max-mutating-requests-inflight", type=_number, default=MAX_WRITES, metavar="N",
        help="see --max-requests-inflight; 0: no limit",
    )  # fmt: skip
    group.add_argument(
        "--tenant-changes-per-second", type=_number, default=None, metavar="N",
        help="of all tenants together, who share it: a user or a namespace's service accounts alone"
        f" may take all (default: {TENANT_CHANGES}, with etcd {_CHANGES_OF_ETCD}); 30 kB of an"
        " object count as one more; nodes, the control plane, accounts of orch-system and"
        " system:masters have no limit; 0: nobody has",
    )  # fmt: skip
    group.add_argument(
        "--request-timeout", type=program_flags.duration, default=DEFAULT_TIMEOUT_S,
        metavar="DURATION",
        help="for requests other than watches and proxied ones; `timeout` may shorten it",
    )  # fmt: skip
    group.add_argument(
        "--memory-limit", type=_number, default=0, metavar="MIB",
        help="refuse requests from 80 %% of it on; 0: that of the control group, or all memory",
    )  # fmt: skip


def _audit_flags(group: _Group) -> None:
    rotation = Rotation()
    group.add_argument("--audit-policy-file", type=Path, help="which requests to record, YAML")
    group.add_argument(
        "--audit-log-path", metavar="FILE", help="file to write; - is standard output"
    )
    group.add_argument(
        "--audit-log-maxsize", type=_number, default=rotation.max_bytes // _MIB, metavar="MIB",
        help="size at which the file is rotated; 0: never",
    )  # fmt: skip
    group.add_argument(
        "--audit-log-maxbackup", type=_number, default=rotation.max_files, metavar="N",
        help="rotated files to keep; 0: all",
    )  # fmt: skip
    group.add_argument(
        "--audit-log-maxage", type=_number, default=rotation.max_days, metavar="DAYS",
        help="days to keep them; 0: forever",
    )  # fmt: skip


def _admission_flags(group: _Group) -> None:
    group.add_argument(
        "--admission-control-config-file", type=Path, metavar="FILE",
        help="defaults and exemptions of pod security, an AdmissionConfiguration in YAML",
    )  # fmt: skip


def _proxy_flags(group: _Group) -> None:
    group.add_argument("--nodeagent-certificate-authority", help="CA of node agents' certificates")
    group.add_argument(
        "--nodeagent-client-certificate", help="client certificate for node agents, PEM"
    )
    group.add_argument("--nodeagent-client-key", help="its key, PEM")
    group.add_argument(
        "--node-proxy-allow-loopback",
        action="store_true",
        help="also proxy to nodes with loopback or link-local addresses (single-host clusters)",
    )


def _logging_flags(group: _Group) -> None:
    group.add_argument("--logging-format", choices=("text", "json"), default="text")
    group.add_argument("-v", type=int, default=0, metavar="LEVEL", help="4 and above: debug")


def _limits_of(values: argparse.Namespace) -> LimitFlags:
    """SetupError for values that cannot work."""
    if values.request_timeout <= 0:
        raise SetupError("--request-timeout must be more than 0: no request could be served")
    if values.tenant_changes_per_second is None:
        changes = _CHANGES_OF_ETCD if values.etcd_servers else TENANT_CHANGES
        values.tenant_changes_per_second = changes
    return LimitFlags(
        values.max_requests_inflight,
        values.max_mutating_requests_inflight,
        values.tenant_changes_per_second,
        values.request_timeout,
        values.memory_limit * _MIB,
    )


def _audit_of(values: argparse.Namespace) -> AuditFlags:
    """SetupError for a path without a policy, or a policy without a path."""
    if bool(values.audit_log_path) != bool(values.audit_policy_file):
        raise SetupError("--audit-log-path and --audit-policy-file belong together: give both")
    rotation = Rotation(
        values.audit_log_maxsize * _MIB, values.audit_log_maxbackup, values.audit_log_maxage
    )
    return AuditFlags(values.audit_log_path, values.audit_policy_file, rotation)
