"""Why tasks wait for processors: their own limit, a neighbour, too many processes; pure.

A container that its own limit throttles waits through nobody's fault and accuses nobody. A
neighbour is accused only while others wait and it uses clearly more than its request.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.pressure.causes.cause import MACHINE, Cause, percent, sufferers
from nodeagent.pressure.evidence import Activity, Evidence

THROTTLED = 0.10  # of the time, by its own limit: worth a line
CONTENDED = 0.20  # of the time, some task waited for a processor that another had
_WAITS = 0.05  # a container that waits so long suffers
_STALLED = 0.10  # of the time, the machine: below that nobody is harmed by many threads
_LARGE = 0.25  # of the machine's processors: large enough to be a cause
_LARGE_SERVICE = 0.4  # a slice of services weighs as much as all pods: half is its right
_ABOVE_REQUEST = 1.5
_COMPARABLE = 0.6  # of the largest user: a second cause
_BUSY = 0.8
_SHARES_PER_CORE = 1024
_MANY_THREADS = 50
_NEAR_LIMIT = 0.9
_LEAST_LIMIT = 16  # threads: smaller limits are reached by ordinary programs


def find(evidence: Evidence) -> Iterator[Cause]:
    """The causes of waiting for processors."""
    bombs = [a for a in evidence.activities if _multiplies(a, evidence)]
    yield from (_bomb(a, evidence) for a in bombs)
    accused = {a.subject for a in bombs}
    for activity in evidence.activities:
        if activity.throttled >= THROTTLED and activity.subject not in accused:
            yield _own_limit(activity)
    contended = evidence.contended()
    if contended < CONTENDED:
        return
    thieves = [a for a in _largest(evidence) if _takes_more(a) and a.subject not in accused]
    if thieves:
        yield from (_thief(a, evidence, contended) for a in thieves)
    elif not bombs and evidence.sees_services:
        yield _crowd(evidence, contended)


def _multiplies(activity: Activity, evidence: Evidence) -> bool:
    """Whether its processes grow without end: refused at its limit, or more and more of them."""
    limit = activity.limits.threads or 0
    if activity.refused_forks > 0:
        return True
    is_full = limit >= _LEAST_LIMIT and activity.threads >= _NEAR_LIMIT * limit
    if is_full and evidence.stalls.get("cpu", 0.0) >= _STALLED:  # else it is a pool of workers
        return True
    before = activity.threads - activity.thread_growth
    doubled = activity.thread_growth >= max(_MANY_THREADS, before)
    return doubled and evidence.contended() >= CONTENDED


def _bomb(activity: Activity, evidence: Evidence) -> Cause:
    limit = activity.limits.threads
    bound = f", of {limit} allowed" if limit is not None else ""
    advice = "end it" if limit is not None else "end it, and set podPidsLimit on the node"
    return Cause(
        "cpu",
        "forks",
        activity.subject,
        sufferers(evidence.activities, "cpu", activity.subject, _WAITS),
        max(evidence.contended(), activity.contended),
        0.9,
        f"starts processes without end: {activity.threads} threads now{bound}",
        f"{advice}: a program starts others faster than they finish",
    )


def _own_limit(activity: Activity) -> Cause:
    quota, period = activity.limits.cpu_quota_usec, activity.limits.cpu_period_usec
    limit = f" of {quota / period:.2g} cores" if quota and period else ""
    return Cause(
        "cpu",
        "limit",
        activity.subject,
        (activity.subject,),
        activity.throttled,
        0.95,
        f"is throttled {percent(activity.throttled)} of the time by its own limit{limit}; "
        "nobody else is to blame",
        "raise its cpu limit, or give it less to do",
    )


def _largest(evidence: Evidence) -> list[Activity]:
    """The largest users, at most two, those of a comparable size."""
    ordered = sorted(evidence.activities, key=lambda a: -a.cores)
    large = [a for a in ordered if a.cores >= _least(a) * evidence.cpus]
    return [a for a in large[:2] if a.cores >= _COMPARABLE * large[0].cores]


def _least(activity: Activity) -> float:
    return _LARGE_SERVICE if activity.subject.service else _LARGE


def _takes_more(activity: Activity) -> bool:
    """Than it requested, as its shares follow from the request."""
    shares = activity.limits.cpu_shares
    if shares is None or activity.subject.service:
        return True
    return activity.cores >= _ABOVE_REQUEST * shares / _SHARES_PER_CORE


def _thief(activity: Activity, evidence: Evidence, contended: float) -> Cause:
    advice = "give it a cpu limit, or those who wait a request; or move it to another node"
    if activity.subject.service:
        advice = "set CPUQuota= or CPUWeight= on this service, or find out what keeps it busy"
    share = activity.cores / max(evidence.cores, activity.cores)
    return Cause(
        "cpu",
        "busy",
        activity.subject,
        sufferers(evidence.activities, "cpu", activity.subject, _WAITS),
        contended,
        min(0.95, 0.5 + share / 2),
        f"uses {activity.cores:.2g} of {evidence.cpus} cores while others wait"
        f" {percent(contended)} of the time",
        advice,
    )


def _crowd(evidence: Evidence, contended: float) -> Cause:
    """The processors are full and nobody stands out; or they are not even full."""
    does = f"has {evidence.cpus} cores and work for more; no single container or service stands out"
    advice = "move pods to another node, or give those that matter requests"
    if evidence.cores < _BUSY * evidence.cpus:
        does = (
            f"has tasks that wait {percent(contended)} of the time, though only"
            f" {evidence.cores:.2g} of {evidence.cpus} cores are used"
        )
        advice = "look for tasks bound to few cores (cpuset), or a hypervisor that takes time"
    return Cause(
        "cpu",
        "crowd",
        MACHINE,
        sufferers(evidence.activities, "cpu", MACHINE, _WAITS),
        contended,
        0.6,
        does,
        advice,
    )
