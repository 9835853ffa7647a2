"""The files that a machine had while each of the twelve culprits was staged, read again.

`tools/testbed/culprits.py --record` wrote them (cgroup v2, Linux 6.12, one processor). A recording
is two trees of files some twenty seconds apart.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from nodeagent.pressure.causes.rank import causes_of
from nodeagent.pressure.closer import CloserReader
from nodeagent.pressure.evidence import Evidence, evidence
from nodeagent.stats.cgroup.readers import CgroupReaders
from nodeagent.stats.sampler import Sampler
from tests.fakes import hosts
from tools.testbed.culprits import CASES, PARENT, targets, verdict

RECORDINGS = Path(__file__).parents[2] / "fixtures" / "culprits"
Files = Mapping[str, str]


def test_every_culprit_is_recorded() -> None:
    assert {path.name for path in RECORDINGS.iterdir()} == {f"{case}.json.gz" for case in CASES}


@pytest.mark.parametrize("case", CASES)
async def test_the_right_culprit_is_accused_and_nobody_falsely(case: str, tmp_path: Path) -> None:
    seen = await replayed(case, tmp_path)
    told = [
        {**cause._asdict(), "culprit": {k: v for k, v in cause.culprit._asdict().items() if v}}
        for cause in causes_of(seen)
    ]
    assert verdict(CASES[case], told) == (True, [])


async def test_a_throttled_container_leaves_next_to_nothing_to_others(tmp_path: Path) -> None:
    seen = await replayed("own-limit", tmp_path)
    assert seen.stalls["cpu"] > 0.5
    assert seen.contended() < 0.2


async def replayed(case: str, root: Path) -> Evidence:
    """What is known of a recording: both its trees in turn, at the times they were written."""
    recording = json.loads(gzip.decompress((RECORDINGS / f"{case}.json.gz").read_bytes()))
    clock = hosts.Clock()
    put(recording["before"], root, clock)
    sources = hosts.sources(root, wall_ns=clock)
    actors = [*CASES[case].culprits, *CASES[case].waits]
    sampler = Sampler(targets=lambda: targets(actors), sources=sources)
    readers = CgroupReaders(sampler.reader.layout, fd_budget=0, wall_ns=clock)
    reader = CloserReader(sources, readers, pods_cgroup=PARENT)
    base = await sampler.sample()
    before = reader.read(base)
    put(recording["after"], root, clock)
    latest = await sampler.sample()
    looks = before, reader.read(latest)
    stopped = reader.stopped(base, latest)
    await sampler.close()
    return evidence(base, latest, cpus=1, looks=looks, stopped=stopped)


def put(files: Files, root: Path, clock: hosts.Clock) -> None:
    """Write a tree, and what it says of stopped processes where the agent looks for them."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    clock.now_ns = int(files["time_ns"])
    for pid in files["proc/stopped"].split():
        (root / "proc" / pid).mkdir(exist_ok=True)
        (root / "proc" / pid / "stat").write_text(f"{pid} (python) T 1\n")
        cgroup = next(
            name.removeprefix("cgroup").removesuffix("/cgroup.procs")
            for name, text in files.items()
            if name.endswith("/cgroup.procs") and pid in text.split()
        )
        (root / "proc" / pid / "cgroup").write_text(f"0::{cgroup}\n")
