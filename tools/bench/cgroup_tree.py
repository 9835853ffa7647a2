"""Real, empty cgroups below a parent of their own, in every hierarchy the sampler reads."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from nodeagent.stats.cgroup.layout import Layout, detect_layout
from nodeagent.stats.samples import ContainerTarget, PodTarget

CONTAINERS_PER_POD = 3


class NoCgroups(Exception):
    """This machine refuses to create cgroups; the text is its error."""


@contextmanager
def pods(containers: int) -> Iterator[tuple[Layout, list[PodTarget]]]:
    """Pods of three containers each, as the sampler gets them; removed at the end."""
    layout = detect_layout("/sys/fs/cgroup")
    parent = f"/orchbench-{os.getpid()}"
    targets = targets_below(parent, containers)
    made: list[Path] = []
    try:
        for root in sorted({file.hierarchy for file in layout.files}):
            _make(Path(root), parent, targets, made)
    except OSError as error:
        _remove(made)
        raise NoCgroups(f"cannot make cgroups below /sys/fs/cgroup: {error}") from error
    try:
        yield layout, targets
    finally:
        _remove(made)


def targets_below(parent: str, containers: int) -> list[PodTarget]:
    """The targets that `pods` creates cgroups for, the same in every process."""
    return [
        _pod(parent, index, min(CONTAINERS_PER_POD, containers - index))
        for index in range(0, containers, CONTAINERS_PER_POD)
    ]


def parent_of(targets: Sequence[PodTarget]) -> str:
    """The cgroup that all of them are below."""
    return targets[0].cgroup_parent.rpartition("/")[0]


def _remove(made: list[Path]) -> None:
    for path in reversed(made):
        path.rmdir()


def _make(root: Path, parent: str, targets: list[PodTarget], made: list[Path]) -> None:
    paths = [parent]
    for target in targets:
        paths.append(target.cgroup_parent)
        paths += [f"{target.cgroup_parent}/{container.id}" for container in target.containers]
    for path in paths:
        directory = root / path[1:]
        directory.mkdir()
        made.append(directory)
        control = directory / "cgroup.subtree_control"
        if control.exists() and path.count("/") < 3 and root == Path("/sys/fs/cgroup"):
            control.write_text("+cpu +memory +pids +io")


def _pod(parent: str, index: int, containers: int) -> PodTarget:
    uid = f"pod{index:05d}"
    return PodTarget(
        "bench",
        f"web-{index}",
        uid,
        f"{parent}/{uid}",
        started_at_ns=1_790_000_000_000_000_000,
        containers=tuple(
            ContainerTarget(
                f"c{number}",
                f"{uid}{number:059d}",
                1_790_000_000_000_000_000,
                "",
                "localhost/web:1",
            )
            for number in range(containers)
        ),
    )
