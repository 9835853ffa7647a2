"""The command line of `orch-controller-manager`; flags carry the names operators know."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from orch.component.diagnostics import zpages
from orch.component.flags import program_flags
from orch.component.flags.features import Features
from orch.component.flags.program_flags import Parser
from orch.component.flags.stability import MetricPolicy, Release
from orch.component.process.daemon import SetupError
from orch.lifecycle.decide.records import Settings

PROGRAM = "orch-controller-manager"
DEFAULT_PORT = 10257
RENEW_INTERVAL_S = 10.0  # of node agents, by default
_DEFAULTS = Settings()


@dataclass(frozen=True, slots=True)
class Options:
    """The parsed command line; "" or None where a flag was not given."""

    kubeconfig: str
    settings: Settings
    leader_elect: bool
    bind_pods: bool
    bind_address: str
    secure_port: int
    port_file: Path | None
    tls_cert_file: str
    tls_private_key_file: str
    client_ca_file: str
    cluster_signing_cert_file: str
    cluster_signing_key_file: str
    cluster_signing_nodeagent_serving_cert_file: str
    cluster_signing_nodeagent_serving_key_file: str
    cluster_signing_duration: float
    logging_format: str
    log_level: str
    features: Features
    emulated_version: Release
    metric_policy: MetricPolicy
    shown: Mapping[str, str]  # every flag with its value

    @property
    def warnings(self) -> tuple[str, ...]:
        """Settings that work, but probably not as intended."""
        return tuple(self._doubts())

    @property
    def signing_files(self) -> tuple[str, ...]:
        """Those of the authorities by which certificates are issued, as far as they are given."""
        given = (
            self.cluster_signing_cert_file,
            self.cluster_signing_key_file,
            self.cluster_signing_nodeagent_serving_cert_file,
            self.cluster_signing_nodeagent_serving_key_file,
        )
        return tuple(path for path in given if path)

    def _doubts(self) -> Iterator[str]:
        if self.settings.grace_s < 4 * RENEW_INTERVAL_S:
            yield (
                f"--node-monitor-grace-period of {self.settings.grace_s:g} s is less than four "
                f"times the {RENEW_INTERVAL_S:g} s in which agents renew: healthy nodes may flap"
            )
        if self.bind_pods and not self.features.enabled("PodBinding"):
            yield "--bind-pods does nothing: the feature gate PodBinding is off"


def parse(argv: Sequence[str]) -> Options:
    """Read the command line; SetupError for what cannot work, argparse exits 2 for wrong usage."""
    flags = parser()
    values = flags.parse_args(argv)
    settings = Settings(
        period_s=values.node_monitor_period,
        grace_s=values.node_monitor_grace_period,
        startup_grace_s=values.node_startup_grace_period,
        eviction_rate=values.node_eviction_rate,
        secondary_eviction_rate=values.secondary_node_eviction_rate,
        large_zone_size=values.large_cluster_size_threshold,
        unhealthy_zone_threshold=values.unhealthy_zone_threshold,
        max_view_age_s=max(_DEFAULTS.max_view_age_s, 3 * values.node_monitor_period),
    )
    _check_settings(settings)
    _check_serving(values)
    same = {f.name: getattr(values, f.name) for f in fields(Options) if f.name in values}
    return Options(
        **same,
        settings=settings,
        features=program_flags.features_of(values),
        metric_policy=program_flags.policy_of(values),
        shown=zpages.flags_of(flags, values),
    )


def parser() -> argparse.ArgumentParser:
    """All flags with their help texts."""
    flags = Parser(
        prog=PROGRAM,
        description="Judges nodes by their heartbeats, and on demand binds pods to them.",
        allow_abbrev=False,
    )
    program_flags.add_version_flags(flags, PROGRAM)
    flags.add_argument("--kubeconfig", required=True, help="how to reach the API server")
    flags.add_argument(
        "--leader-elect",
        type=program_flags.boolean,
        nargs="?",
        const=True,
        default=True,
        help="decide only as leader (true) or always (false)",
    )
    flags.add_argument(
        "--bind-pods",
        type=program_flags.boolean,
        nargs="?",
        const=True,
        default=False,
        help="give pods of the default scheduler a node; not beside another such scheduler",
    )
    _judging(flags.add_argument_group("judging nodes"))
    _signing(flags.add_argument_group("issuing certificates"))
    _serving(flags.add_argument_group("serving /healthz, /livez, /readyz, /metrics"))
    flags.add_argument("--logging-format", choices=("text", "json"), default="text")
    flags.add_argument("--log-level", default="info", help="debug, info, warning or error")
    program_flags.add_feature_flags(flags)
    program_flags.add_metric_flags(flags)
    return flags


def _judging(flags: argparse._ArgumentGroup) -> None:
    for name, default, text in (
        ("--node-monitor-period", _DEFAULTS.period_s, "how often nodes are judged"),
        ("--node-monitor-grace-period", _DEFAULTS.grace_s, "silence before a node is Unknown"),
        (
            "--node-startup-grace-period",
            _DEFAULTS.startup_grace_s,
            "the same for a node that never reported",
        ),
    ):
        flags.add_argument(name, type=program_flags.duration, default=default, help=text)
    for name, number, text in (
        ("--node-eviction-rate", _DEFAULTS.eviction_rate, "nodes per second and zone"),
        (
            "--secondary-node-eviction-rate",
            _DEFAULTS.secondary_eviction_rate,
            "the same while a large zone is unhealthy",
        ),
        (
            "--unhealthy-zone-threshold",
            _DEFAULTS.unhealthy_zone_threshold,
            "share of nodes not ready that makes a zone unhealthy",
        ),
    ):
        flags.add_argument(name, type=float, default=number, help=text)
    flags.add_argument(
        "--large-cluster-size-threshold",
        type=int,
        default=_DEFAULTS.large_zone_size,
        help="nodes that make a zone large; in a small unhealthy zone nothing is evicted",
    )


def _signing(flags: argparse._ArgumentGroup) -> None:
    flags.add_argument(
        "--cluster-signing-cert-file", default="", metavar="PEM",
        help="CA that signs certificates of nodes and other clients; without it none are issued",
    )  # fmt: skip
    flags.add_argument("--cluster-signing-key-file", default="", metavar="PEM", help="its key")
    flags.add_argument(
        "--cluster-signing-nodeagent-serving-cert-file", default="", metavar="PEM",
        help="another CA for the certificates that node agents serve with: one that nobody"
        " trusts for the API server",
    )  # fmt: skip
    flags.add_argument(
        "--cluster-signing-nodeagent-serving-key-file", default="", metavar="PEM", help="its key"
    )
    flags.add_argument(
        "--cluster-signing-duration", type=program_flags.duration, default=8760 * 3600.0,
        metavar="DURATION", help="how long certificates last, unless less is asked for",
    )  # fmt: skip


def _serving(flags: argparse._ArgumentGroup) -> None:
    flags.add_argument("--bind-address", default="127.0.0.1")
    flags.add_argument("--secure-port", type=int, default=DEFAULT_PORT, help="0 picks a free one")
    flags.add_argument("--port-file", type=Path, help="write the port in use here")
    flags.add_argument(
        "--tls-cert-file", default="", help="without it a self-signed certificate is used"
    )
    flags.add_argument("--tls-private-key-file", default="")
    flags.add_argument(
        "--client-ca-file", default="", help="CA of clients that may read more than health"
    )


def _check_settings(settings: Settings) -> None:
    if settings.period_s <= 0:
        raise SetupError("--node-monitor-period must be more than 0s")
    if settings.grace_s < settings.period_s:
        raise SetupError("--node-monitor-grace-period must be at least --node-monitor-period")
    if not 0 < settings.unhealthy_zone_threshold <= 1:
        raise SetupError("--unhealthy-zone-threshold must be above 0 and at most 1")
    if min(settings.eviction_rate, settings.secondary_eviction_rate) < 0:
        raise SetupError("eviction rates must not be negative; 0 disables eviction")


def _check_serving(values: argparse.Namespace) -> None:
    if bool(values.tls_cert_file) != bool(values.tls_private_key_file):
        raise SetupError("--tls-cert-file and --tls-private-key-file belong together: give both")
    for pair in ("cluster_signing", "cluster_signing_nodeagent_serving"):
        if bool(getattr(values, f"{pair}_cert_file")) != bool(getattr(values, f"{pair}_key_file")):
            flag = f"--{pair.replace('_', '-')}"
            raise SetupError(f"{flag}-cert-file and {flag}-key-file belong together: give both")
    if values.cluster_signing_nodeagent_serving_cert_file and not values.cluster_signing_cert_file:
        raise SetupError(
            "--cluster-signing-nodeagent-serving-cert-file needs --cluster-signing-cert-file, too"
        )
    if values.cluster_signing_duration < 600:
        raise SetupError("--cluster-signing-duration must be at least 10m")
    if not 0 <= values.secure_port < 65536:
        raise SetupError(f"--secure-port={values.secure_port}: must be between 0 and 65535")
