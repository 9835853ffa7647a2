"""Why tasks wait for disks: who writes, reads much, or reads many small pieces; pure."""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.pressure.causes.cause import MACHINE, Cause, percent, size, sufferers
from nodeagent.pressure.evidence import Activity, DeviceUse, Evidence

STALLED = 0.10  # of the time, some task of the machine waited for a disk
_WAITS = 0.05
_REQUEST_COST = 64 * 1024  # bytes that take a disk as long as the overhead of one request
_ACCUSED = 0.4  # of all the work: the largest user is the cause
_COMPARABLE = 0.6  # of the largest: a second cause
_LEAST = 256 * 1024.0  # work per second below which nobody is accused
_SMALL_BYTES = 24 * 1024  # mean size of reads below the kernel's read-ahead
_PAGE_BYTES = 4096


def find(evidence: Evidence) -> Iterator[Cause]:
    """The causes of waiting for disks."""
    stalled = evidence.stalls.get("io", 0.0)
    if stalled < STALLED:
        return
    users = [(a, a.io, _work(a.io)) for a in evidence.activities if a.io is not None]
    users.sort(key=lambda user: -user[2])
    whole = sum(work for _, _, work in users)
    found = [
        _user(activity, io, work / whole, evidence)
        for activity, io, work in users[:2]
        if work >= max(_LEAST, _COMPARABLE * users[0][2]) and users[0][2] >= _ACCUSED * whole
    ]
    if found or not evidence.sees_services:
        yield from found
    else:
        yield _nobody(evidence, stalled)


def _work(io: DeviceUse) -> float:
    """What a disk has to do for it, in bytes per second."""
    return io.read_bytes + io.write_bytes + (io.reads + io.writes) * _REQUEST_COST


def _user(activity: Activity, io: DeviceUse, share: float, evidence: Evidence) -> Cause:
    kind, does, advice = _of_use(activity, io)
    disk = evidence.disks.get(io.device)
    where = f" {disk.name}" if disk else f" device {io.device[0]}:{io.device[1]}"
    slow = disk.latency_ms if disk else None
    latency = f"; a request there takes {slow:.1f} ms" if slow is not None else ""
    return Cause(
        "io",
        kind,
        activity.subject,
        sufferers(evidence.activities, "io", activity.subject, _WAITS),
        evidence.stalls.get("io", 0.0),
        min(0.95, 0.45 + share / 2),
        f"{does}{where}, {percent(share)} of the work there{latency}",
        advice,
    )


def _of_use(activity: Activity, io: DeviceUse) -> tuple[str, str, str]:
    if io.write_bytes >= io.read_bytes:
        return (
            "writes",
            f"writes {size(io.write_bytes)} a second ({io.writes:.0f} requests) to",
            "let it write less or sync more rarely, or give it a disk of its own",
        )
    again = (activity.file_refaults or 0.0) * _PAGE_BYTES
    if again >= io.read_bytes / 2:
        return (
            "rereads",
            f"reads again what its memory was too small to keep, {size(io.read_bytes)} a second"
            " from",
            "raise its memory limit, or let it read less at a time",
        )
    if io.reads and io.read_bytes / io.reads < _SMALL_BYTES:
        return (
            "small-files",
            f"reads many small files or pieces, {io.reads:.0f} a second of"
            f" {size(io.read_bytes / io.reads)} each, from",
            "let it look through fewer files or more rarely, or give it a faster disk",
        )
    return (
        "reads",
        f"reads {size(io.read_bytes)} a second from",
        "let it read less or later, or give it a disk of its own",
    )


def _nobody(evidence: Evidence, stalled: float) -> Cause:
    slow = [disk for disk in evidence.disks.values() if disk.latency_ms is not None]
    worst = max(slow, key=lambda disk: disk.latency_ms or 0.0, default=None)
    place = f" at {worst.name}, {worst.latency_ms:.1f} ms a request" if worst else ""
    return Cause(
        "io",
        "crowd",
        MACHINE,
        sufferers(evidence.activities, "io", MACHINE, _WAITS),
        stalled,
        0.5,
        f"has tasks that wait for disks {percent(stalled)} of the time{place};"
        " nobody does most of the work",
        "check the disk itself (dmesg, iostat -x 5)",
    )
