"""The streaming half of the fake runtime: it says where a `StreamingServer` waits."""

from __future__ import annotations

from collections.abc import Sequence

from nodeagent.runtime.endpoint import StreamAddress, StreamOptions
from tests.fakes.runtime_faults import CallFaults


class FakeStreams(CallFaults):
    """`stream_address` is the answer to whoever opens a stream; `streams` are what was asked for:
    the kind, the id, the command or the ports, and the options.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stream_address = StreamAddress("127.0.0.1", 9, "/stream/token")
        self.streams: list[tuple[str, str, tuple[object, ...], StreamOptions]] = []

    async def open_exec(
        self, container_id: str, command: Sequence[str], streams: StreamOptions
    ) -> StreamAddress:
        await self.begin("open_exec", container_id)
        self._running("open_exec", container_id)
        self.streams.append(("exec", container_id, tuple(command), streams))
        return self.stream_address

    async def open_attach(self, container_id: str, streams: StreamOptions) -> StreamAddress:
        await self.begin("open_attach", container_id)
        self._running("open_attach", container_id)
        self.streams.append(("attach", container_id, (), streams))
        return self.stream_address

    async def open_port_forward(self, sandbox_id: str, ports: Sequence[int]) -> StreamAddress:
        await self.begin("open_port_forward", sandbox_id)
        self._ready(sandbox_id)
        self.streams.append(("portforward", sandbox_id, tuple(ports), StreamOptions()))
        return self.stream_address

    def _running(self, operation: str, container_id: str) -> None:
        """RuntimeCallError unless the container runs."""
        raise NotImplementedError

    def _ready(self, sandbox_id: str) -> None:
        """RuntimeCallError unless there is such a sandbox."""
        raise NotImplementedError
