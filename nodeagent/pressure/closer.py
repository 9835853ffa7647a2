"""A closer look at a machine under pressure: what the sampler does not read, for suspects alone.

Services beside the pods, refaults and refused forks of whoever stalls, devices, swap traffic, and
on demand what somebody has stopped. Bounded: so many services, suspects and processes, and no
more. Runs in a worker thread; a file that cannot be read is left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping

from nodeagent.pressure import evidence
from nodeagent.pressure.evidence import CloserLook, DiskCounters, Reclaim, Stopped, Subject
from nodeagent.stats.cgroup.readers import CgroupReaders
from nodeagent.stats.cgroup.values import LineNumbers, parse_number
from nodeagent.stats.host import machine
from nodeagent.stats.samples import CgroupSample, Sample
from nodeagent.stats.sources import Sources

MAX_SERVICES = 128
MAX_SUSPECTS = 64
MAX_PROCESSES = 8192
_MAX_MEMBERS = 512
_SLICE = ".slice"
_REFAULTS = LineNumbers("workingset_refault_file workingset_refault_anon")
_REFAULTS_V1 = LineNumbers("total_workingset_refault_file total_workingset_refault_anon")
_REFUSED = LineNumbers("max")
_SWAPPED = LineNumbers("pswpin pswpout")


class CloserReader:
    """Looks closer at the cgroups of `readers`' layout; `pods_cgroup` lies above those of pods."""

    def __init__(self, sources: Sources, readers: CgroupReaders, *, pods_cgroup: str) -> None:
        self._sources = sources
        self._readers = readers
        self._layout = readers.context.layout
        self._pods_cgroup = pods_cgroup.rstrip("/")

    def read(self, sample: Sample) -> CloserLook:
        """One look; `sample` gives the containers."""
        paths = list(self._service_paths())
        self._readers.retain(paths)
        services = {path: found for path in paths if (found := self._readers.read(path))}
        containers = {path: cgroup for _, _, path, cgroup in evidence.containers(sample)}
        suspects = [*_suspects(containers), *_suspects(services)]
        proc = self._sources.proc_root
        swapped = _SWAPPED(machine.read_bytes(proc, "vmstat"))
        return CloserLook(
            self._sources.wall_ns(),
            services,
            {path: self._reclaim(path) for path in suspects},
            disk_counters(machine.read_bytes(proc, "diskstats")),
            None if None in swapped else sum(number or 0 for number in swapped),
        )

    def stopped(self, base: Sample, sample: Sample) -> list[Stopped]:
        """The containers and services that somebody stopped or froze."""
        subjects = {path: subject for _, subject, path, _ in evidence.containers(sample)}
        return [*self._frozen(base, sample), *self._halted(subjects)]

    def _service_paths(self) -> Iterator[str]:
        """Cgroups at the top and those in slices, but for what holds pods."""
        found = 0
        for path in self._below(""):
            inner = list(self._below(path)) if path.endswith(_SLICE) else []
            for service in inner or [path]:
                if found < MAX_SERVICES:
                    found += 1
                    yield service

    def _below(self, path: str) -> Iterator[str]:
        directory = self._layout.directory(path)
        try:
            names = sorted(entry.name for entry in os.scandir(directory or "") if entry.is_dir())
        except OSError:
            return
        for name in names:
            below = f"{path}/{name}"
            if not f"{self._pods_cgroup}/".startswith(f"{below}/") and below != "/unified":
                yield below

    def _reclaim(self, path: str) -> Reclaim:
        is_v2 = self._layout.version == "v2"
        parse = _REFAULTS if is_v2 else _REFAULTS_V1
        of_files, of_anon = parse(self._content("memory", path, "memory.stat"))
        (refused,) = _REFUSED(self._content("pids", path, "pids.events"))
        return Reclaim(of_files, of_anon, refused)

    def _content(self, controller: str, path: str, name: str) -> bytes:
        layout = self._layout
        root = layout.unified if layout.version == "v2" else layout.controllers.get(controller)
        return machine.read_bytes(f"{root}{path}", name) if root else b""

    def _frozen(self, base: Sample, sample: Sample) -> Iterator[Stopped]:
        before = {path: cgroup for _, _, path, cgroup in evidence.containers(base)}
        for _, subject, path, cgroup in evidence.containers(sample):
            was = before.get(path)
            ran = _ran_nsec(cgroup)
            if ran is not None and was and _ran_nsec(was) == ran and self._is_frozen(path):
                yield Stopped(subject, "")

    def _is_frozen(self, path: str) -> bool:
        unified, root = self._layout.unified, self._sources.cgroup_root
        if unified and b"frozen 1" in machine.read_bytes(f"{unified}{path}", "cgroup.events"):
            return True
        return machine.read_bytes(f"{root}/freezer{path}", "freezer.state").startswith(b"FROZEN")

    def _halted(self, subjects: Mapping[str, Subject]) -> Iterator[Stopped]:
        """Subjects whose first process is stopped by a signal."""
        proc, looked = self._sources.proc_root, set[str]()
        pids = [name for name in os.listdir(proc) if name.isdigit()][:MAX_PROCESSES]
        for pid in pids:
            path = machine.cgroup_of(proc, pid) if _state(proc, pid)[1] == "T" else None
            if path is None or path in looked:
                continue
            looked.add(path)  # once: thousands of its processes may be stopped
            first = self._first_process(path, int(pid))
            name, state = _state(proc, str(first))
            if state == "T":  # a job that a shell has stopped stops nothing else
                yield Stopped(subjects.get(path, Subject(service=path.strip("/"))), name, first)

    def _first_process(self, path: str, seen: int) -> int:
        """Of a cgroup; `seen` where its members cannot be told."""
        members = machine.read_bytes(self._layout.directory(path) or "", "cgroup.procs").split()
        return min((int(word) for word in members[:_MAX_MEMBERS]), default=seen)


