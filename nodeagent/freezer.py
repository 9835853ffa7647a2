"""Thaws containers that a checkpoint left frozen, also one of another client.

A runtime freezes a container while dumping it. When the call ends early (deadline, a killed agent
or runtime), it stays frozen forever; no restart of the runtime helps (seen with containerd 2.1.9).
The runtime has to resume it, since it refuses commands in a container it holds for paused; where it
cannot, the cgroup is thawed. Containers paused on purpose, or being dumped by CRIU, are left alone.
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

from nodeagent.archives.reports import CheckpointReports
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
THAW_LIMIT_S = 12.0  # the supervisor restarts a killed runtime within some seconds
_GONE = (errno.ENOENT, errno.ENODEV)  # of the other cgroup version, or the container just exited
RETRY_S = 0.5
SETTLE_S = 0.2
_SETTLE_CHECKS = 3
_TRACER = re.compile(rb"^TracerPid:\s+([1-9]\d*)$", re.MULTILINE)

# control file → its values when frozen, the value that thaws; cgroup v1 and v2
_CONTROLS = {"freezer.state": (("FROZEN", "FREEZING"), "THAWED"), "cgroup.freeze": (("1",), "0")}


class ContainerThawer:
    """Ensures that containers run; `cgroup_root` is where the host's cgroups are mounted.

    The cgroup is thawed when the runtime has not answered for `patience_s`.
    """

    def __init__(
        self,
        runtime: ContainerRuntime,
        *,
        cgroup_root: Path = CGROUP_ROOT,
        patience_s: float = THAW_LIMIT_S,
    ) -> None:
        self._runtime = runtime
        self._patience_s = patience_s
        self.cgroup_root = cgroup_root

    async def is_frozen(self, container_id: str) -> bool | None:
        """Whether its cgroup is frozen; None when that cannot be read."""
        try:
            return await asyncio.to_thread(is_frozen, self.cgroup_root, container_id)
        except OSError as error:
            log.warning("cannot see whether container %s is frozen: %s", container_id, error)
            return None

    async def ensure_running(
        self, container_id: str, *, limit_s: float | None = None, settled: bool = False
    ) -> bool:
        """Resume or thaw a container; True when it was paused or frozen.

        `settled`: the runtime has ended the checkpoint, so one check is enough; otherwise a freeze
        may still come, and the check is repeated for some tenths of a second. Takes up to `limit_s`
        (`patience_s`) while the runtime does not answer. Failures are logged, not raised.
        """
        limit_s = self._patience_s if limit_s is None else limit_s
        resumed = False
        try:
            async with asyncio.timeout(limit_s):
                resumed = await self._resume(container_id, 1 if settled else _SETTLE_CHECKS)
        except TimeoutError:
            log.warning("the runtime did not resume container %s in %g s", container_id, limit_s)
        # As CRIU ends it freezes the cgroup again, of which the runtime does not know.
        thawed = await self._thaw(container_id) or resumed
        if thawed:
            text = "container %s was left frozen by an unfinished checkpoint; it is running again"
            log.warning(text, container_id)
        return thawed

    async def _resume(self, container_id: str, checks: int) -> bool:
        """Call the runtime until it reports the container running, `checks` times in a row."""
        resumed, left = False, checks
        while True:
            try:
                if await self._runtime.resume_container(container_id):
                    resumed, left = True, checks
                left -= 1
                pause_s = SETTLE_S
            except (RuntimeNotSupported, RuntimeNotFound) as error:
                log.debug("the runtime does not resume container %s: %s", container_id, error)
                return resumed
            except RuntimeCallError as error:
                log.debug("container %s is not resumed yet, retrying: %s", container_id, error)
                pause_s = RETRY_S
            if left == 0:
                return resumed
            await asyncio.sleep(pause_s)

    async def _thaw(self, container_id: str) -> bool:
        try:
            return await asyncio.to_thread(thaw, self.cgroup_root, container_id)
        except OSError as error:
            log.error(
                "container %s may be frozen and cannot be thawed: %s; thaw its cgroup manually",
                container_id,
                error,
            )
            return False


def processes(cgroup_root: Path, container_id: str) -> Iterator[str]:
    """The ids of a container's processes, as text. Blocking I/O."""
    for _, cgroup in _cgroups_of(cgroup_root, {container_id}):
        yield from _pids(cgroup)


def is_frozen(cgroup_root: Path, container_id: str) -> bool:
    """Whether a cgroup of a container is frozen. Blocking I/O."""
    return any(_is_frozen(cgroup) for _, cgroup in _cgroups_of(cgroup_root, {container_id}))


