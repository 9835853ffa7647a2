"""What is asked of this agent's health, connected: does it work, and does what it depends on.

Used by `parts` alone.
"""

from __future__ import annotations

import asyncio

from nodeagent.heartbeat import LeaseLoop
from nodeagent.measuringparts import SamplingCheck
from nodeagent.runtime.health import RuntimeWatch
from nodeagent.runtime.verdict import runtime_problems
from nodeagent.statusloop import StatusLoop
from orch.component.health import CheckFailed, HealthChecks, SliMetrics


def build_health(
    sampling: SamplingCheck,
    lease: LeaseLoop | None,
    watch: RuntimeWatch,
    status: StatusLoop | None,
) -> tuple[HealthChecks, SliMetrics]:
    """/healthz and /livez: this process works; /readyz: what it depends on does too."""
    slis = SliMetrics()
    checks = HealthChecks(slis)
    checks.add("ping", lambda: None)
    checks.add("sampling", sampling)
    if lease:
        checks.add("lease", lease.alive)

    def runtime_ready() -> None:
        now_s = asyncio.get_running_loop().time()
        if problems := runtime_problems(watch.health, now_s):
            raise CheckFailed("; ".join(problems))

    def registered() -> None:
        if status is not None and not status.registered:
            raise CheckFailed("the node is not registered with the API server")

    checks.add("runtime", runtime_ready, endpoints=("readyz",))
    checks.add("registered", registered, endpoints=("readyz",))
    return checks, slis
