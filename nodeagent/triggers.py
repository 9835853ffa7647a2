"""Kernel pressure triggers: be told the moment a node, a pod or a container stalls.

A rule names resource, level, threshold and window; the kernel wakes us when tasks of a cgroup were
stalled for longer than the threshold within the window, at most once per window. Each place gets
a descriptor of its own. Feature gate NodeAgentPSITriggers.
Source: Documentation/accounting/psi.rst.

Telling of a stall that a pressure trigger reported: a log line, and an event on what stalled.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import select
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.pods.registry import PodRegistry
from nodeagent.stats.sampler import Sampler
from nodeagent.stats.samples import PodSample
from orch.component.process.loops import Periodic
from orch.component.process.once_log import OnceLog
from orch.wire.records.core import Node
from orch.wire.records.meta import ApiObject, ObjectMeta

log = logging.getLogger(__name__)

NODE, POD, CONTAINER = "node", "pod", "container"
_STEP_S = 5.0  # how soon a new container is watched
_USEC_PER_S = 1_000_000
_FLAGS = os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC
_REASONS = {
    errno.EINVAL: "the kernel refuses threshold and window; without CAP_SYS_RESOURCE the window "
    "must be a multiple of 2s",
    errno.EROFS: "the cgroup tree is mounted read-only; the unit needs ProtectControlGroups=no",
    errno.EACCES: "writing to the pressure file is not permitted",
    errno.EPERM: "writing to the pressure file is not permitted",
    errno.ENOENT: "the kernel has no such pressure file",
    errno.EOPNOTSUPP: "pressure is disabled; boot with psi=1 to enable it",
}


@dataclass(frozen=True, slots=True)
class TriggerRule:
    """`scope` is node, pod or container; `level` is some or full."""

    resource: str
    level: str
    scope: str
    threshold_s: float
    window_s: float

    def text(self) -> bytes:
        """What is written to the pressure file; the kernel wants the final NUL."""
        threshold, window = (
            round(value * _USEC_PER_S) for value in (self.threshold_s, self.window_s)
        )
        return f"{self.level} {threshold} {window}\0".encode()

    def __str__(self) -> str:
        share = f"{self.threshold_s:g}s of {self.window_s:g}s"
        return f"{self.resource} pressure ({self.level}) above {share}"


@dataclass(frozen=True, slots=True)
class Stall:
    """What stalled: empty texts for the node, an empty container for a whole pod."""

    rule: TriggerRule
    namespace: str = ""
    pod: str = ""
    container: str = ""


@dataclass(frozen=True, slots=True)
class _Place:
    stall: Stall
    path: str


@dataclass(frozen=True, slots=True)
class _Armed:
    """The kernel's descriptor inside an epoll of its own: see `_watch`."""

    fd: int
    epoll: select.epoll


