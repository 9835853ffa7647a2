"""The cgroup that the container runtime itself runs in: that of whoever serves its socket."""

from __future__ import annotations

import asyncio

from nodeagent.runtime.endpoint import server_pid
from nodeagent.stats import host
from nodeagent.stats.samples import SystemPart
from orch.component import clock


class RuntimePart:
    """Keeps `latest`, of one part or none; `step` belongs in a periodic loop of about a minute.

    A runtime that does not answer stays where it was: a cgroup that is gone is left out when it is
    read. There is no part where systemd itself or another PID namespace holds the socket, and where
    the runtime shares `own_cgroup`, the agent's.
    """

    def __init__(self, socket: str, own_cgroup: str | None, proc_root: str = "/proc") -> None:
        self.latest: tuple[SystemPart, ...] = ()
        self._socket = socket
        self._own_cgroup = own_cgroup
        self._proc_root = proc_root

    async def step(self) -> None:
        """Look once; nothing is raised when there is nothing to be found."""
        self.latest = await asyncio.to_thread(self._find)

    def _find(self) -> tuple[SystemPart, ...]:
        pid = server_pid(self._socket)
        if not pid:
            return self.latest
        cgroup = host.cgroup_of(self._proc_root, pid)
        if pid == 1 or cgroup is None or cgroup == self._own_cgroup:
            return ()
        started_at_ns = int(clock.process_start_s(self._proc_root, pid) * 1e9)
        return (SystemPart("runtime", cgroup, started_at_ns),)
