"""The runtime watch: queries the runtime's status every five seconds, and notices when it hangs.

Each check has its own deadline, shorter than the runtime's. `verdict` draws the conclusions; the
status loop reports them, and is woken when they change.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace

from nodeagent.runtime import verdict
from nodeagent.runtime.base import ContainerRuntime, RuntimeCallError
from nodeagent.runtime.verdict import RuntimeHealth
from orch.component.diagnostics.health import CheckFailed
from orch.component.process import loops

log = logging.getLogger(__name__)

INTERVAL_S = 5.0
DEADLINE_S = 10.0
_ABSENT = "no container runtime is configured (containerRuntimeEndpoint is empty)"


class RuntimeWatch:
    """`health` is the current state."""

    def __init__(
        self,
        runtime: ContainerRuntime | None,
        *,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.health = RuntimeHealth(absent="" if runtime else _ABSENT)
        self.checks = 0
        self.failures = 0
        self._runtime = runtime
        self._on_change = on_change
        self._unanswered_since_s: float | None = None  # the first query without a good answer
        self._known = asyncio.Event()
        if runtime is None:
            self._known.set()
        self._reported: tuple[str, ...] = (verdict.NEVER_CHECKED,)

    async def run(self) -> None:
        """Check until cancelled."""
        self.health = replace(self.health, since_s=asyncio.get_running_loop().time())
        await loops.Periodic("runtime watch", self.check, interval_s=INTERVAL_S).run()

    def silent_s(self) -> float:
        """How long a query has been without a good answer; 0 when all are answered."""
        if self._unanswered_since_s is None:
            return 0.0
        return asyncio.get_running_loop().time() - self._unanswered_since_s

    async def known(self) -> None:
        """Wait for the first good answer, or until the runtime counts as down without one.

        Any status reported earlier would be a guess, and repeated at every restart.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(verdict.DOWN_AFTER_S):
                await self._known.wait()

    async def check(self) -> None:
        """Query once; log and signal changes only."""
        if self._runtime is not None:
            await self._query(self._runtime)
        problems = verdict.runtime_problems(self.health, asyncio.get_running_loop().time())
        if problems != self._reported:
            self._log_change(problems)
            self._reported = problems
            self._on_change()

    def require_ready(self) -> None:
        """CheckFailed while the runtime is not ready, or there is none."""
        now_s = asyncio.get_running_loop().time()
        if problems := verdict.runtime_problems(self.health, now_s):
            raise CheckFailed("; ".join(problems))

    async def _query(self, runtime: ContainerRuntime) -> None:
        self.checks += 1
        if self._unanswered_since_s is None:
            self._unanswered_since_s = asyncio.get_running_loop().time()
        fresh = self.health.version is None or bool(self.health.error)
        try:
            async with asyncio.timeout(DEADLINE_S):
                conditions = await runtime.conditions()
                version = await runtime.version() if fresh else self.health.version
        except RuntimeCallError as error:
            self._failed(str(error))
        except TimeoutError:
            self._failed(f"no answer within {DEADLINE_S:g} s")
        else:
            self._unanswered_since_s = None
            self.health = replace(
                self.health,
                last_good_s=asyncio.get_running_loop().time(),
                conditions=tuple(conditions),
                version=version,
                error="",
            )
            self._known.set()

    def _failed(self, error: str) -> None:
        self.failures += 1
        self.health = replace(self.health, error=error)

    def _log_change(self, problems: tuple[str, ...]) -> None:
        version = self.health.version
        if problems:
            log.warning("%s", "; ".join(problems))
        elif version:
            log.info("the container runtime %s %s is ready", version.name, version.version)
