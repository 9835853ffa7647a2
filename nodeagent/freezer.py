"""Letting a container run again that a broken-off checkpoint left frozen.

A runtime freezes a container while it is dumped. When the call ends early - its deadline passes,
the agent goes away, the runtime is killed - the container stays frozen for ever, alive but doing
nothing, and no restart of the runtime heals it (seen with containerd 2.1.9). The runtime is asked
first, for it has to know that the container runs (commands are refused in one that it holds for
paused); where it cannot, the container's cgroup is thawed.

Looks for containers that somebody's checkpoint left frozen, and lets them run again.

What this agent's own checkpoints leave, the service frees at once. This is for the rest: a runtime
that dies or hangs while it checkpoints for somebody else (`crictl checkpoint`, an agent that lost
its disk) leaves the container frozen for ever, and when it comes back reports its state as Unknown.
That it is frozen is read from the kernel, so no answer of the runtime is needed to see it. While
the runtime answers, a container in the state Running is paused on purpose, or being checkpointed by
another client, and is left alone; so is in any case one that CRIU is still at work on.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Protocol

from nodeagent.archives.reports import Reports
from nodeagent.pods.observed import ActiveContainer
from nodeagent.runtime.base import (
    ContainerRuntime,
    RuntimeCallError,
    RuntimeNotFound,
    RuntimeNotSupported,
)
from orch.component.process.loops import Periodic
from orch.component.process.once_log import OnceLog

log = logging.getLogger(__name__)

CGROUP_ROOT = Path("/sys/fs/cgroup")
REVIVE_LIMIT_S = 12.0  # a killed runtime is started again by its supervisor within some seconds
_GONE = (errno.ENOENT, errno.ENODEV)  # of the other cgroup version, or the container just ended
_RETRY_S = 0.5
_SETTLE_S = 0.2
_SETTLE_CHECKS = 3
_TRACER = re.compile(r"^TracerPid:\s+([1-9]\d*)$", re.MULTILINE)

# control file → what it says when frozen, what to write to thaw; cgroup v1 and v2
_CONTROLS = {"freezer.state": (("FROZEN", "FREEZING"), "THAWED"), "cgroup.freeze": (("1",), "0")}


class Reviver:
    """Sees to it that containers run; `cgroup_root` is where the host's cgroups are mounted.

    A runtime that does not answer is waited for `patience_s`; then the cgroup is thawed.
    """

    def __init__(
        self,
        runtime: ContainerRuntime,
        *,
        cgroup_root: Path = CGROUP_ROOT,
        patience_s: float = REVIVE_LIMIT_S,
    ) -> None:
        self._runtime = runtime
        self._patience_s = patience_s
        self.cgroup_root = cgroup_root

    async def is_frozen(self, container_id: str) -> bool | None:
        """Whether its cgroup is frozen now; None when that cannot be seen."""
        try:
            return await asyncio.to_thread(is_frozen, self.cgroup_root, container_id)
        except OSError as error:
            log.warning("cannot see whether container %s is frozen: %s", container_id, error)
            return None

    async def revive(
        self, container_id: str, *, limit_s: float | None = None, settled: bool = False
    ) -> bool:
        """See to it that a container runs; True when it was paused or frozen.

        `settled`: the runtime has ended the checkpoint itself, so one look is enough; otherwise a
        freeze may still come, and it is looked for several times, for some tenths of a second.
        Takes up to `limit_s` (the reviver's patience) while the runtime does not answer. Failures
        are logged, not raised.
        """
        limit_s = self._patience_s if limit_s is None else limit_s
        resumed = False
        try:
            async with asyncio.timeout(limit_s):
                resumed = await self._resume(container_id, 1 if settled else _SETTLE_CHECKS)
        except TimeoutError:
            log.warning("the runtime did not resume container %s in %g s", container_id, limit_s)
        revived = resumed or await self._thaw(container_id)
        if revived:
            log.warning(
                "container %s was left frozen by a checkpoint that did not end; it runs again",
                container_id,
            )
        return revived

    async def _resume(self, container_id: str, checks: int) -> bool:
        """Ask until it was paused, or was found running `checks` times."""
        while True:
            try:
                if await self._runtime.resume_container(container_id):
                    return True
                checks -= 1
                pause_s = _SETTLE_S
            except (RuntimeNotSupported, RuntimeNotFound) as error:
                log.debug("container %s is not resumed by the runtime: %s", container_id, error)
                return False
            except RuntimeCallError as error:
                log.debug("container %s is not resumed yet: %s", container_id, error)
                pause_s = _RETRY_S
            if checks == 0:
                return False
            await asyncio.sleep(pause_s)

    async def _thaw(self, container_id: str) -> bool:
        try:
            return await asyncio.to_thread(thaw, self.cgroup_root, container_id)
        except OSError as error:
            log.error(
                "container %s may be frozen and cannot be thawed: %s; write to its freezer by hand",
                container_id,
                error,
            )
            return False


def is_frozen(cgroup_root: Path, container_id: str) -> bool:
    """Whether a cgroup of a container is frozen. Blocking I/O."""
    return any(_is_frozen(cgroup) for _, cgroup in _cgroups_of(cgroup_root, {container_id}))


def left_frozen(
    cgroup_root: Path, container_ids: Collection[str], *, proc: Path = Path("/proc")
) -> tuple[set[str], dict[str, str]]:
    """Those of the containers that are frozen and that no CRIU is at work on. Blocking I/O.

    And those of which that cannot be seen, with the reason.
    """
    found, unreadable = set(), {}
    for container_id, cgroup in _cgroups_of(cgroup_root, container_ids):
        try:
            if _is_frozen(cgroup) and not _is_being_dumped(cgroup, proc):
                found.add(container_id)
        except OSError as error:
            unreadable[container_id] = str(error)
    return found, unreadable


def _is_being_dumped(cgroup: Path, proc: Path) -> bool:
    """Whether CRIU traces a process in it, as it does from the freeze to the end of the dump."""
    return any(_tracer(proc / pid, proc) == "criu" for pid in _pids(cgroup))


def _pids(cgroup: Path) -> Iterator[str]:
    """Also of the cgroups below: an init system in a container moves all its processes there."""
    for directory, _, _ in os.walk(cgroup):
        with contextlib.suppress(OSError):  # it has just gone
            yield from Path(directory, "cgroup.procs").read_text().split()


def _tracer(process: Path, proc: Path) -> str:
    """The name of the program that traces a process; "" for none."""
    try:
        found = _TRACER.search((process / "status").read_text())
        return (proc / found[1] / "comm").read_text().strip() if found else ""
    except OSError:  # it has just ended
        return ""


def _is_frozen(cgroup: Path) -> bool:
    for name, (frozen, _) in _CONTROLS.items():
        try:
            if (cgroup / name).read_text().strip() in frozen:
                return True
        except OSError as error:
            if error.errno not in _GONE:
                raise
    return False


def thaw(cgroup_root: Path, container_id: str) -> bool:
    """Thaw the cgroups of a container, wherever they are; True when one was frozen.

    Blocking I/O. OSError: a control file of a cgroup that exists cannot be written.
    """
    thawed = [c for _, c in _cgroups_of(cgroup_root, {container_id}) if _thaw_one(c)]
    return bool(thawed)


def _thaw_one(cgroup: Path) -> bool:
    for name, (frozen, thawed) in _CONTROLS.items():
        control = cgroup / name
        try:
            if control.read_text().strip() not in frozen:
                continue
            control.write_text(thawed)
        except OSError as error:
            if error.errno not in _GONE:
                raise
            continue
        return True
    return False


def _cgroups_of(cgroup_root: Path, container_ids: Collection[str]) -> Iterator[tuple[str, Path]]:
    """Directories of containers: named by the id, or as systemd scopes that end with it."""
    for hierarchy in _hierarchies(cgroup_root):
        for directory, names, _ in os.walk(hierarchy):
            for name in names:
                in_scope = name.removesuffix(".scope").rpartition("-")[2]
                container_id = name if name in container_ids else in_scope
                if container_id in container_ids:
                    yield container_id, Path(directory, name)


def _hierarchies(cgroup_root: Path) -> Iterator[Path]:
    """Where freezing is controlled: the v1 freezer, and v2 alone or beside it."""
    yield cgroup_root / "freezer"
    pure = (cgroup_root / "cgroup.controllers").exists()
    yield cgroup_root if pure else cgroup_root / "unified"


# Worst case: the runtime falls silent right after an answer, is asked again 5 s later
# (`runtime.health`), counts as silent after 3 s, its containers are looked at in the next 3 s, and
# it has a second to resume one before the cgroup is thawed: 12 s.
INTERVAL_S = 1.5
LOOKS = 2  # a container must be found frozen so often in a row: a checkpoint may just be ending
LOOKS_AGAIN = 40  # before one that could not be freed is tried again, and told of, once more
SILENT_S = 3.0  # an answer that is due for so long will not come soon
FREE_WITHIN_S = 1.0


class ActiveContainers(Protocol):
    def active_containers(self, *, only_unknown: bool) -> Iterable[ActiveContainer]:
        """All of them, or those alone whose state the runtime does not know."""
        ...


class FrozenWatch:
    """`is_busy` says of a container id whether it is being checkpointed or freed already.

    `silent_s` is for how long the runtime has owed an answer.
    """

    def __init__(
        self,
        pods: ActiveContainers,
        reviver: Reviver,
        reports: Reports,
        *,
        is_busy: Callable[[str], bool],
        silent_s: Callable[[], float],
    ) -> None:
        self._pods = pods
        self._reviver = reviver
        self._reports = reports
        self._is_busy = is_busy
        self._silent_s = silent_s
        self._seen: dict[str, int] = {}  # id → looks in a row that found it frozen
        self._unreadable = OnceLog(log, logging.ERROR)  # by id

    async def run(self) -> None:
        await Periodic("frozen containers", self.step, interval_s=INTERVAL_S).run()

    async def step(self) -> None:
        """Look once; containers found frozen often enough are freed and told of."""
        silent = self._silent_s() >= SILENT_S
        doubtful = {
            one.id: one
            for one in self._pods.active_containers(only_unknown=not silent)
            if not self._is_busy(one.id)
        }
        if not doubtful:
            self._seen.clear()
            self._unreadable.retain(())
            return
        root = self._reviver.cgroup_root
        frozen, unreadable = await asyncio.to_thread(left_frozen, root, doubtful.keys())
        for container_id, why in unreadable.items():
            text = "cannot see whether container %s is frozen: %s"
            self._unreadable.failed(text, container_id, why, subject=container_id)
        self._unreadable.retain(unreadable)
        self._seen = {one: self._seen.get(one, 0) + 1 for one in frozen}
        due = [one for one in frozen if self._seen[one] >= LOOKS and not self._is_busy(one)]
        await asyncio.gather(*(self._free(doubtful[one]) for one in due))

    async def _free(self, one: ActiveContainer) -> None:
        if await self._reviver.revive(one.id, limit_s=FREE_WITHIN_S, settled=True):
            self._reports.thawed(one.pod, one.name)
            del self._seen[one.id]
        else:
            self._seen[one.id] = LOOKS - LOOKS_AGAIN
