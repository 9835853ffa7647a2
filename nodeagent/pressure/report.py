"""Findings → the JSON of `/pressure`, at most 2 kB; pure.

What does not fit is dropped from the end: sufferers first, then causes; `more` counts those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import orjson

from nodeagent.pressure.causes.cause import Cause
from nodeagent.pressure.evidence import Evidence, Subject
from nodeagent.psi import RESOURCES, Pressure
from nodeagent.stats.samples import CgroupSample, Sample

MAX_BYTES = 2048
_MAX_SUFFERERS = 3
_MAX_CAUSES = 5
_MAX_NAME = 128
Since = Mapping[tuple[str, str, Subject], int]


def render(
    node_name: str,
    sample: Sample,
    evidence: Evidence | None,
    found: Sequence[Cause],
    since_ns: Since,
) -> bytes:
    """The report; without `evidence` nothing is known of the last seconds yet."""
    causes = [_cause(cause, since_ns) for cause in found[:_MAX_CAUSES]]
    report: dict[str, Any] = {
        "kind": "NodePressure",
        "nodeName": node_name,
        "time": _time(sample.time_ns),
        "windowSeconds": round(evidence.seconds, 1) if evidence else 0,
        "resources": _resources(sample.node.cgroup, evidence),
        "causes": causes,
    }
    while len(data := _encoded(report, len(found))) > MAX_BYTES and causes:
        longest = max(causes, key=lambda cause: len(cause["suffers"]))
        if longest["suffers"]:
            longest["suffers"].pop()
        else:
            causes.pop()
    return data


def _encoded(report: dict[str, Any], count: int) -> bytes:
    more = count - len(report["causes"])
    return orjson.dumps({**report, "more": more} if more else report)


def _cause(cause: Cause, since_ns: Since) -> dict[str, Any]:
    first_ns = since_ns.get((cause.resource, cause.kind, cause.culprit))
    return {
        "resource": cause.resource,
        "kind": cause.kind,
        **({"since": _time(first_ns)} if first_ns else {}),
        "culprit": _subject(cause.culprit),
        "does": cause.does,
        "nextStep": cause.next_step,
        "confidence": round(cause.confidence, 2),
        "sufferers": len(cause.suffers),
        "suffers": [_subject(subject) for subject in cause.suffers[:_MAX_SUFFERERS]],
    }


def _subject(subject: Subject) -> dict[str, str]:
    """The machine as a whole is an empty object."""
    found = subject._asdict()
    return {
        name: value.encode("utf-8", "replace").decode()[-_MAX_NAME:]
        for name, value in found.items()
        if value
    }


def _resources(node: CgroupSample | None, evidence: Evidence | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for resource in RESOURCES:
        pressure: Pressure | None = getattr(node, f"{resource}_pressure", None)
        if pressure is not None:
            averages = {"some": pressure.some, "full": pressure.full}
            found[resource] = {
                kind: [line.avg10, line.avg60, line.avg300]
                for kind, line in averages.items()
                if line is not None
            }
    if evidence is not None:
        found = {name: {**known, **_measured(name, evidence)} for name, known in found.items()}
    return found


def _measured(resource: str, evidence: Evidence) -> dict[str, Any]:
    """What is known beside the averages; refaults and swap in pages, all per second."""
    activities = evidence.activities
    if resource == "cpu":
        contended = evidence.contended()
        throttled = max(0.0, evidence.stalls.get("cpu", 0.0) - contended)
        return {"contended": round(100 * contended, 1), "throttled": round(100 * throttled, 1)}
    if not evidence.sees_services:
        return {}
    if resource == "memory":
        refaults = sum((a.file_refaults or 0) + (a.anon_refaults or 0) for a in activities)
        return {"refaults": round(refaults), "swapped": round(evidence.swapped_pages)}
    uses = [a.io for a in activities if a.io]
    busiest = max(uses, key=lambda use: use.read_bytes + use.write_bytes, default=None)
    if busiest is None:
        return {}
    alike = [use for use in uses if use.device == busiest.device]
    disk = evidence.disks.get(busiest.device)
    latency = disk.latency_ms if disk else None
    return {
        "device": disk.name if disk else f"{busiest.device[0]}:{busiest.device[1]}",
        "readBytes": round(sum(use.read_bytes for use in alike)),
        "writeBytes": round(sum(use.write_bytes for use in alike)),
        **({"latencyMillis": round(latency, 1)} if latency is not None else {}),
    }


def _time(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
