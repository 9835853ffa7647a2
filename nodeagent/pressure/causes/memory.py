"""Why tasks wait for memory: a limit of their own, a leak, pages read again, swap; pure.

A container at its own limit reclaims its own pages and hurts itself. Without a limit in the way,
reclaim is the machine's, and the cause is whoever grows, swaps or reads most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from nodeagent.pressure.causes.cause import MACHINE, Cause, percent, size, sufferers
from nodeagent.pressure.evidence import Activity, Evidence

STALLED = 0.05  # of the time, some task of the machine waited for memory
_WAITS = 0.02
_AT_LIMIT = 0.95
_SCARCE = 0.15  # of the machine's memory still available: below that, reclaim is the machine's
_PAGE_BYTES = 4096
_REFAULTS = 50.0  # pages per second, read again after they were pushed out
_GROWS = 1_000_000.0  # bytes per second of memory that cannot be dropped
_MAJOR_SHARE = 0.3  # of what all together do: enough to be accused


def find(evidence: Evidence) -> Iterator[Cause]:
    """The causes of waiting for memory; kills by the kernel count without a stall."""
    found = [_at_limit(a) for a in evidence.activities if _hurts_itself(a, evidence)]
    found += [
        _killed(a, evidence)
        for a in evidence.activities
        if a.killed and a.subject not in {cause.culprit for cause in found}
    ]
    yield from found
    scarce = evidence.available_share is not None and evidence.available_share < _SCARCE
    if evidence.stalls.get("memory", 0.0) >= STALLED and (scarce or not found):
        others = [a for a in evidence.activities if a.subject not in {f.culprit for f in found}]
        yield from _of_machine(others, evidence, is_scarce=scarce)


def _hurts_itself(activity: Activity, evidence: Evidence) -> bool:
    limit, usage = activity.limits.memory_bytes, activity.memory.usage_bytes
    if limit is None or usage is None or evidence.stalls.get("memory", 0.0) < STALLED:
        return False
    stalled = activity.stalls.get("memory")
    waits = stalled >= _WAITS if stalled is not None else activity.limit_hits > 0
    return waits and (usage >= _AT_LIMIT * limit or activity.limit_hits >= 1)


def _at_limit(activity: Activity) -> Cause:
    limit = size(activity.limits.memory_bytes or 0)
    kind, does, advice = _of_own_limit(activity, limit)
    weight = activity.stalls.get("memory", STALLED)
    return Cause("memory", kind, activity.subject, (activity.subject,), weight, 0.9, does, advice)


def _of_own_limit(activity: Activity, limit: str) -> tuple[str, str, str]:
    """Kind, what it does, what to do."""
    swapped = activity.memory.swap_bytes or 0
    if _swaps(activity):
        return (
            "swaps",
            f"works in more memory than its limit of {limit}: {size(swapped)} of it are in swap",
            "raise its memory limit, or let it use less",
        )
    if activity.killed or activity.anon_growth >= _GROWS:
        return _leak(activity, limit)
    if _rereads(activity):
        again = _again(activity)
        return (
            "rereads",
            f"reads files again that its limit of {limit} pushed out of the cache: {again}",
            "raise its memory limit, or let it read less at a time",
        )
    return (
        "limit",
        f"has reached its own limit of {limit} and reclaims its own memory",
        "raise its memory limit, or let it use less",
    )


def _leak(activity: Activity, limit: str) -> tuple[str, str, str]:
    rss = activity.memory.rss_bytes or 0
    if activity.killed:
        return (
            "grows",
            f"grew to its limit of {limit} and was killed for it, {activity.killed} times just now",
            "look for a leak; raise its memory limit only if it needs as much",
        )
    return (
        "grows",
        f"grows by {size(activity.anon_growth)} a second, to {size(rss)} of its limit of {limit}",
        "look for a leak; it will be killed at its limit",
    )


def _killed(activity: Activity, evidence: Evidence) -> Cause:
    limit = activity.limits.memory_bytes
    kind, does, advice = _leak(activity, size(limit) if limit else "all memory")
    weight = max(activity.stalls.get("memory", 0.0), STALLED)
    confidence = 0.9 if limit else 0.6
    return Cause(
        "memory", kind, activity.subject, (activity.subject,), weight, confidence, does, advice
    )


def _swaps(activity: Activity) -> bool:
    swapped = activity.memory.swap_bytes or 0
    faults = activity.anon_refaults if activity.anon_refaults is not None else activity.major_faults
    return swapped >= _GROWS and (faults >= _REFAULTS or activity.swap_growth >= _GROWS)


def _rereads(activity: Activity) -> bool:
    if activity.file_refaults is not None:
        return activity.file_refaults >= _REFAULTS
    cache, usage = activity.memory.cache_bytes or 0, activity.memory.usage_bytes or 1
    return activity.io is not None and cache >= usage / 2 and activity.io.read_bytes >= _GROWS


def _again(activity: Activity) -> str:
    if activity.file_refaults is not None:
        return f"{size(activity.file_refaults * _PAGE_BYTES)} a second"
    return f"{size(activity.io.read_bytes if activity.io else 0)} a second from the disk"


_MEASURES: tuple[tuple[str, Callable[[Activity], float], float], ...] = (
    ("swaps", lambda a: max(a.anon_refaults or 0.0, _REFAULTS) if _swaps(a) else 0.0, _REFAULTS),
    ("grows", lambda a: max(a.anon_growth, 0.0), _GROWS),
    ("rereads", lambda a: (a.file_refaults or 0.0) if _rereads(a) else 0.0, _REFAULTS),
)


def _of_machine(
    activities: list[Activity], evidence: Evidence, *, is_scarce: bool
) -> Iterator[Cause]:
    """The machine reclaims: the one that swaps, grows or reads again the most."""
    for kind, measure, at_least in _MEASURES:
        if kind == "grows" and not is_scarce:
            continue
        total = sum(map(measure, activities))
        worst = max(activities, key=measure, default=None)
        if worst is not None and measure(worst) >= max(at_least, _MAJOR_SHARE * total):
            yield _accused(worst, kind, evidence, measure(worst) / total)
            return
    if is_scarce:
        yield _full(activities, evidence)


def _accused(activity: Activity, kind: str, evidence: Evidence, share: float) -> Cause:
    does = {
        "swaps": f"works in swap: {size(activity.memory.swap_bytes or 0)} of its memory are there",
        "grows": f"grows by {size(activity.anon_growth)} a second, now"
        f" {size(activity.memory.rss_bytes or 0)}, and has pushed the machine into reclaim",
        "rereads": f"reads files again that were pushed out of the cache: {_again(activity)}",
    }
    return Cause(
        "memory",
        kind,
        activity.subject,
        sufferers(evidence.activities, "memory", activity.subject, _WAITS),
        evidence.stalls.get("memory", 0.0),
        min(0.9, 0.4 + share / 2),
        does[kind],
        "give it a memory limit, or move it to a node with more memory",
    )


def _full(activities: list[Activity], evidence: Evidence) -> Cause:
    left = percent(evidence.available_share or 0.0)
    return Cause(
        "memory",
        "crowd",
        MACHINE,
        sufferers(activities, "memory", MACHINE, _WAITS),
        evidence.stalls.get("memory", 0.0),
        0.6,
        f"has {left} of its memory left; nobody stands out by growing",
        "move pods to another node, or lower the memory they may use",
    )
