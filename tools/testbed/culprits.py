"""Stages twelve culprits with real processes in cgroups, and asks who causes the pressure.

    python culprits.py [--seconds N] [--record DIRECTORY] [CASE …]

Run as root on a machine with cgroup v2 (a test machine) or v1. Prints a JSON line per case: the
report, what was expected, and whether it was right. `--record` keeps the files that were read, as
`DIRECTORY/CASE.json`. Everything is bounded: processes by pids.max and memory by limits; at the end
all are killed and the cgroups removed. Knows nothing of how causes are found.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nodeagent.pressure.closer import CloserReader
from nodeagent.pressure.watch import PressureWatch
from nodeagent.stats.cgroup.layout import Layout, detect_layout
from nodeagent.stats.cgroup.readers import CgroupReaders
from nodeagent.stats.sampler import Sampler
from nodeagent.stats.samples import ContainerTarget, PodTarget
from nodeagent.stats.sources import Sources

PARENT = "/orchculprits"
SERVICE = "/system.slice/thief.service"
WARM_UP_S = 8.0
_ROOT = "/sys/fs/cgroup"
_MB = 1 << 20
# Name → its name in version 1 with its controller, and how its value is written there.
_V1: Mapping[str, Callable[[str], tuple[str, str, str]]] = {
    "cpu.max": lambda text: ("cpu", "cpu.cfs_quota_us", text.split()[0]),
    "memory.max": lambda text: ("memory", "memory.limit_in_bytes", text),
    "memory.swap.max": lambda text: ("memory", "memory.memsw.limit_in_bytes", "-1"),
    "pids.max": lambda text: ("pids", "pids.max", text),
    "cpu.weight": lambda text: ("cpu", "cpu.shares", str(max(2, int(text) * 1024 // 100))),
}
BURN = "while True: pass"
_BURNERS = "import os\nfor _ in range(3): os.fork()\nwhile True: pass"
_QUIET = "import time\nwhile True: sum(range(2000)); time.sleep(0.5)"
_STEADY = "import time\nwhile True: sum(range(20000)); time.sleep(0.02)"
_BOMB = """import os, time
while True:
    try:
        if not os.fork(): end = time.time() + 0.2; exec('while time.time() < end: pass')
    except OSError: time.sleep(0.01)
"""
_REREAD = """while True:
    with open(PATH + '/big', 'rb', buffering=0) as file:
        while file.read(1 << 20): pass
"""
_LEAK = """import os, time
while True:
    if not os.fork():
        kept = []
        while True: kept.append(bytearray(b'x' * (1 << 20))); time.sleep(0.02)
    os.wait()
"""
_WRITE = """import os
os.fork(); os.fork()
PATH += f'/{os.getpid()}'
block = os.urandom(1 << 20)
while True:
    with open(PATH, 'wb', buffering=0) as file:
        for _ in range(64): file.write(block); os.fsync(file.fileno())
"""
_WALK = """import os
while True:
    for folder, _, names in os.walk(PATH + '/small'):
        for name in names:
            fd = os.open(f'{folder}/{name}', os.O_RDONLY)
            os.read(fd, 8192); os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED); os.close(fd)
"""
_SYNC = """import os, time
while True:
    with open(PATH + '/own', 'wb', buffering=0) as file: file.write(b'x' * 4096); os.fsync(file)
    time.sleep(0.05)
"""
_SWAP = """
block = bytearray(72 << 20)
while True:
    for at in range(0, len(block), 4096): block[at] = 1
