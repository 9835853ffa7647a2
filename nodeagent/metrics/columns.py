"""The families of /metrics/containerstats, column by column; pure.

Names, types and units are those of the reference collector. Each function writes the families of
one subject for all rows; a value that is None has no line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from nodeagent.metrics.text import Page
from nodeagent.psi import USEC_PER_S
from nodeagent.stats.samples import (
    CgroupSample,
    CpuSample,
    FsSample,
    Limits,
    MemorySample,
    NetworkSample,
    ProcessSample,
    ProcessUse,
)


class Row(NamedTuple):
    """A cgroup; `labels` is its block without the closing brace, `end` the stamp's text."""

    labels: str
    end: str
    sample: CgroupSample
    started_at_ns: int
    network: NetworkSample | None = None
    rootfs: FsSample | None = None
    use: ProcessUse | None = None


Rows = Sequence[Row]
Lines = list[str]
Known = tuple[str, str, tuple[Any, ...]]  # labels, end, the values of a record
Family = tuple[str, str, str]  # name, help, the field

_NSEC_PER_S = 1e9


def write_cpu(page: Page, rows: Rows) -> None:
    known = [(row.labels, row.end, row.sample.cpu) for row in rows if row.sample.cpu]
    name = "container_cpu_usage_seconds_total"
    lines = [
        f'{name}{labels},cpu="total"}} {cpu.usage_nsec / _NSEC_PER_S!r}{end}'
        for labels, end, cpu in known
    ]
    write_family(page, name, "Cumulative cpu time consumed in seconds.", lines)
    for name, help_text, field in _CPU_FAMILIES:
        at = CpuSample._fields.index(field)
        divisor = _NSEC_PER_S if field.endswith("_nsec") else None
        lines = [
            f"{name}{labels}}} {value / divisor if divisor else value!r}{end}"
            for labels, end, cpu in known
            if (value := cpu[at]) is not None
        ]
        write_family(page, name, help_text, lines)


_CPU_FAMILIES: tuple[Family, ...] = (
    (
        "container_cpu_user_seconds_total",
        "Cumulative user cpu time consumed in seconds.",
        "user_nsec",
    ),
    (
        "container_cpu_system_seconds_total",
        "Cumulative system cpu time consumed in seconds.",
        "system_nsec",
    ),
    (
        "container_cpu_cfs_periods_total",
        "Number of elapsed enforcement period intervals.",
        "periods",
    ),
    (
        "container_cpu_cfs_throttled_periods_total",
        "Number of throttled period intervals.",
        "throttled_periods",
    ),
    (
        "container_cpu_cfs_throttled_seconds_total",
        "Total time duration the container has been throttled.",
        "throttled_nsec",
    ),
)


def write_memory(page: Page, rows: Rows) -> None:
    known = [(row.labels, row.end, row.sample.memory) for row in rows if row.sample.memory]
    _write_fields(page, known, MemorySample._fields, _MEMORY_FAMILIES)
    _write_failures(page, known)


def _write_fields(
    page: Page, known: Iterable[Known], fields: Sequence[str], families: Iterable[Family]
) -> None:
    """A family per field of the values."""
    for reference_name, help_text, field in families:
        name = page.name_of(reference_name)
        at = fields.index(field)
        lines = [
            f"{name}{labels}}} {value}{end}"
            for labels, end, values in known
            if (value := values[at]) is not None
        ]
        write_family(page, name, help_text, lines)


_MEMORY_FAMILIES: tuple[Family, ...] = (
    ("container_memory_cache", "Number of bytes of page cache memory.", "cache_bytes"),
    ("container_memory_rss", "Size of RSS in bytes.", "rss_bytes"),
    ("container_memory_kernel_usage", "Size of kernel memory allocated in bytes.", "kernel_bytes"),
    ("container_memory_mapped_file", "Size of memory mapped files in bytes.", "mapped_file_bytes"),
    ("container_memory_swap", "Container swap usage in bytes.", "swap_bytes"),
    (
        "container_memory_usage_bytes",
        "Current memory usage in bytes, including all memory regardless of when it was accessed",
        "usage_bytes",
    ),
    ("container_memory_max_usage_bytes", "Maximum memory usage recorded in bytes", "peak_bytes"),
    ("container_memory_working_set_bytes", "Current working set in bytes.", "working_set_bytes"),
    (
        "container_memory_total_active_file_bytes",
        "Current total active file in bytes.",
        "active_file_bytes",
    ),
    (
        "container_memory_total_inactive_file_bytes",
        "Current total inactive file in bytes.",
        "inactive_file_bytes",
    ),
    ("container_memory_failcnt", "Number of memory usage hits limits", "limit_failures"),
    (
        "container_oom_events_total",
        "Count of out of memory events observed for the container",
        "oom_kills",
    ),
)


def _write_failures(page: Page, known: Iterable[tuple[str, str, MemorySample]]) -> None:
    name = "container_memory_failures_total"
    lines = []
    for labels, end, memory in known:
        for kind, value in (
            ("pgfault", memory.page_faults),
            ("pgmajfault", memory.major_page_faults),
        ):
            if value is not None:
                start = f'{name}{labels},failure_type="{kind}",scope='
                lines.append(f'{start}"container"}} {value}{end}')
                lines.append(f'{start}"hierarchy"}} {value}{end}')
    write_family(page, name, "Cumulative count of memory allocation failures.", lines)


