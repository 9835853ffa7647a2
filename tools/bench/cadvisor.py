"""cAdvisor for comparison, when `CADVISOR` names its binary: its pages, passes and housekeeping.

It is limited to the cgroups below a parent (and the root, which it always includes), so that other
cgroups of the machine do not count.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tools.bench import peers, processes

_ONE_PER_CGROUP = re.compile(rb"^container_last_seen\{", re.MULTILINE)
_FRESH = "?max_age=0s"


@dataclass(frozen=True, slots=True)
class Running:
    """A cAdvisor that is ready; `url` is its metrics page."""

    pid: int
    url: str


@contextmanager
def running(interval: str, below: str) -> Iterator[Running | None]:
    """A cAdvisor whose housekeeping covers the cgroups below; None without a binary."""
    program = os.environ.get("CADVISOR", "")
    if not program:
        yield None
        return
    port = peers.free_port()
    command = [
        program, f"--port={port}", "--listen_ip=127.0.0.1", "--docker_only=true",
        f"--raw_cgroup_prefix_whitelist={below}", f"--housekeeping_interval={interval}",
        "--allow_dynamic_housekeeping=false",
    ]  # fmt: skip
    with peers.running(command) as process:
        url = f"http://127.0.0.1:{port}/metrics"
        peers.wait_for(process, url)
        yield Running(process.pid, url)


def scraped(below: str, scrapes: int = 20) -> peers.Scraped | None:
    """Its page, without housekeeping in between; None without a binary."""
    with running("1h", below) as peer:
        return peers.scraped(peer.pid, peer.url, scrapes) if peer else None


def pass_usec(peer: Running) -> float:
    """CPU microseconds per cgroup of one pass: a page of fresh readings, less a cached one.

    Less than nothing is possible: the two are measured one after the other.
    """
    begun_s = processes.cpu_s(peer.pid)
    page = peers.fetched(peer.url)
    between_s = processes.cpu_s(peer.pid)
    peers.fetched(peer.url + _FRESH)
    fresh_s = processes.cpu_s(peer.pid) - between_s
    return (fresh_s - (between_s - begun_s)) * 1e6 / len(_ONE_PER_CGROUP.findall(page))
