"""Lifecycle hooks: what runs after a container's start and before its graceful stop."""

from __future__ import annotations

import asyncio

from nodeagent.pods.probes import Outcome, Prober, Target
from orch.wire.pods import LifecycleHandler, Probe

NO_LIMIT_S = 3600  # of a postStart hook, which has none of its own


async def run_hook(
    prober: Prober, target: Target, handler: LifecycleHandler, *, limit_s: int
) -> Outcome:
    """Run one hook to its end, within `limit_s`; what cannot be run counts as failed."""
    if handler.sleep is not None:
        await asyncio.sleep(min(max(handler.sleep.seconds, 0), limit_s))
        return Outcome(True)
    action = Probe(
        exec=handler.exec,
        httpGet=handler.httpGet,
        tcpSocket=handler.tcpSocket,
        timeoutSeconds=limit_s,
    )
    outcome = await prober.check(target, action)
    if outcome.good is None:
        return Outcome(False, outcome.text or "the container runtime gave no answer")
    return outcome
