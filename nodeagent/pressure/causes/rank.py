"""Evidence → the causes, the worst first; no cause at all is an answer; pure."""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.pressure.causes import disks, memory, processors
from nodeagent.pressure.causes.cause import MACHINE, Cause
from nodeagent.pressure.evidence import Evidence

LOOK = {"cpu": processors.THROTTLED, "memory": memory.STALLED, "io": disks.STALLED}


def is_stalled(stalls: dict[str, float]) -> bool:
    """Whether the machine's stalls are worth asking for a cause."""
    return any(stalls.get(resource, 0.0) >= least for resource, least in LOOK.items())


def causes_of(evidence: Evidence) -> tuple[Cause, ...]:
    """Every cause of this span of time; a disk that only carries what memory lacks is left out.

    So are processors that nobody in particular fills, where somebody is to blame for more.
    """
    found = [*processors.find(evidence), *memory.find(evidence), *disks.find(evidence)]
    lacking = {
        f.culprit for f in found if f.resource == "memory" and f.kind in ("rereads", "swaps")
    }
    if lacking:
        lacking.add(MACHINE)
    found = [f for f in found if f.resource != "io" or f.culprit not in lacking]
    if any(f.culprit != MACHINE and (f.resource, f.kind) != ("cpu", "limit") for f in found):
        found = [f for f in found if (f.resource, f.kind) != ("cpu", "crowd")]
    return (*sorted(found, key=lambda f: -f.weight * f.confidence), *_stopped(evidence))


def _stopped(evidence: Evidence) -> Iterator[Cause]:
    for stopped in evidence.stopped:
        what, how = f"its process {stopped.pid} ({stopped.process}) is stopped", "kill -CONT it"
        if not stopped.process:
            what, how = "its cgroup is frozen", "thaw it, or end it"
        yield Cause(
            "process",
            "stopped",
            stopped.subject,
            (stopped.subject,),
            1.0,
            0.95,
            f"does nothing, because {what}",
            f"{how} if nobody is debugging it or writing a checkpoint",
        )
