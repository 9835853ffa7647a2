"""The families of /metrics/containerstats that have a device or an interface; pure.

Columns like those of `columns`. Block devices appear under the kernel's name for them, or under
their numbers if it has none.
"""

from __future__ import annotations

from collections.abc import Mapping

from nodeagent.metrics import text
from nodeagent.metrics.columns import Rows, write_family
from nodeagent.metrics.text import Page
from nodeagent.stats.samples import DeviceIo, NodeSample


def write_devices(page: Page, rows: Rows, names: Mapping[tuple[int, int], str]) -> None:
    """Bytes and operations per block device."""
    known = [(row, device) for row in rows for device in row.sample.io or ()]
    names = {numbers: text.escape(name) for numbers, name in names.items()}
    for name, help_text, field in _DEVICE_FAMILIES:
        lines = [
            f'{name}{row.labels},device="{_device(names, device)}"}} {value}{row.end}'
            for row, device in known
            if (value := getattr(device, field)) is not None
        ]
        write_family(page, name, help_text, lines)
    name = "container_blkio_device_usage_total"
    lines = []
    for row, device in known:
        labels = (
            f'{name}{row.labels},device="{_device(names, device)}",major="{device.major}"'
            f',minor="{device.minor}",operation='
        )
        for operation, value in (("Read", device.read_bytes), ("Write", device.write_bytes)):
            if value is not None:
                lines.append(f'{labels}"{operation}"}} {value}{row.end}')
    write_family(page, name, "Blkio Device bytes usage", lines)


_DEVICE_FAMILIES = (
    ("container_fs_reads_bytes_total", "Cumulative count of bytes read", "read_bytes"),
    ("container_fs_reads_total", "Cumulative count of reads completed", "reads"),
    ("container_fs_writes_bytes_total", "Cumulative count of bytes written", "write_bytes"),
    ("container_fs_writes_total", "Cumulative count of writes completed", "writes"),
)


def _device(names: Mapping[tuple[int, int], str], device: DeviceIo) -> str:
    name = names.get((device.major, device.minor))
    return f"/dev/{name}" if name else f"{device.major}:{device.minor}"


def write_filesystems(page: Page, rows: Rows, node: NodeSample) -> None:
    """Used bytes are measured once a minute and have that stamp; the rest has the node's.

    A row from the runtime may be older, and unchanged at the next scrape.
    """
    device = f',device="{text.escape(node.fs_device)}"}}'
    known = [(row, row.rootfs) for row in rows if row.rootfs]
    node_end = page.stamp(node.cgroup.time_ns) if node.cgroup else None
    for name, help_text, field in _FILESYSTEM_FAMILIES:
        lines = [
            f"{name}{row.labels}{device} {value}"
            f"{page.stamp(fs.time_ns) if field == 'used_bytes' else node_end or row.end}"
            for row, fs in known
            if (value := getattr(fs, field)) is not None
        ]
        write_family(page, name, help_text, lines)


_FILESYSTEM_FAMILIES = (
    (
        "container_fs_usage_bytes",
        "Number of bytes that are consumed by the container on this filesystem.",
        "used_bytes",
    ),
    (
        "container_fs_limit_bytes",
        "Number of bytes that can be consumed by the container on this filesystem.",
        "capacity_bytes",
    ),
    ("container_fs_inodes_free", "Number of available Inodes", "inodes_free"),
    ("container_fs_inodes_total", "Number of Inodes", "inodes"),
)


def write_network(page: Page, rows: Rows) -> None:
    """Of the node and of sandboxes only: containers share their pod's network."""
    known = [
        (f'{row.labels},interface="{text.escape(interface.name)}"}}', row.end, interface)
        for row in rows
        if row.network
        for interface in row.network.interfaces
    ]
    for direction, short, verb in (
        ("receive", "rx", "received"),
        ("transmit", "tx", "transmitted"),
    ):
        for unit, field, what in (
            ("bytes", "bytes", "bytes"),
            ("packets", "packets", "packets"),
            ("packets_dropped", "dropped", "packets dropped while being"),
            ("errors", "errors", "errors encountered while being"),
        ):
            name = f"container_network_{direction}_{unit}_total"
            field_name = f"{short}_{field}"
            lines = [
                f"{name}{labels} {value}{end}"
                for labels, end, interface in known
                if (value := getattr(interface, field_name)) is not None
            ]
            write_family(page, name, f"Cumulative count of {what} {verb}", lines)