def write_processes(page: Page, rows: Rows) -> None:
    known = [(row.labels, row.end, row.sample.processes) for row in rows if row.sample.processes]
    _write_fields(page, known, ProcessSample._fields, _PROCESS_FAMILIES)
    name = "container_threads_max"
    help_text = "Maximum number of threads allowed inside the container, infinity if value is zero"
    lines = [
        f"{name}{row.labels}}} {value}{row.end}"
        for row in rows
        if (value := _limit(row.sample.limits, "threads", 0)) is not None
    ]
    write_family(page, name, help_text, lines)


_PROCESS_FAMILIES: tuple[Family, ...] = (
    ("container_processes", "Number of processes running inside the container.", "processes"),
    ("container_threads", "Number of threads running inside the container", "threads"),
)


def write_open_files(page: Page, rows: Rows) -> None:
    """Read at a slower interval, with their own stamps."""
    known = [(row.labels, page.stamp(row.use.time_ns), row.use) for row in rows if row.use]
    _write_fields(page, known, ProcessUse._fields, _OPEN_FILE_FAMILIES)
    limits = [(f'{labels},ulimit="max_open_files"', end, use) for labels, end, use in known]
    _write_fields(page, limits, ProcessUse._fields, _ULIMIT_FAMILIES)


_OPEN_FILE_FAMILIES: tuple[Family, ...] = (
    (
        "container_file_descriptors",
        "Number of open file descriptors for the container.",
        "file_descriptors",
    ),
    ("container_sockets", "Number of open sockets for the container.", "sockets"),
)
_ULIMIT_FAMILIES: tuple[Family, ...] = (
    (
        "container_ulimits_soft",
        "Soft ulimit values for the container root process. Unlimited if -1.",
        "max_open_files",
    ),
)


def write_limits(page: Page, rows: Rows) -> None:
    """Settings have no stamp; as in the reference, 0 means no limit."""
    for name, help_text, field in _LIMIT_FAMILIES:
        unlimited = None if field.startswith("cpu_") else 0
        lines = [
            f"{name}{row.labels}}} {value}\n"
            for row in rows
            if (value := _limit(row.sample.limits, field, unlimited)) is not None
        ]
        write_family(page, name, help_text, lines)


def _limit(limits: Limits, field: str, unlimited: int | None) -> int | None:
    """The value to write; None for a limit that a runtime omits: it need not be unlimited."""
    value: int | None = getattr(limits, field)
    return unlimited if value is None and limits.from_kernel else value


_LIMIT_FAMILIES: tuple[Family, ...] = (
    ("container_spec_cpu_period", "CPU period of the container.", "cpu_period_usec"),
    ("container_spec_cpu_quota", "CPU quota of the container.", "cpu_quota_usec"),
    ("container_spec_cpu_shares", "CPU share of the container.", "cpu_shares"),
    ("container_spec_memory_limit_bytes", "Memory limit for the container.", "memory_bytes"),
    (
        "container_spec_memory_reservation_limit_bytes",
        "Memory reservation limit for the container.",
        "memory_reservation_bytes",
    ),
    (
        "container_spec_memory_swap_limit_bytes",
        "Memory swap limit for the container.",
        "swap_bytes",
    ),
)


def write_times(page: Page, rows: Rows) -> None:
    name = "container_last_seen"
    lines = [f"{name}{row.labels}}} {row.sample.time_ns // 1_000_000_000}{row.end}" for row in rows]
    write_family(page, name, "Last time a container was seen by the exporter", lines)
    name = "container_start_time_seconds"
    lines = [
        f"{name}{row.labels}}} {row.started_at_ns // 1_000_000_000}\n"
        for row in rows
        if row.started_at_ns > 0
    ]
    help_text = "Start time of the container since unix epoch in seconds."
    write_family(page, name, help_text, lines)


def write_pressure(page: Page, rows: Rows) -> None:
    """Seconds; waiting is `some`, stalled is `full`."""
    for resource, what in (("cpu", "CPU"), ("memory", "memory"), ("io", "I/O")):
        known = [
            (row.labels, row.end, pressure)
            for row in rows
            if (pressure := getattr(row.sample, f"{resource}_pressure"))
        ]
        for kind, line_at, verb in (("waiting", 0, "waited"), ("stalled", 1, "stalled")):
            name = f"container_pressure_{resource}_{kind}_seconds_total"
            reason = f"due to {what} congestion" if kind == "waiting" else f"due to {what} stalls"
            help_text = f"Total time duration tasks in the container have {verb} {reason}."
            lines = [
                f"{name}{labels}}} {line.total_usec / USEC_PER_S!r}{end}"
                for labels, end, pressure in known
                if (line := pressure[line_at])
            ]
            write_family(page, name, help_text, lines)


def write_family(page: Page, name: str, help_text: str, lines: Lines) -> None:
    """Begin the family and add its lines; nothing without lines."""
    if lines:
        page.family(name, help_text)
        page.extend(lines)
