"""Network counters: the machine's from its first process, a pod's from its sandbox's process.

`/proc/<pid>/net/dev` needs neither a namespace change nor netlink and costs a fortieth of that. As
in the reference collector, loopback and the host's ends of containers' links are left out. A
process that is gone yields None.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from nodeagent.stats.cgroup import values
from nodeagent.stats.samples import InterfaceSample, NetworkSample

_SKIPPED = ("lo", "veth", "docker", "nerdctl")
_FIELDS = 17
_USUAL_NAME = "eth0"
_ROUTE_UP = 1
_PAGE_BYTES = 4096
_MOST_PAGES = 32  # some 1,000 interfaces: whoever may make them may make any number
_MAYBE_MORE_BYTES = 3000  # the kernel returns a page at a time, cut between two lines


@dataclass(frozen=True, slots=True)
class LinkFacts:
    """An interface of the machine; `kind` is empty for hardware, else veth, bridge, …

    `is_default`: an IPv4 or IPv6 default route uses it.
    """

    name: str
    is_default: bool
    kind: str
    is_up: bool
    mtu: int
    address: str  # of the link layer


def read_links() -> tuple[LinkFacts, ...]:
    """The interfaces of this network namespace, from netlink; OSError when that is refused.

    Takes milliseconds and loads a library: for `nodeagent doctor`, not for every pass.
    """
    from pyroute2 import IPRoute, NetlinkError  # 84 ms and 7 MiB that the daemon does not need

    try:
        with IPRoute() as netlink:
            defaults = {
                route.get_attr("RTA_OIF")
                for family in (socket.AF_INET, socket.AF_INET6)
                for route in netlink.get_default_routes(family=family)
            }
            return tuple(_link(message, defaults) for message in netlink.get_links())
    except NetlinkError as error:
        raise OSError(error.code, str(error)) from error


def _link(message: Any, default_indexes: set[int]) -> LinkFacts:
    info = message.get_attr("IFLA_LINKINFO")
    return LinkFacts(
        name=str(message.get_attr("IFLA_IFNAME") or ""),
        is_default=message["index"] in default_indexes,
        kind=str(info.get_attr("IFLA_INFO_KIND") or "") if info else "",
        is_up=message.get_attr("IFLA_OPERSTATE") == "UP",
        mtu=int(message.get_attr("IFLA_MTU") or 0),
        address=str(message.get_attr("IFLA_ADDRESS") or ""),
    )


@lru_cache(maxsize=256)  # most pods of a node are idle: the same text in pass after pass
def parse_net_dev(data: bytes) -> tuple[InterfaceSample, ...]:
    """The lines of net/dev without the two header lines and malformed ones."""
    interfaces = []
    for line in data.splitlines()[2:]:
        words = line.replace(b":", b" ", 1).split()
        if len(words) != _FIELDS:
            continue
        name = words[0].decode("utf-8", "replace")
        if name.lower().startswith(_SKIPPED):
            continue
        numbers = [values.parse_number(word) for word in (*words[1:5], *words[9:13])]
        counters = [number for number in numbers if number is not None]
        if len(counters) == len(numbers):
            interfaces.append(InterfaceSample(name, *counters))
    return tuple(interfaces)


def default_interface(routes: bytes) -> str | None:
    """The interface of the default route with the lowest metric in `net/route`; None without."""
    best: tuple[int, str] | None = None
    for line in routes.splitlines()[1:]:
        words = line.split()
        if len(words) < 8 or words[1] != b"00000000" or words[7] != b"00000000":
            continue
        flags, metric = _hexadecimal(words[3]), values.parse_number(words[6])
        if flags is None or metric is None or not flags & _ROUTE_UP:
            continue
        candidate = (metric, words[0].decode("utf-8", "replace"))
        best = candidate if best is None else min(best, candidate)
    return best[1] if best else None


def read_network(proc_root: str, pid: int | str, time_ns: int) -> NetworkSample | None:
    """Counters of the network namespace of process `pid`; None when the process is gone."""
    directory = f"{proc_root}/{pid}/net"
    try:
        interfaces = parse_net_dev(_content(f"{directory}/dev"))
    except OSError:
        return None
    names = [interface.name for interface in interfaces]
    if not names:
        return NetworkSample(time_ns, (), None)
    default = _USUAL_NAME if _USUAL_NAME in names else _route_of(directory)
    return NetworkSample(time_ns, interfaces, default if default in names else None)


def shares_host_network(proc_root: str, pid: int) -> bool:
    """Whether the process uses the machine's network; False when that cannot be determined."""
    try:
        return os.path.samestat(
            (Path(proc_root) / str(pid) / "ns/net").stat(), (Path(proc_root) / "1/ns/net").stat()
        )
    except OSError:
        return False


def _route_of(directory: str) -> str | None:
    try:
        return default_interface(_content(f"{directory}/route"))
    except OSError:
        return None


def _content(path: str) -> bytes:
    # Runs once per pod and pass: a file object would query size and position and read twice.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = [os.read(fd, _PAGE_BYTES)]
        while len(parts[-1]) > _MAYBE_MORE_BYTES and len(parts) < _MOST_PAGES:
            parts.append(os.read(fd, _PAGE_BYTES))
    finally:
        os.close(fd)
    return b"".join(parts)


def _hexadecimal(text: bytes) -> int | None:
    try:
        return int(text, 16)
    except ValueError:
        return None