def _ran_nsec(cgroup: CgroupSample) -> int | None:
    return cgroup.cpu.usage_nsec if cgroup.cpu else None


def _suspects(cgroups: Mapping[str, CgroupSample]) -> list[str]:
    """Those that wait for memory or disks, or whose tasks pile up; all where it is not known."""
    weights = {path: _suspicion(cgroup) for path, cgroup in cgroups.items()}
    found = [path for path, weight in weights.items() if weight > 0]
    return sorted(found, key=lambda path: -weights[path])[:MAX_SUSPECTS]


def _suspicion(cgroup: CgroupSample) -> float:
    pressures = [cgroup.cpu_pressure, cgroup.memory_pressure, cgroup.io_pressure]
    known = [pressure.some.avg10 for pressure in pressures if pressure]
    return sum(known) if known else 0.01


def _state(proc_root: str, pid: str) -> tuple[str, str]:
    """The name and state of a process; empty when it is gone."""
    head, _, tail = machine.read_bytes(f"{proc_root}/{pid}", "stat").rpartition(b")")
    return head.partition(b"(")[2].decode("utf-8", "replace"), tail[1:2].decode("ascii", "replace")


def disk_counters(diskstats: bytes) -> dict[tuple[int, int], DiskCounters]:
    """/proc/diskstats → counters by device; lines of another form are left out."""
    found = {}
    for line in diskstats.splitlines():
        words = line.split()
        numbers = _numbers((words[at] for at in (0, 1, 3, 6, 7, 10)) if len(words) > 10 else ())
        if len(numbers) == 6:
            major, minor, reads, read_ms, writes, write_ms = numbers
            name = words[2].decode("utf-8", "replace")
            found[major, minor] = DiskCounters(name, reads + writes, read_ms + write_ms)
    return found


def _numbers(words: Iterable[bytes]) -> list[int]:
    return [number for word in words if (number := parse_number(word)) is not None]
