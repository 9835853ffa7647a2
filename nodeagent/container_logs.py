"""`GET /containerLogs/{namespace}/{pod}/{container}`: streams a container's log, optionally live.

Answers as the reference agent does: 404 for unknown names, 400 for a container without a log, else
text in chunks. Files are read in worker threads. Must not know the log format (`pods.logs.reader`).
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import AsyncIterator

from aiohttp import web

from nodeagent.pods.logs import reader
from nodeagent.pods.logs.reader import LogFile, LogFilter, LogOptions
from nodeagent.pods.registry import PodRegistry
from nodeagent.runtime.base import ContainerDetail, ContainerState
from orch.component.http.connection import allow_pauses
from orch.component.http.fair_queue import ANY_TIME_S, Bounds, Turns
from orch.component.process import clock
from orch.component.process.clock import Now
from orch.wire.errors import ApiError, bad_request
from orch.wire.podrules.podspec import container_statuses, find_container
from orch.wire.records.pods import Pod

log = logging.getLogger(__name__)

FOLLOW_INTERVAL_S = 0.25
_GOING_ON = (ContainerState.CREATED, ContainerState.RUNNING)
_LOOKS_PER_S = 400  # of all followers: hundreds of them must not cost the agent's processor time
_LEAST_PAUSE_S = 0.004  # timers are a millisecond late, which is longer than most pieces take


def follow_interval_s(followers: int) -> float:
    """How long each of so many waits before it looks for more."""
    return max(FOLLOW_INTERVAL_S, followers / _LOOKS_PER_S)


class ContainerLogs:
    """The handler, registered by `add_to`."""

    def __init__(self, registry: PodRegistry, *, now: Now = clock.utc_now) -> None:
        self._registry = registry
        self._now = now
        self._followers = 0
        self._turns = Turns(Bounds(seats=1, wait_s=ANY_TIME_S))
        self._owed_s = 0.0  # of pauses

    def add_to(self, app: web.Application) -> None:
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self.handle)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        names = request.match_info
        options = reader.parse_options(request.query, now=self._now())
        pod = self._registry.find(names["namespace"], names["pod"])
        if pod is None:
            raise ApiError(404, "NotFound", f'pod "{names["pod"]}" does not exist')
        detail = self._instance(pod, names["container"], options)
        file = await self._open(request, pod, detail, wait=options.follow)
        response = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8"})
        response.enable_chunked_encoding()
        allow_pauses(request)
        self._followers += options.follow
        try:
            await response.prepare(request)
            async for piece in self._pieces(file, options, pod, detail):
                if _has_left(request):
                    break
                if piece:
                    await response.write(piece)
            await response.write_eof()
        except ConnectionError:
            log.debug("the client reading the log of %s disconnected", pod.key)
        finally:
            self._followers -= options.follow
            file.close()  # at once: a cancelled handler cannot wait for a thread
        return response

    def _instance(self, pod: Pod, container: str, options: LogOptions) -> ContainerDetail:
        """The instance whose log is requested; ApiError when there is none."""
        name = pod.metadata.name
        if find_container(pod, container) is None:
            raise ApiError(404, "NotFound", f'container "{container}" not found in pod "{name}"')
        found = self._registry.view(pod.metadata.uid or "").instances(container)
        found = tuple(instance for instance in found if instance.log_path)
        if options.previous:
            if len(found) < 2:
                raise bad_request(
                    f'previous terminated container "{container}" in pod "{name}" not found'
                )
            return found[1]
        if not found:
            reason = _waiting_reason(pod, container)
            raise bad_request(
                f'container "{container}" in pod "{name}" is waiting to start: {reason}'
            )
        return found[0]

    async def _open(
        self, request: web.Request, pod: Pod, detail: ContainerDetail, *, wait: bool
    ) -> LogFile:
        """The log, which some runtimes make only when the container starts."""
        while True:
            is_early = self._state(pod, detail) is ContainerState.CREATED
            try:
                return await asyncio.to_thread(LogFile, detail.log_path)
            except OSError as error:
                may_come = is_early and error.errno == errno.ENOENT
                if not (wait and may_come) or _has_left(request):
                    text = f"cannot open the log {detail.log_path}: {error.strerror}"
                    raise bad_request(text) from None
            await asyncio.sleep(FOLLOW_INTERVAL_S)

    async def _pieces(
        self, file: LogFile, options: LogOptions, pod: Pod, detail: ContainerDetail
    ) -> AsyncIterator[bytes]:
        """The log in pieces; an empty piece while waiting for more."""
        if options.tail_lines is not None:
            await asyncio.to_thread(file.seek_tail, options.tail_lines)
        shown = LogFilter(options)
        while not shown.full:
            ended = not options.follow or self._state(pod, detail) not in _GOING_ON
            data = await asyncio.to_thread(file.read)
            if data:
                yield await self._filtered(shown, data, pod.metadata.namespace)
            elif ended:
                return
            else:
                yield b""
                await asyncio.sleep(follow_interval_s(self._followers))

    async def _filtered(self, shown: LogFilter, data: bytes, namespace: str | None) -> bytes:
        """What of a piece is shown; that takes half of the loop's time, the namespaces in turn."""
        loop = asyncio.get_running_loop()
        async with self._turns.hold(namespace):
            began_s = loop.time()
            text = shown.feed(data)
            self._owed_s += loop.time() - began_s
            if self._owed_s > _LEAST_PAUSE_S:
                pause_s, self._owed_s = self._owed_s, 0.0
                await asyncio.sleep(pause_s)
        return text

    def _state(self, pod: Pod, detail: ContainerDetail) -> ContainerState | None:
        """None when it is no longer the newest instance."""
        latest = self._registry.view(pod.metadata.uid or "").latest(detail.container.name)
        is_same = latest is not None and latest.container.id == detail.container.id
        return latest.container.state if latest and is_same else None


def _has_left(request: web.Request) -> bool:
    """Whether the client has disconnected, which only a write would show."""
    return request.transport is None or request.transport.is_closing()


def _waiting_reason(pod: Pod, container: str) -> str:
    for status in container_statuses(pod.status):
        if status.name == container and status.state and status.state.waiting:
            return status.state.waiting.reason or "ContainerCreating"
    return "ContainerCreating"