def left_frozen(
    cgroup_root: Path, container_ids: Collection[str], *, proc: Path = Path("/proc")
) -> tuple[set[str], dict[str, str]]:
    """The containers that are frozen and not being dumped by CRIU. Blocking I/O.

    Also those whose state cannot be read, with the reason.
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
    """Whether CRIU traces a process in it, as it does from freeze to the end of the dump."""
    return any(_tracer(proc / pid, proc) == b"criu" for pid in _pids(cgroup))


def _pids(cgroup: Path) -> Iterator[str]:
    """Including child cgroups: an init system in a container moves all processes there."""
    for directory, _, _ in os.walk(cgroup):
        with contextlib.suppress(OSError):  # removed meanwhile
            yield from Path(directory, "cgroup.procs").read_text().split()


def _tracer(process: Path, proc: Path) -> bytes:
    """The name of the program tracing a process, any bytes; none for none."""
    try:
        found = _TRACER.search((process / "status").read_bytes())
        return (proc / found[1].decode() / "comm").read_bytes().strip() if found else b""
    except OSError:  # exited meanwhile
        return b""


def _is_frozen(cgroup: Path) -> bool:
    return any(_is_frozen_by(cgroup, name) for name in _CONTROLS)


def _is_frozen_by(cgroup: Path, name: str) -> bool:
    with _ignoring_missing():
        return (cgroup / name).read_text().strip() in _CONTROLS[name][0]
    return False


@contextlib.contextmanager
def _ignoring_missing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _GONE:
            raise


def thaw(cgroup_root: Path, container_id: str) -> bool:
    """Thaw all cgroups of a container; True when at least one was frozen.

    Blocking I/O. OSError: a control file of an existing cgroup cannot be written.
    """
    thawed = [c for _, c in _cgroups_of(cgroup_root, {container_id}) if _thaw_cgroup(c)]
    return bool(thawed)


def _thaw_cgroup(cgroup: Path) -> bool:
    for name, (_, thawed) in _CONTROLS.items():
        if _is_frozen_by(cgroup, name):
            with _ignoring_missing():
                (cgroup / name).write_text(thawed)
                return True
    return False


def _cgroups_of(cgroup_root: Path, container_ids: Collection[str]) -> Iterator[tuple[str, Path]]:
    """Containers' cgroups: named by the id, or systemd scopes that end with it."""
    for hierarchy in _hierarchies(cgroup_root):
        for directory, names, _ in os.walk(hierarchy):
            for name in names:
                in_scope = name.removesuffix(".scope").rpartition("-")[2]
                container_id = name if name in container_ids else in_scope
                if container_id in container_ids:
                    yield container_id, Path(directory, name)


def _hierarchies(cgroup_root: Path) -> Iterator[Path]:
    """Of the freezers: the v1 hierarchy, and v2 alone or beside it."""
    yield cgroup_root / "freezer"
    pure = (cgroup_root / "cgroup.controllers").exists()
    yield cgroup_root if pure else cgroup_root / "unified"


# Worst case: the runtime stops answering right after an answer, is called again 5 s later
# (`runtime.health`), counts as silent after 3 s, its containers are checked in the next 3 s, and
# it has a second to resume them before the cgroup is thawed: 12 s.
INTERVAL_S = 1.5
CHECKS = 2  # in a row that must find a container frozen: a checkpoint may just be finishing
CHECKS_BEFORE_RETRY = 40  # after a container could not be thawed
SILENT_S = 3.0  # an answer overdue for so long will not come soon
THAW_WITHIN_S = 1.0


class ActiveContainers(Protocol):
    def active_containers(self, *, only_unknown: bool) -> Iterable[ActiveContainer]:
        """All of them, or only those whose state the runtime does not know."""
        ...


class FrozenContainerMonitor:
    """Thaws containers that checkpoints of other clients left frozen.

    A runtime that dies or hangs during `crictl checkpoint` reports the container as Unknown when it
    is back. While the runtime answers, running containers are skipped: they are paused on purpose,
    or still being checkpointed. `is_busy` tells whether this agent handles a container id itself;
    `silent_s` for how long the runtime's answer has been overdue.
    """

    def __init__(
        self,
        pods: ActiveContainers,
        thawer: ContainerThawer,
        reports: CheckpointReports,
        *,
        is_busy: Callable[[str], bool],
        silent_s: Callable[[], float],
    ) -> None:
        self._pods = pods
        self._thawer = thawer
        self._reports = reports
        self._is_busy = is_busy
        self._silent_s = silent_s
        self._found: dict[str, int] = {}  # id → checks in a row that found it frozen
        self._unreadable = OnceLog(log, logging.ERROR)  # by id

    async def run(self) -> None:
        await Periodic("frozen containers", self.step, interval_s=INTERVAL_S).run()

    async def step(self) -> None:
        """Check once; thaw and report containers found frozen often enough."""
        silent = self._silent_s() >= SILENT_S
        suspects = {
            container.id: container
            for container in self._pods.active_containers(only_unknown=not silent)
            if not self._is_busy(container.id)
        }
        if not suspects:
            self._found.clear()
            self._unreadable.retain(())
            return
        root = self._thawer.cgroup_root
        frozen, unreadable = await asyncio.to_thread(left_frozen, root, suspects.keys())
        for container_id, why in unreadable.items():
            text = "cannot see whether container %s is frozen: %s"
            self._unreadable.failed(text, container_id, why, subject=container_id)
        self._unreadable.retain(unreadable)
        self._found = {id_: self._found.get(id_, 0) + 1 for id_ in frozen}
        due = [id_ for id_ in frozen if self._found[id_] >= CHECKS and not self._is_busy(id_)]
        await asyncio.gather(*(self._thaw(suspects[id_]) for id_ in due))

    async def _thaw(self, container: ActiveContainer) -> None:
        if await self._thawer.ensure_running(container.id, limit_s=THAW_WITHIN_S, settled=True):
            self._reports.thawed(container.pod, container.name)
            del self._found[container.id]
        else:
            self._found[container.id] = CHECKS - CHECKS_BEFORE_RETRY