"""
_STOPPED = "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)"


@dataclass(frozen=True, slots=True)
class Actor:
    """A container of the pod NAME/app, or with `service` a system service, and its program."""

    name: str
    program: str
    limits: Mapping[str, str] = field(default_factory=dict)
    service: bool = False

    @property
    def path(self) -> str:
        return SERVICE if self.service else f"{PARENT}/{self.name}/{self.name}-app"


@dataclass(frozen=True, slots=True)
class Case:
    """`wanted`: the names of those to be accused, with the kinds that are right."""

    culprits: tuple[Actor, ...]
    wanted: Mapping[str, tuple[str, ...]]
    prepare: Callable[[Path], None] | None = None
    waits: tuple[Actor, ...] = ()


STEADY = Actor("steady", _STEADY, {"cpu.weight": "100"})
SYNCING = Actor("syncing", _SYNC, {"cpu.weight": "100"})
_SMALL_WEIGHT = {"cpu.weight": "1"}


def _big(place: Path) -> None:
    with (place / "big").open("wb") as file:
        for _ in range(160):
            file.write(os.urandom(_MB))
    _forget_cached()


def _forget_cached() -> None:
    """What this program wrote is charged to it, and not to who reads it."""
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3")


def _small(place: Path) -> None:
    for folder in range(40):
        (place / "small" / str(folder)).mkdir(parents=True)
        for number in range(150):
            (place / "small" / str(folder) / str(number)).write_bytes(b"x" * 6000)
    _forget_cached()


def _swap_on(place: Path) -> None:
    swap = place / "swap"
    with swap.open("wb") as file:
        for _ in range(256):
            file.write(bytes(_MB))
    swap.chmod(0o600)
    subprocess.run(["mkswap", "-q", str(swap)], check=True)
    subprocess.run(["swapon", str(swap)], check=True)


CASES: Mapping[str, Case] = {
    "own-limit": Case(
        (Actor("capped", BURN, {"cpu.max": "20000 100000"}),), {"capped": ("cpu/limit",)}
    ),
    "cpu-thief": Case(
        (Actor("thief", _BURNERS, _SMALL_WEIGHT),), {"thief": ("cpu/busy",)}, waits=(STEADY,)
    ),
    "fork-bomb": Case(
        (Actor("bomb", _BOMB, {"pids.max": "60"}),), {"bomb": ("cpu/forks",)}, waits=(STEADY,)
    ),
    "page-cache-reader": Case(
        (Actor("reader", _REREAD, {"memory.max": str(48 * _MB)}),),
        {"reader": ("memory/rereads", "io/rereads")}, _big,
    ),
    "leak": Case(
        (Actor("leaky", _LEAK, {"memory.max": str(40 * _MB), "memory.swap.max": "0"}),),
        {"leaky": ("memory/grows",)},
    ),
    "writer": Case((Actor("writer", _WRITE),), {"writer": ("io/writes",)}, waits=(SYNCING,)),
    "small-file-walker": Case(
        (Actor("walker", _WALK),), {"walker": ("io/small-files",)}, _small, (SYNCING,)
    ),
    "swap": Case(
        (Actor("swapper", _SWAP,
               {"memory.max": str(32 * _MB), "memory.swap.max": str(200 * _MB)}),),
        {"swapper": ("memory/swaps",)}, _swap_on,
    ),
    "none": Case((Actor("idle", _QUIET),), {}),
    "two-at-once": Case(
        (Actor("thief", _BURNERS, _SMALL_WEIGHT),
         Actor("writer", _WRITE, {"cpu.weight": "100"})),
        {"thief": ("cpu/busy",), "writer": ("io/writes",)}, waits=(SYNCING,),
    ),
    "system-service": Case(
        (Actor("thief.service", _BURNERS, service=True),),
        {"system.slice/thief.service": ("cpu/busy",)}, waits=(STEADY,),
    ),
    "stopped-process": Case((Actor("halted", _STOPPED),), {"halted": ("process/stopped",)}),
}  # fmt: skip


class Stage:
    """Cgroups and processes of one case, removed at the end."""

    def __init__(self, host: Layout, place: Path) -> None:
        self._host = host
        self._place = place
        self._roots = sorted({file.hierarchy for file in host.files})
        self._made: list[Path] = []
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, actor: Actor) -> None:
        """Make the cgroup with its limits, then start the program inside it."""
        for root in self._roots:
            self._make(root, actor.path)
        for name, text in actor.limits.items():
            self._limit(actor.path, name, text)
        directories = [f"{root}{actor.path}" for root in self._roots]
        enter = "import os\n" + "".join(
            f"open({directory + '/cgroup.procs'!r}, 'w').write(str(os.getpid()))\n"
            for directory in directories
        )
        code = f"{enter}PATH = {str(self._place)!r}\n{actor.program}"
        self._processes.append(
            subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
        )

    def _make(self, root: str, path: str) -> None:
        whole = Path(root)
        for part in path.strip("/").split("/"):
            control = whole / "cgroup.subtree_control"
            if self._host.version == "v2" and control.exists():
                control.write_text("+cpu +memory +pids +io")
            whole /= part
            if not whole.exists():
                whole.mkdir()
                self._made.append(whole)

    def _limit(self, path: str, name: str, text: str) -> None:
        if self._host.version == "v2":
            Path(f"{self._host.unified}{path}", name).write_text(text)
            return
        controller, old_name, value = _V1[name](text)
        Path(f"{self._host.controllers[controller]}{path}", old_name).write_text(value)

    def clear(self) -> None:
        """Kill everything in the cgroups, then remove them."""
        for _ in range(200):
            pids = {pid for path in self._made for pid in _members(path)}
            if not pids:
                break
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for process in self._processes:
                process.poll()
            time.sleep(0.05)
        for process in self._processes:
            process.kill()
            process.wait()
        for path in reversed(self._made):
            path.rmdir()


def _members(path: Path) -> list[int]:
    return [int(pid) for pid in (path / "cgroup.procs").read_text().split()]


def targets(actors: Sequence[Actor]) -> list[PodTarget]:
    """The pods of a case as the sampler gets them."""
    return [
        PodTarget(
            "shop", actor.name, f"uid-{actor.name}", f"{PARENT}/{actor.name}",
            containers=(ContainerTarget("app", f"{actor.name}-app", 1),),
        )
        for actor in actors
        if not actor.service
    ]  # fmt: skip


async def ask(case: Case, seconds: float, record: Callable[[str], None]) -> dict[str, object]:
    """The report about the staged case, after some seconds of it."""
    pods = targets([*case.culprits, *case.waits])
    sources = Sources()
    sampler = Sampler(targets=lambda: pods, sources=sources)
    readers = CgroupReaders(sampler.reader.layout, fd_budget=0)
    reader = CloserReader(sources, readers, pods_cgroup=PARENT)
    watch = PressureWatch(sampler, reader, node_name="staged", cpus=os.cpu_count() or 1)
    await asyncio.sleep(WARM_UP_S)
    record("before")
    await sampler.step()
    await asyncio.sleep(seconds)
    await sampler.step()
    answer = json.loads(await watch.report())
    record("after")
    await sampler.close()
    readers.close()
    return dict(answer)


def verdict(case: Case, causes: Sequence[Mapping[str, object]]) -> tuple[bool, list[str]]:
    """Whether each culprit is accused for a right reason; and who else is.

    A full machine (`crowd`) accuses nobody; where nothing is wrong, it is false all the same.
    """
    found: dict[str, set[str]] = {}
    for cause in causes:
        who = dict(cause["culprit"])  # type: ignore[call-overload]
        name = who.get("pod") or who.get("service") or "the machine"
        if name == "the machine" and case.wanted:
            continue
        found.setdefault(name, set()).add(f"{cause['resource']}/{cause['kind']}")
    right = all(set(kinds) & found.get(name, set()) for name, kinds in case.wanted.items())
    return right, sorted(found.keys() - case.wanted.keys())


def run(name: str, seconds: float, record_to: Path | None) -> dict[str, object]:
    """Stage a case and judge the answer."""
    case, host = CASES[name], detect_layout(_ROOT)
    place = Path(tempfile.mkdtemp(prefix="culprits-", dir="/var/tmp"))
    stage, kept = Stage(host, place), dict[str, dict[str, str]]()

    def record(when: str) -> None:
        if record_to:
            kept[when] = dict(_files(host))

    try:
        if case.prepare:
            case.prepare(place)
        os.sync()
        for actor in (*case.waits, *case.culprits):
            stage.start(actor)
        answer = asyncio.run(ask(case, seconds, record))
    finally:
        stage.clear()
        if (place / "swap").exists():
            subprocess.run(["swapoff", str(place / "swap")], check=False)
        shutil.rmtree(place)
    right, falsely = verdict(case, answer["causes"])  # type: ignore[arg-type]
    if record_to:
        record_to.mkdir(parents=True, exist_ok=True)
        text = json.dumps(kept, indent=0, sort_keys=True)
        (record_to / f"{name}.json").write_text(text + "\n")
    return {"case": name, "right": right, "falsely": falsely, "report": answer}


_KEPT = (
    "cpu.stat", "memory.current", "memory.stat", "memory.events", "memory.swap.current",
    "memory.max", "pids.current", "pids.max", "pids.events", "cpu.max", "cpu.weight", "io.stat",
    "cgroup.procs", "cgroup.events", "cpu.pressure", "memory.pressure", "io.pressure",
    "cgroup.controllers",
)  # fmt: skip
_STAT_KEYS = (
    "anon ", "file ", "kernel ", "file_mapped ", "inactive_file ", "active_file ", "pgfault ",
    "pgmajfault ", "workingset_refault_",
)  # fmt: skip
_PROC = ("diskstats", "meminfo", "loadavg", "pressure/cpu", "pressure/memory", "pressure/io")


def _files(host: Layout) -> Iterator[tuple[str, str]]:
    """What is read of cgroup v2, by path below the roots; idle services are left out."""
    root = Path(host.unified or _ROOT)
    yield "time_ns", str(time.time_ns())
    yield from ((f"proc/{name}", Path("/proc", name).read_text()) for name in _PROC)
    vmstat = Path("/proc/vmstat").read_text().splitlines(keepends=True)
    yield "proc/vmstat", "".join(line for line in vmstat if line.startswith("pswp"))
    yield "proc/stopped", " ".join(_stopped())
    for directory in [root, *root.glob("orchculprits/**/"), *root.glob("system.slice/*.service/")]:
        for name in _KEPT:
            with contextlib.suppress(OSError):
                text = (directory / name).read_text()
                if name == "memory.stat":
                    lines = text.splitlines(keepends=True)
                    text = "".join(line for line in lines if line.startswith(_STAT_KEYS))
                yield f"cgroup/{directory.relative_to(root)}/{name}".replace("/./", "/"), text


def _stopped() -> Iterator[str]:
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and ") T " in (entry / "stat").read_text():
                yield entry.name


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--record", type=Path, metavar="DIRECTORY")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("cases", nargs="*", metavar="CASE", default=list(CASES))
    args = parser.parse_args()
    for name in args.cases or CASES:
        print(json.dumps(run(name, args.seconds, args.record)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
