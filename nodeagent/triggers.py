"""Kernel pressure triggers: reports stalls of the node, a pod or a container as they happen.

The kernel wakes us, at most once per window, when the tasks of a cgroup were stalled for longer
than the threshold within the window. A stall becomes a log line and an event on the object. Feature
gate NodeAgentPSITriggers. Source: Documentation/accounting/psi.rst.
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

from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.pods.events import Recorder
from nodeagent.pods.registry import PodRegistry
from nodeagent.stats.sampler import Sampler
from nodeagent.stats.samples import PodSample
from orch.component.process.loops import Periodic
from orch.component.process.once_log import OnceLog
from orch.wire.records.core import Node
from orch.wire.records.meta import ObjectMeta

log = logging.getLogger(__name__)

REASON = "PressureStall"
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
        """The text for the pressure file; the kernel requires the final NUL."""
        usec = (round(seconds * _USEC_PER_S) for seconds in (self.threshold_s, self.window_s))
        return "{} {} {}\0".format(self.level, *usec).encode()

    def __str__(self) -> str:
        share = f"{self.threshold_s:g}s of {self.window_s:g}s"
        return f"{self.resource} pressure ({self.level}) above {share}"


@dataclass(frozen=True, slots=True)
class Stall:
    """The stalled object: "" for the node's names, and for the container of a whole pod."""

    rule: TriggerRule
    namespace: str = ""
    pod: str = ""
    container: str = ""


@dataclass(frozen=True, slots=True)
class _Target:
    stall: Stall
    path: str


@dataclass(frozen=True, slots=True)
class Trigger:
    """The kernel's descriptor inside an epoll of its own; `_watch` says why."""

    fd: int
    epoll: select.epoll

    def close(self) -> None:
        self.epoll.close()
        os.close(self.fd)


class PressureTriggers:
    """`step` arms triggers for new cgroups and closes those of removed ones.

    `counts` is by resource, level, scope. `pods` returns the latest samples, `cgroups` is the root
    of the cgroup v2 tree, None without one. `arm` writes a text to a pressure file.
    """

    def __init__(
        self,
        rules: Sequence[TriggerRule],
        *,
        pods: Callable[[], Sequence[PodSample]],
        report: Callable[[Stall], None],
        cgroups: str | None,
        proc_root: str = "/proc",
        arm: Callable[[str, bytes], Trigger] | None = None,
    ) -> None:
        self.counts: Counter[tuple[str, str, str]] = Counter()
        self._rules = rules
        self._pods = pods
        self._report = report
        self._cgroups = cgroups
        self._proc_root = proc_root
        self._arm = arm or arm_trigger
        self._armed: dict[_Target, Trigger] = {}
        self._unarmed = OnceLog(log)  # by rule

    async def run(self) -> None:
        await Periodic("pressure triggers", self.step, interval_s=_STEP_S).run()

    async def step(self) -> None:
        """Arm and disarm so that every sampled cgroup is watched."""
        wanted = set(self._targets())
        for gone in self._armed.keys() - wanted:
            self._disarm(gone)
        new = sorted(wanted - self._armed.keys(), key=lambda target: target.path)
        if new:
            armed = await asyncio.to_thread(self._arm_all, new)
            for target, trigger in armed:
                self._armed[target] = trigger
                self._watch(target, trigger)

    def close(self) -> None:
        """Close all triggers."""
        for target in tuple(self._armed):
            self._disarm(target)

    def _targets(self) -> Iterator[_Target]:
        for rule in self._rules:
            file = f"{rule.resource}.pressure"
            if rule.scope == NODE:
                yield _Target(Stall(rule), f"{self._proc_root}/pressure/{rule.resource}")
                continue
            for pod in self._pods() if self._cgroups else ():
                names = (pod.target.namespace, pod.target.name)
                if rule.scope == POD and pod.cgroup:
                    yield _Target(Stall(rule, *names), f"{self._cgroups}{pod.path}/{file}")
                for container in pod.containers if rule.scope == CONTAINER else ():
                    if container.cgroup:
                        stall = Stall(rule, *names, container.target.name)
                        yield _Target(stall, f"{self._cgroups}{container.path}/{file}")

    def _arm_all(self, targets: Sequence[_Target]) -> list[tuple[_Target, Trigger]]:
        armed = []
        for target in targets:
            try:
                armed.append((target, self._arm(target.path, target.stall.rule.text())))
            except OSError as error:
                self._log_failure(target, error)
        return armed

    def _log_failure(self, target: _Target, error: OSError) -> None:
        """Once per rule and reason; not for a cgroup removed meanwhile."""
        rule = target.stall.rule
        is_gone = error.errno in (errno.ENOENT, errno.ENODEV) and rule.scope != NODE
        if is_gone:
            return
        reason = _REASONS.get(error.errno or 0, str(error))
        text = "no trigger for %s at %s: %s"
        self._unarmed.failed(text, rule, target.path, reason, subject=rule, cause=error.errno)

    def _watch(self, target: _Target, trigger: Trigger) -> None:
        # The pressure file always polls as readable, so the loop cannot watch it itself. The inner
        # epoll waits for POLLPRI only, and becomes readable when the trigger fires. Reading it
        # clears the event, so that being called is the only sign.
        loop = asyncio.get_running_loop()
        loop.add_reader(trigger.epoll.fileno(), self._fired, target)

    def _fired(self, target: _Target) -> None:
        trigger = self._armed[target]
        if any(event & select.EPOLLERR for _, event in trigger.epoll.poll(0)):
            self._disarm(target)  # the cgroup is gone
            return
        rule = target.stall.rule
        self.counts[rule.resource, rule.level, rule.scope] += 1
        self._report(target.stall)

    def _disarm(self, target: _Target) -> None:
        trigger = self._armed.pop(target)
        asyncio.get_running_loop().remove_reader(trigger.epoll.fileno())
        trigger.close()


def arm_trigger(path: str, text: bytes) -> Trigger:
    """Write a trigger to a pressure file; OSError when the kernel refuses it."""
    fd = os.open(path, _FLAGS)
    try:
        os.write(fd, text)
        return Trigger(fd, _epoll_of(fd))
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


def pressure_triggers(
    config: NodeAgentConfiguration,
    *,
    node_name: str,
    sampler: Sampler,
    registry: PodRegistry,
    recorder: Recorder,
) -> PressureTriggers:
    """The configured triggers."""
    rules = [
        TriggerRule(rule.resource, rule.level, rule.scope, rule.threshold, rule.window)
        for rule in config.psiTriggers
    ]
    return PressureTriggers(
        rules,
        pods=lambda: sampler.latest.pods if sampler.latest else (),
        report=stall_reporter(node_name, registry, recorder),
        cgroups=sampler.reader.layout.unified,
    )


def stall_reporter(
    node_name: str, registry: PodRegistry, recorder: Recorder
) -> Callable[[Stall], None]:
    """A function that logs a stall and records an event on its node or pod."""
    # Events about a node carry its name as uid, so that `describe node` finds them.
    node = Node(metadata=ObjectMeta(name=node_name, uid=node_name))

    def report(stall: Stall) -> None:
        what = _name_of(stall)
        log.warning("%s of %s", stall.rule, what)
        obj = registry.find(stall.namespace, stall.pod) if stall.pod else node
        if obj is not None:
            recorder.note(obj, "Warning", REASON, f"{stall.rule} of {what}")

    return report


def _name_of(stall: Stall) -> str:
    if not stall.pod:
        return "the node"
    pod = f"pod {stall.namespace}/{stall.pod}"
    return f"container {stall.container} of {pod}" if stall.container else pod
