"""A checkpoint of a running container: find it, name the archive, let the runtime write it.

Must not know HTTP or gRPC. Refusals are ApiErrors with the texts of the reference agent (server.go
`checkpoint`), those about concurrency with the texts of `archives.concurrency`.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from nodeagent.archives import archive_index, reports
from nodeagent.archives.bounds import Archive
from nodeagent.archives.concurrency import CheckpointSlots, ContainerRef
from nodeagent.archives.manifest import Manifest, archive_name
from nodeagent.archives.pruner import Pruner
from nodeagent.archives.reports import CheckpointCounts
from nodeagent.archives.store import CheckpointStore, NameTaken, StoreError
from nodeagent.archives.writable_layer import LayerUnmeasured
from nodeagent.freezer import ContainerThawer
from nodeagent.runtime.base import (
    ContainerRuntime,
    RuntimeCallError,
    RuntimeNotFound,
    RuntimeNotSupported,
    RuntimeTimeout,
    RuntimeUnavailable,
)
from orch.component.process import clock
from orch.component.process.clock import Now
from orch.wire import times
from orch.wire.errors import ApiError
from orch.wire.podrules.podspec import find_container
from orch.wire.records.meta import ObjectMeta
from orch.wire.records.pods import Pod, PodSpec
from orch.wire.validation import is_dns1123_label, is_dns1123_subdomain

log = logging.getLogger(__name__)

_INT64 = range(-(2**63), 2**63)
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_STOPPING_LIMIT_S = 2.0  # for a checkpoint cancelled because the agent is stopping
_NAME_ATTEMPTS = 3

# runc tries for a quarter of a second; on cgroup v1 a process that has used up its CPU quota
# freezes only when its next period begins. A quarter of the attempts failed at a quota of 5 %.
_NOT_FROZEN = "unable to freeze"
_FREEZE_ATTEMPTS = 6
_LONGEST_S = 86_400


class PodLookup(Protocol):
    """The part of the pod registry used here."""

    def find(self, namespace: str, name: str) -> Pod | None: ...
    def running_container(self, namespace: str, pod: str, container: str) -> str | None: ...


@dataclass(frozen=True, slots=True)
class CheckpointLimits:
    """`timeout_s` is the time given to the runtime where a request does not name another.

    `memory_of` and `layer_of` estimate an archive's size: the memory of the container of that id
    and the length of what it has written, in bytes. They block; `layer_of` raises LayerUnmeasured.
    """

    timeout_s: float = 120.0
    max_concurrent: int = 2
    memory_of: Callable[[str], int] = lambda _container_id: 0
    layer_of: Callable[[str], int] = lambda _container_id: 0


class CheckpointFailed(Exception):
    """The agent's own reason for the failure of a checkpoint."""


