"""Results of probes: thresholds before a result counts, and the latest results on disk.

Thresholds and defaults are the reference's (prober/worker.go, core/v1 defaults). A restarting agent
must not take a serving pod out of service, nor wait again for its startup probe: a small file in
the pod's directory stores the results. Without it probing starts over.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path

from orch.component.process.atomic_file import replace_file
from orch.component.process.once_log import OnceLog
from orch.wire.records.handlers import Probe
from orch.wire.records.pods import Container

log = logging.getLogger(__name__)

_FILE = "probes.json"


@dataclass(frozen=True, slots=True)
class KeptResult:
    """Of one container that runs, or that a probe has ended."""

    started: bool
    ready: bool
    unhealthy: bool = False  # to be killed, or killed


class ResultFiles:
    """`root_dir` is the agent's."""

    def __init__(self, root_dir: str) -> None:
        self._pods = Path(root_dir) / "pods"
        self._outage = OnceLog(log)

    async def load(self, uid: str) -> Mapping[str, KeptResult]:
        """Container id → result; empty when nothing is known."""
        return await asyncio.to_thread(self._load, uid)

    async def save(self, uid: str, kept: Mapping[str, KeptResult]) -> None:
        """Replace the results of a pod; a failure is logged once per outage."""
        await asyncio.to_thread(self._save, uid, kept)

    def _load(self, uid: str) -> Mapping[str, KeptResult]:
        try:
            data = json.loads((self._pods / uid / _FILE).read_text())
            return {
                key: KeptResult(
                    held["started"] is True, held["ready"] is True, held.get("unhealthy") is True
                )
                for key, held in data.items()
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}

    def _save(self, uid: str, kept: Mapping[str, KeptResult]) -> None:
        data = {key: asdict(result) for key, result in kept.items()}
        path = self._pods / uid / _FILE
        try:
            replace_file(path, json.dumps(data).encode())
        except FileNotFoundError:
            return  # the pod's directory is gone, and so is the pod
        except OSError as error:
            cause = error.strerror or str(error)
            text = "what probes say is not kept for the next agent: cannot write %s: %s"
            self._outage.failed(text, path, cause, cause=cause)
        else:
            self._outage.recovered()


class Kind(Enum):
    STARTUP = "Startup"
    LIVENESS = "Liveness"
    READINESS = "Readiness"


@dataclass(frozen=True, slots=True)
class Tally:
    """`good` is the result that counts (None: none yet); `streak` equal results so far."""

    good: bool | None = None
    last: bool | None = None
    streak: int = 0


def count(tally: Tally, result: bool, probe: Probe) -> Tally:
    """The tally after one more result."""
    streak = tally.streak + 1 if tally.last is result else 1
    needed = (probe.successThreshold or 1) if result else (probe.failureThreshold or 3)
    return Tally(result if streak >= needed else tally.good, result, streak)


def period_s(probe: Probe) -> int:
    return max(probe.periodSeconds or 10, 1)


def timeout_s(probe: Probe) -> int:
    return max(probe.timeoutSeconds or 1, 1)


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
