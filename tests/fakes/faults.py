"""Failures to order: calls that fail, hang, or take effect and lose their answer.

Knows nothing of what the calls do; a fake asks `meet` when a call arrives.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field


@dataclass
class Fault:
    """What happens to the next `times` calls that match; "" matches every verb or kind."""

    verb: str
    plural: str
    error: BaseException | None
    times: float
    applied: bool = False
    gate: asyncio.Event | None = None

    def matches(self, verb: str, plural: str) -> bool:
        return self.verb in ("", verb) and self.plural in ("", plural)


@dataclass
class Faults:
    orders: list[Fault] = field(default_factory=list)

    def heal(self) -> None:
        """Drop every fault and let what hangs go on."""
        for fault in self.orders:
            if fault.gate:
                fault.gate.set()
        self.orders.clear()

    def take(self, verb: str, plural: str) -> Fault | None:
        """The first fault for this call, used up once."""
        for fault in self.orders:
            if fault.matches(verb, plural):
                fault.times -= 1
                if fault.times <= 0:
                    self.orders.remove(fault)
                return fault
        return None

    async def meet(self, verb: str, plural: str) -> BaseException | None:
        """Raise or wait as ordered; the error to raise once the call has taken effect, or None."""
        fault = self.take(verb, plural)
        if fault is None:
            return None
        if fault.gate:
            await fault.gate.wait()
            return None
        if fault.applied or fault.error is None:
            return fault.error
        raise fault.error
