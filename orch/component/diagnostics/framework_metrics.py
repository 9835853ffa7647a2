"""The metrics of every program about itself: build, version, features, dropped log lines,
refused clients."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from orch.component import certificates
from orch.component.flags.features import Features
from orch.component.flags.stability import CURRENT, Release, oldest_compatible
from orch.component.process.log import dropped_lines
from orch.wire import names


class FrameworkMetrics(Collector):
    """`orch_build_info`, `version_info`, `orch_feature_enabled`, `orch_log_lines_dropped_total`,
    `orch_client_certificates_refused_total`.

    Register it once.
    """

    def __init__(self, features: Features, *, emulated: Release = CURRENT) -> None:
        self._features = features
        self._emulated = emulated

    def collect(self) -> Iterator[Metric]:
        yield _build_info()
        versions = GaugeMetricFamily(
            "version_info",
            "[ALPHA] The versions of this program: its own, and the one it emulates.",
            labels=["binary", "component", "emulation", "min_compat"],
        )
        binary = f"{names.MAJOR}.{names.MINOR}"
        oldest = str(oldest_compatible(self._emulated))
        versions.add_metric([binary, "orch", str(self._emulated), oldest], 1)
        yield versions
        enabled = GaugeMetricFamily(
            "orch_feature_enabled",
            "[BETA] 1 for a feature that is on, 0 for one that is off.",
            labels=["name", "stage"],
        )
        for gate, on in self._features.all():
            enabled.add_metric([gate.name, gate.stage.value], int(on))
        yield enabled
        yield CounterMetricFamily(
            "orch_log_lines_dropped",
            "[ALPHA] Log lines that were refused, or dropped because their reader did not keep up.",
            value=dropped_lines(),
        )
        refusals = CounterMetricFamily(
            "orch_client_certificates_refused",
            "[ALPHA] TLS client certificates that were refused, by reason.",
            labels=["reason"],
        )
        for reason, count in sorted(certificates.refused.items()):
            refusals.add_metric([reason], count)
        yield refusals


class CertificateMetrics(Collector):
    """When the certificates of a program expire; `holders` by what they are used for."""

    def __init__(self, holders: Mapping[str, CertificateHolder]) -> None:
        self._holders = holders

    def collect(self) -> Iterator[Metric]:
        ends = GaugeMetricFamily(
            "orch_certificate_expiration_timestamp_seconds",
            "[ALPHA] When a TLS certificate in use expires, in Unix seconds.",
            labels=["use"],
        )
        for use, holder in self._holders.items():
            if holder.certificate_end is not None:
                ends.add_metric([use], holder.certificate_end.timestamp())
        yield ends


class CertificateHolder(Protocol):
    """`certificate_end` is None as long as it is not known, or without a certificate."""

    certificate_end: datetime | None


def _build_info() -> Metric:
    labels = {
        "major": names.MAJOR,
        "minor": names.MINOR,
        "git_version": names.VERSION,
        "go_version": f"python{platform.python_version()}",
        "compiler": platform.python_implementation().lower(),
        "platform": f"linux/{platform.machine()}",
    }
    build = GaugeMetricFamily(
        "orch_build_info", "[ALPHA] What this program was built as.", labels=list(labels)
    )
    build.add_metric(list(labels.values()), 1)
    return build
