"""Ends the node's pods in order before the machine shuts down.

An inhibitor makes the login manager wait, and its signal announces a shutdown. Then the node
becomes not Ready, admits no more pods, and ends its pods group by group; after the last group the
machine may shut down. A lost bus is reconnected; the agent runs on without it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from nodeagent.node.logind import LogindError
from nodeagent.node.rules import ending_order
from nodeagent.node.rules.ending_order import Group, Member, Stage
from nodeagent.node.status_loop import OwnNode
from nodeagent.pods.decide.admission import Refusal
from nodeagent.pods.decide.phase import Ending
from nodeagent.pods.registry import PodRegistry
from nodeagent.pods.spec import spec
from orch.component.process import clock, loops
from orch.component.process.clock import Now
from orch.component.process.once_log import OnceLog

log = logging.getLogger(__name__)

PROBLEM = "node is shutting down"
_MESSAGE = "Pod was terminated in response to imminent node shutdown."
_REFUSAL = Refusal("NodeShutdown", "Pod was rejected as the node is shutting down.")
STATE_FILE = "graceful_node_shutdown_state"
_RECONNECT_S = 5.0
_POLL_S = 0.2
_RELOAD_S = 1.0  # for the login manager to read its configuration


class LoginManager(Protocol):
    """Implemented by `logind.Logind`."""

    signals: asyncio.Queue[bool]

    async def connect(self) -> None: ...
    async def longest_delay_s(self) -> float: ...
    async def raise_delay(self, seconds: int) -> None: ...
    async def inhibit(self) -> int: ...
    async def lost(self) -> None: ...
    def close(self) -> None: ...


class PodTerminator(Protocol):
    """Implemented by `pod_workers.PodWorkers`."""

    def end(self, uid: str, ending: Ending) -> bool: ...
    def close(self, refusal: Refusal) -> None: ...
    def reopen(self) -> None: ...


class ShutdownGuard:
    """The last shutdown is recorded below the agent's `root_dir`.

    Read for metrics: `began_s` and `ended_s`, Unix times of the last shutdown, 0 for none.
    """

    def __init__(
        self,
        groups: Sequence[Group],
        registry: PodRegistry,
        pods: PodTerminator,
        node: OwnNode,
        *,
        root_dir: str,
        manager: Callable[[], LoginManager],
        now: Now = clock.utc_now,
    ) -> None:
        self.active = False
        self._groups = groups
        self._registry = registry
        self._pods = pods
        self._node = node
        self._manager = manager
        self._now = now
        self._state = Path(root_dir) / STATE_FILE
        self.began_s, self.ended_s = _read_state(self._state)
        self._outage = OnceLog(log, logging.ERROR)

    def problems(self) -> tuple[str, ...]:
        return (PROBLEM,) if self.active else ()

    async def run(self) -> None:
        """Guard until cancelled."""
        while True:
            manager = self._manager()
            try:
                await self._guard(manager)
            except LogindError as error:
                text = "cannot end pods before a shutdown of this machine: %s"
                self._outage.failed(text, error)
            finally:
                manager.close()
            await asyncio.sleep(_RECONNECT_S)

    async def _guard(self, manager: LoginManager) -> None:
        """Guard until the bus is lost (LogindError)."""
        await manager.connect()
        await self._ensure_delay(manager)
        lost = loops.spawn(manager.lost(), name="bus")
        try:
            while True:
                inhibitor = await manager.inhibit()
                self._outage.recovered("a shutdown of this machine waits for its pods again")
                try:
                    while not await self._next_signal(manager, lost):
                        continue
                    await self._shut_down()
                finally:
                    os.close(inhibitor)
                await self._next_signal(manager, lost)  # the shutdown was cancelled
                log.info("the shutdown was cancelled: admitting pods again")
                self._set_active(active=False)
        finally:
            await loops.cancel(lost)

    async def _ensure_delay(self, manager: LoginManager) -> None:
        wanted_s = sum(group.seconds for group in self._groups)
        if await manager.longest_delay_s() >= wanted_s:
            return
        await manager.raise_delay(wanted_s)
        await asyncio.sleep(_RELOAD_S)
        if (granted_s := await manager.longest_delay_s()) < wanted_s:
            raise LogindError(
                f"the login manager delays a shutdown for at most {granted_s:g} s; "
                f"set InhibitDelayMaxSec={wanted_s} in logind.conf"
            )

    async def _next_signal(self, manager: LoginManager, lost: asyncio.Task[None]) -> bool:
        signal = loops.spawn(manager.signals.get(), name="shutdown signal")
        try:
            await asyncio.wait((signal, lost), return_when=asyncio.FIRST_COMPLETED)
            if not signal.done():
                raise LogindError("the connection to the system bus is lost")
            return signal.result()
        finally:
            await loops.cancel(signal)

    async def _shut_down(self) -> None:
        began_s = self._now().timestamp()
        log.warning("the machine shuts down: ending the pods of this node")
        self._node.warn("NodeShutdown", "Shutdown manager detected shutdown event")
        self._set_active(active=True)
        await self._record(began_s, 0.0)
        for stage in ending_order.stages(self._groups, self._members()):
            await self._end_stage(stage)
        await self._record(began_s, self._now().timestamp())
        log.info("the machine may shut down")

    def _set_active(self, *, active: bool) -> None:
        self.active = active
        if active:
            self._pods.close(_REFUSAL)
        else:
            self._pods.reopen()
        self._node.changed.set()

    def _members(self) -> list[Member]:
        return [
            Member(pod.metadata.uid or "", pod.spec.priority or 0, spec.grace_period_s(pod))
            for pod in self._registry.all_desired()
            if self._registry.view(pod.metadata.uid or "").active
        ]

    async def _end_stage(self, stage: Stage) -> None:
        """End the pods of a stage and wait until they have stopped, or its time is over."""
        for member in stage.pods:
            grace_s = min(member.grace_s, stage.seconds)
            self._pods.end(member.uid, Ending("Terminated", _MESSAGE, grace_s))
        end_s = asyncio.get_running_loop().time() + stage.seconds
        uids = [member.uid for member in stage.pods]
        while left := [view for view in map(self._registry.view, uids) if view.active]:
            if asyncio.get_running_loop().time() >= end_s:
                names = ", ".join(sorted(f"{view.namespace}/{view.name}" for view in left))
                log.error("pods that did not end within %d s: %s", stage.seconds, names)
                return
            await asyncio.sleep(_POLL_S)

    async def _record(self, began_s: float, ended_s: float) -> None:
        """For the metrics of the next agent."""
        self.began_s, self.ended_s = began_s, ended_s
        text = json.dumps({"startTime": began_s, "endTime": ended_s})
        try:
            await asyncio.to_thread(self._state.write_text, text)
        except OSError as error:
            log.error("cannot write %s: %s", self._state, error.strerror)


def _read_state(path: Path) -> tuple[float, float]:
    try:
        state = json.loads(path.read_text())
        return float(state["startTime"]), float(state["endTime"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0, 0.0