class PressureTriggers:
    """`step` arms what is new and lets go of what is gone; `counts` is by resource, level, scope.

    `pods` gives the latest samples, `cgroups` is the root of the version 2 tree, None without one.
    """

    def __init__(
        self,
        rules: Sequence[TriggerRule],
        *,
        pods: Callable[[], Sequence[PodSample]],
        tell: Callable[[Stall], None],
        cgroups: str | None,
        proc_root: str = "/proc",
    ) -> None:
        self.counts: Counter[tuple[str, str, str]] = Counter()
        self._rules = rules
        self._pods = pods
        self._tell = tell
        self._cgroups = cgroups
        self._proc_root = proc_root
        self._armed: dict[_Place, _Armed] = {}
        self._unarmed = OnceLog(log)  # by rule

    async def run(self) -> None:
        await Periodic("pressure triggers", self.step, interval_s=_STEP_S).run()

    async def step(self) -> None:
        """Arm and disarm so that every place that is measured is watched."""
        wanted = set(self._places())
        for gone in self._armed.keys() - wanted:
            self._disarm(gone)
        new = sorted(wanted - self._armed.keys(), key=lambda place: place.path)
        if new:
            armed = await asyncio.to_thread(self._arm_all, new)
            for place, trigger in armed:
                self._armed[place] = trigger
                self._watch(place, trigger)

    def close(self) -> None:
        """Let go of every trigger."""
        for place in tuple(self._armed):
            self._disarm(place)

    def _places(self) -> Iterator[_Place]:
        for rule in self._rules:
            file = f"{rule.resource}.pressure"
            if rule.scope == NODE:
                yield _Place(Stall(rule), f"{self._proc_root}/pressure/{rule.resource}")
                continue
            for pod in self._pods() if self._cgroups else ():
                names = (pod.target.namespace, pod.target.name)
                if rule.scope == POD and pod.cgroup:
                    yield _Place(Stall(rule, *names), f"{self._cgroups}{pod.path}/{file}")
                for one in pod.containers if rule.scope == CONTAINER else ():
                    if one.cgroup:
                        stall = Stall(rule, *names, one.target.name)
                        yield _Place(stall, f"{self._cgroups}{one.path}/{file}")

    def _arm_all(self, places: Sequence[_Place]) -> list[tuple[_Place, _Armed]]:
        armed = []
        for place in places:
            try:
                armed.append((place, _arm(place)))
            except OSError as error:
                self._complain(place, error)
        return armed

    def _complain(self, place: _Place, error: OSError) -> None:
        """Once per rule and reason; a cgroup that went meanwhile is nothing to complain of."""
        rule = place.stall.rule
        is_gone = error.errno in (errno.ENOENT, errno.ENODEV) and rule.scope != NODE
        if is_gone:
            return
        reason = _REASONS.get(error.errno or 0, str(error))
        text = "no trigger for %s at %s: %s"
        self._unarmed.failed(text, rule, place.path, reason, subject=rule, cause=error.errno)

    def _watch(self, place: _Place, trigger: _Armed) -> None:
        # The pressure file always polls as readable, so the loop cannot watch it itself. The inner
        # epoll asks for POLLPRI only. Looking takes the event away: being called is the event.
        loop = asyncio.get_running_loop()
        loop.add_reader(trigger.epoll.fileno(), self._fired, place)

    def _fired(self, place: _Place) -> None:
        trigger = self._armed[place]
        if any(event & select.EPOLLERR for _, event in trigger.epoll.poll(0)):
            self._disarm(place)  # the cgroup is gone
            return
        rule = place.stall.rule
        self.counts[rule.resource, rule.level, rule.scope] += 1
        self._tell(place.stall)

    def _disarm(self, place: _Place) -> None:
        trigger = self._armed.pop(place)
        asyncio.get_running_loop().remove_reader(trigger.epoll.fileno())
        _release(trigger)


def _arm(place: _Place) -> _Armed:
    """OSError when the kernel does not want it."""
    fd = os.open(place.path, _FLAGS)
    try:
        os.write(fd, place.stall.rule.text())
        return _Armed(fd, _epoll_of(fd))
    except OSError:
        os.close(fd)
        raise


def _epoll_of(fd: int) -> select.epoll:
    epoll = select.epoll()
    try:
        epoll.register(fd, select.EPOLLPRI | select.EPOLLERR)
    except OSError:
        epoll.close()
        raise
    return epoll


def _release(trigger: _Armed) -> None:
    trigger.epoll.close()
    os.close(trigger.fd)


REASON = "PressureStall"


class Recorder(Protocol):
    """Where events go; `orch.client.events.EventRecorder` is one."""

    def note(self, obj: ApiObject, type: str, reason: str, message: str) -> None: ...  # noqa: A002


def pressure_triggers(
    config: NodeAgentConfiguration,
    *,
    node_name: str,
    sampler: Sampler,
    registry: PodRegistry,
    recorder: Recorder | None,
) -> PressureTriggers:
    """The triggers of the configuration, told as log lines and events."""
    rules = [
        TriggerRule(one.resource, one.level, one.scope, one.threshold, one.window)
        for one in config.psiTriggers
    ]
    return PressureTriggers(
        rules,
        pods=lambda: sampler.latest.pods if sampler.latest else (),
        tell=stall_teller(node_name, registry, recorder),
        cgroups=sampler.reader.layout.unified,
    )


def stall_teller(
    node_name: str, registry: PodRegistry, recorder: Recorder | None
) -> Callable[[Stall], None]:
    """A function that logs a stall and notes it on its node or pod."""
    # Events about a node carry its name as uid, so that `describe node` finds them.
    node = Node(metadata=ObjectMeta(name=node_name, uid=node_name))

    def tell(stall: Stall) -> None:
        what = _name_of(stall)
        log.warning("%s of %s", stall.rule, what)
        if recorder is None:
            return
        obj = registry.find(stall.namespace, stall.pod) if stall.pod else node
        if obj is not None:
            recorder.note(obj, "Warning", REASON, f"{stall.rule} of {what}")

    return tell


def _name_of(stall: Stall) -> str:
    if not stall.pod:
        return "the node"
    pod = f"pod {stall.namespace}/{stall.pod}"
    return f"container {stall.container} of {pod}" if stall.container else pod
