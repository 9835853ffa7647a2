"""When a probe's results change what is thought of a container; pure.

Thresholds and defaults are the reference's (prober/worker.go, core/v1 defaults).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from orch.wire.pods import Container, Probe

PERIOD_S = 10
TIMEOUT_S = 1
SUCCESSES = 1
FAILURES = 3


class Kind(Enum):
    STARTUP = "Startup"
    LIVENESS = "Liveness"
    READINESS = "Readiness"


@dataclass(frozen=True, slots=True)
class Tally:
    """`good` is what is thought now (None: nothing yet); `streak` equal results so far."""

    good: bool | None = None
    last: bool | None = None
    streak: int = 0


def count(tally: Tally, result: bool, probe: Probe) -> Tally:
    """The tally after one more result."""
    streak = tally.streak + 1 if tally.last is result else 1
    needed = successes(probe) if result else failures(probe)
    return Tally(result if streak >= needed else tally.good, result, streak)


def period_s(probe: Probe) -> int:
    return max(probe.periodSeconds or PERIOD_S, 1)


def timeout_s(probe: Probe) -> int:
    return max(probe.timeoutSeconds or TIMEOUT_S, 1)


def successes(probe: Probe) -> int:
    return max(probe.successThreshold or SUCCESSES, 1)


def failures(probe: Probe) -> int:
    return max(probe.failureThreshold or FAILURES, 1)


def probes_of(container: Container) -> dict[Kind, Probe]:
    asked = {
        Kind.STARTUP: container.startupProbe,
        Kind.LIVENESS: container.livenessProbe,
        Kind.READINESS: container.readinessProbe,
    }
    return {kind: probe for kind, probe in asked.items() if probe is not None}


def port_number(port: int | str, container: Container) -> int:
    """The number of a port that may be given by its name; ValueError when there is none."""
    if isinstance(port, int) or port.isdecimal():
        number = int(port)
    else:
        named = {p.name: p.containerPort for p in container.ports or () if p.name}
        if port not in named:
            raise ValueError(f"container {container.name} has no port named {port!r}")
        number = named[port]
    if not 1 <= number <= 65535:
        raise ValueError(f"port {number} is not between 1 and 65535")
    return number