class CheckpointService:
    """Checkpoints of this node's containers; call `recover` once before the first."""

    def __init__(
        self,
        pods: PodLookup,
        runtime: ContainerRuntime,
        store: CheckpointStore,
        pruner: Pruner,
        *,
        thawer: ContainerThawer | None = None,
        limits: CheckpointLimits = CheckpointLimits(),
        now: Now = clock.utc_now,
    ) -> None:
        self._pods = pods
        self._runtime = runtime
        self._store = store
        self._pruner = pruner
        self._reports = pruner.reports
        self._thawer = thawer or ContainerThawer(runtime)
        self._slots = CheckpointSlots(limits.max_concurrent)
        self._limits = limits
        self._now = now
        self._frozen: set[str] = set()  # ids of containers being checkpointed
        self._recovering: set[str] = set()
        self._maybe_frozen: set[str] = set()
        self._runtime_version = ""

    async def checkpoint(
        self, namespace: str, pod: str, container: str, *, timeout: str = ""
    ) -> str:
        """The absolute path of a new archive of the running container.

        `timeout` is the raw query parameter: seconds, "" when absent. ApiError: 404 for unknown
        names and for a timeout that is not a number, 409 while the container is being checkpointed,
        429 while too many others are, 503 when the agent is stopping, 500 with the runtime's text
        when it failed.
        """
        target = ContainerRef(namespace, pod, container)
        known_pod = self._require_known(target)
        requested_s = _parse_timeout(timeout)
        with self._slots.acquire(target):
            loop = asyncio.get_running_loop()
            start_s = loop.time()
            try:
                manifest = await self._create_archive(target, known_pod, requested_s)
            except (RuntimeCallError, CheckpointFailed, StoreError, OSError) as error:
                reason = await asyncio.to_thread(reports.criu_reason, str(error))
                told = f"{error}; CRIU: {reason}" if reason else str(error)
                message = f"checkpointing of {target} failed ({told})"
                log.warning("%s", message)
                self._reports.failed(known_pod, message)
                raise ApiError(500, "InternalError", message) from error
            self._reports.created(known_pod, container, manifest.name, loop.time() - start_s)
            self._pruner.archive_created(manifest.name)
        return str(self._store.path / manifest.name)

    def _require_known(self, target: ContainerRef) -> Pod:
        valid = is_dns1123_label(target.namespace) and is_dns1123_subdomain(target.pod)
        pod = self._pods.find(target.namespace, target.pod) if valid else None
        if pod is None:
            raise ApiError(404, "NotFound", "pod does not exist")
        if not is_dns1123_label(target.container):  # not repeated in the answer or a log line
            raise ApiError(404, "NotFound", "container does not exist: not a container name")
        if find_container(pod, target.container) is None:
            raise ApiError(404, "NotFound", f"container {target.container} does not exist")
        return pod

    async def _create_archive(self, target: ContainerRef, pod: Pod, requested_s: int) -> Manifest:
        manifest = await self._prepare(target, pod, requested_s)
        container_id = manifest.container_id
        try:
            partial = await asyncio.to_thread(self._store.begin, container_id, manifest)
            limit_s = min(requested_s, _LONGEST_S) or self._limits.timeout_s
            await self._dump(manifest, partial, limit_s)
            manifest = await self._publish(target, manifest)
        finally:
            await self._discard(container_id)
        log.info("checkpoint of %s (container %s) is %s", target, container_id, manifest.name)
        return manifest

    async def _prepare(self, target: ContainerRef, pod: Pod, requested_s: int) -> Manifest:
        """The manifest of the new archive, for which there is room in the store."""
        container_id = self._pods.running_container(target.namespace, target.pod, target.container)
        if container_id is None:
            raise CheckpointFailed(f"container {target.container} not found")
        if container_id in self._recovering:
            raise self._slots.conflict(target)
        if requested_s < 0:
            raise CheckpointFailed("CheckpointContainer requires the timeout value to be > 0")
        if await self._frozen_by_others(container_id):  # a failure would resume it
            raise CheckpointFailed(
                "the container is paused, or another client is checkpointing it; "
                "retry when it is running"
            )
        manifest = self._new_manifest(target, pod, container_id)
        self._store.check_name(manifest.name)
        size = await asyncio.to_thread(self._limits.memory_of, container_id)
        size += await self._layer_bytes(container_id)
        expected = Archive(manifest.name, size, self._now(), manifest=manifest)
        await self._pruner.make_room(expected, size * self._store.copies)
        return manifest

    async def _layer_bytes(self, container_id: str) -> int:
        try:
            return await asyncio.to_thread(self._limits.layer_of, container_id)
        except LayerUnmeasured as error:
            text = f"what the container has written below its root cannot be measured: {error}"
            raise CheckpointFailed(text) from error

    async def _frozen_by_others(self, container_id: str) -> bool:
        """Whether it is frozen, after another attempt to thaw it if an earlier checkpoint did."""
        if container_id in self._maybe_frozen:
            await self._thawer.ensure_running(container_id, settled=True)
        frozen = await self._thawer.is_frozen(container_id)
        if frozen is False:
            self._maybe_frozen.discard(container_id)
        return bool(frozen)

    def _new_manifest(self, target: ContainerRef, pod: Pod, container_id: str) -> Manifest:
        spec = find_container(pod, target.container)
        return self._named(
            target,
            Manifest(
                name="",
                namespace=target.namespace,
                pod=target.pod,
                uid=pod.metadata.uid or "",
                container=target.container,
                container_id=container_id,
                image=(spec.image or "") if spec else "",
            ),
        )

    def _named(self, target: ContainerRef, manifest: Manifest) -> Manifest:
        moment = self._now()
        name = archive_name(target.namespace, target.pod, target.container, moment)
        created = times.format_time(moment)
        return replace(manifest, name=name + self._store.suffix, created=created)

    async def _dump(self, manifest: Manifest, location: str, timeout_s: float) -> None:
        """Let the runtime write the archive; the container runs afterwards in any case."""
        container_id = manifest.container_id
        self._frozen.add(container_id)
        try:
            await self._call_runtime(container_id, location, timeout_s)
        except (RuntimeNotSupported, RuntimeNotFound):
            raise
        except (RuntimeCallError, asyncio.CancelledError) as error:
            self._maybe_frozen.add(container_id)
            await self._thaw_after(error, manifest)
            raise
        else:
            self._maybe_frozen.discard(container_id)
        finally:
            self._frozen.discard(container_id)

    async def _call_runtime(self, container_id: str, location: str, timeout_s: float) -> None:
        """Call the runtime, again while the container is only too busy to be frozen."""
        loop = asyncio.get_running_loop()
        due_s = loop.time() + timeout_s
        for attempt in range(1, _FREEZE_ATTEMPTS + 1):
            try:
                await self._runtime.checkpoint_container(
                    container_id, location=location, timeout_s=timeout_s
                )
            except RuntimeCallError as error:
                if _NOT_FROZEN not in str(error) or attempt == _FREEZE_ATTEMPTS:
                    raise
                if (timeout_s := due_s - loop.time()) <= 0:
                    raise
                log.debug("container %s was not frozen in attempt %d", container_id, attempt)
            else:
                return

    async def _thaw_after(self, error: BaseException, manifest: Manifest) -> None:
        container_id = manifest.container_id
        if isinstance(error, asyncio.CancelledError):
            thawed = await self._thawer.ensure_running(container_id, limit_s=_STOPPING_LIMIT_S)
        else:
            unfinished = isinstance(error, RuntimeTimeout | RuntimeUnavailable)
            thawed = await self._thawer.ensure_running(container_id, settled=not unfinished)
        if await self._thawer.is_frozen(container_id) is False:
            self._maybe_frozen.discard(container_id)
        if thawed:
            self._reports.thawed(_pod_of(manifest), manifest.container)

    async def _publish(self, target: ContainerRef, manifest: Manifest) -> Manifest:
        """Give the archive its name, or if that exists, the name of the next second."""
        digest = await asyncio.to_thread(self._store.seal, manifest.container_id)
        manifest = replace(
            manifest,
            runtime=await self._runtime_name(),
            size_bytes=digest.size_bytes,
            sha256=digest.sha256,
            encryption=self._store.suffix.lstrip("."),
        )
        for _ in range(_NAME_ATTEMPTS):
            try:
                await asyncio.to_thread(self._store.publish, manifest.container_id, manifest)
                return manifest
            except NameTaken:
                await asyncio.sleep(1 - self._now().microsecond / 1e6)
                manifest = self._named(target, manifest)
        raise CheckpointFailed(f"an archive named {manifest.name} exists already")

    async def _runtime_name(self) -> str:
        """The runtime's name and version, cached; "" when it does not answer."""
        if not self._runtime_version:
            try:
                version = await self._runtime.version()
                self._runtime_version = f"{version.name} {version.version}"
            except RuntimeCallError as error:
                log.debug("the manifest does not name the runtime: %s", error)
        return self._runtime_version

    async def _discard(self, container_id: str) -> None:
        """Remove the hidden files; a failure to do so does not fail the checkpoint."""
        keep_marker = container_id in self._maybe_frozen  # the next agent has to thaw it
        try:
            await asyncio.to_thread(self._store.discard, container_id, keep_marker=keep_marker)
        except (StoreError, OSError) as error:
            text = "files of the checkpoint of container %s remain until the next start: %s"
            log.error(text, container_id, error)

    async def list_archives(self) -> list[dict[str, Any]]:
        """Every archive, oldest first, as JSON. ApiError 500 when the store cannot be used."""
        directory = str(self._store.path)
        return [archive_index.record_of(archive, directory) for archive in await self.archives()]

    @property
    def counts(self) -> CheckpointCounts:
        """Of this agent's checkpoints."""
        return self._reports.counts

    async def archives(self) -> tuple[Archive, ...]:
        """Every archive, oldest first. ApiError 500 when the store cannot be used."""
        try:
            return await asyncio.to_thread(self._pruner.index.archives)
        except (StoreError, OSError) as error:
            raise ApiError(500, "InternalError", f"cannot list checkpoints: {error}") from error

    def is_busy(self, container_id: str) -> bool:
        """Whether a container is being checkpointed, or recovered after a checkpoint."""
        return container_id in self._frozen or container_id in self._recovering

    def is_frozen(self, container_id: str) -> bool:
        """Whether a container is being checkpointed, and cannot answer its probes."""
        return container_id in self._frozen

    async def recover(self) -> None:
        """Remove what interrupted checkpoints of an earlier agent left, and thaw their containers.

        Takes up to 15 s when there are such containers and the runtime does not answer. Errors are
        logged; the next checkpoint of a container, or the next agent, tries again to thaw it.
        """
        try:
            interrupted = await asyncio.to_thread(self._store.prepare)
        except (StoreError, OSError) as error:
            log.error("checkpoints cannot be stored: %s", error)
            return
        except Exception:
            log.exception("looking for interrupted checkpoints failed unexpectedly")
            return
        self._recovering.update(interrupted)
        await asyncio.gather(*(self._recover(*entry) for entry in interrupted.items()))

    async def _recover(self, container_id: str, manifest: Manifest) -> None:
        log.warning(
            "the node agent exited while checkpointing container %s (%s): no archive was created",
            container_id,
            f"{manifest.namespace}/{manifest.pod}/{manifest.container}",
        )
        try:
            if await self._thawer.ensure_running(container_id):
                self._reports.thawed(_pod_of(manifest), manifest.container)
            await self._discard(container_id)
        except Exception:
            self._maybe_frozen.add(container_id)
            log.exception("thawing container %s failed unexpectedly", container_id)
        finally:
            self._recovering.discard(container_id)

    async def close(self) -> None:
        """Cancel all checkpoints and thaw their containers; takes some seconds at most."""
        await self._slots.close()


def _pod_of(manifest: Manifest) -> Pod:
    """The pod as far as an event needs it: the registry may not know it."""
    meta = ObjectMeta(name=manifest.pod, namespace=manifest.namespace, uid=manifest.uid)
    return Pod(metadata=meta, spec=PodSpec(containers=[]))


def _parse_timeout(text: str) -> int:
    """Seconds, 0 for ""; anything but a 64-bit integer is a 404, as in the reference agent."""
    if not text:
        return 0
    if not _INTEGER.fullmatch(text) or int(text) not in _INT64:
        raise ApiError(404, "NotFound", "cannot parse value of timeout parameter")
    return int(text)
