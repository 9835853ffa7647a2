"""An agent as installed, except that its pods are cgroups created by the benchmark.

    python -m tools.bench.measured_agent PARENT CONTAINERS FILE [the agent's flags…]

A task beside it measures the delay of the event loop every millisecond; at SIGUSR1 the percentiles
since the last signal are written to FILE as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from nodeagent import main as agent
from nodeagent.pods.registry import PodRegistry
from orch.component.process.atomic_file import replace_file
from tools.bench import cgroup_tree
from tools.bench.client import percentile

_TICK_S = 0.001


class LoopDelays:
    """How late a task ran that was due every millisecond, in ms."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._delays: list[float] = []

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, self._write)
        self._write()  # from now on the signal is understood
        while True:
            begun_s = loop.time()
            await asyncio.sleep(_TICK_S)
            self._delays.append((loop.time() - begun_s - _TICK_S) * 1e3)

    def _write(self) -> None:
        delays, self._delays = self._delays or [0.0], []
        ranks = {"p50": 500, "p99": 990, "p999": 999, "max": 1000}
        figures = {name: percentile(delays, rank) for name, rank in ranks.items()}
        replace_file(self._file, json.dumps(figures).encode())


def main(parent: str, containers: int, file: Path, flags: list[str]) -> int:
    targets = cgroup_tree.targets_below(parent, containers)
    PodRegistry.targets = lambda self: targets  # type: ignore[method-assign]
    listed = agent._loops

    def with_delays(*arguments: Any) -> dict[str, Any]:
        return {**listed(*arguments), "loop delays": LoopDelays(file).run()}

    agent._loops = with_delays
    return agent.main(flags)


if __name__ == "__main__":
    os.environ.pop("NOTIFY_SOCKET", None)
    sys.exit(main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:]))
