"""A checkpoint of a running container: find it, name the archive, let the runtime write it.

Knows neither HTTP nor gRPC; what is refused is an ApiError with the texts of the reference agent
(server.go `checkpoint`), what is busy with those of `turns`.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from nodeagent.archives import archive_index
from nodeagent.archives.bounds import Archive
from nodeagent.archives.concurrency import Target, Turns
from nodeagent.archives.manifest import Manifest, archive_name
from nodeagent.archives.pruner import Pruner
from nodeagent.archives.store import CheckpointStore, NameTaken, StoreError
from nodeagent.freezer import Reviver
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
_STOPPING_LIMIT_S = 2.0  # for a checkpoint broken off because the agent ends
_NAME_ATTEMPTS = 3

# runc tries for a quarter of a second; on cgroup v1 a process that has used up its CPU quota
# freezes only when its next period begins. One try in four failed for a container held to 5 %.
_NOT_FROZEN = "unable to freeze"
_FREEZE_ATTEMPTS = 6


class PodDirectory(Protocol):
    """What is asked of the pod registry."""

    def find(self, namespace: str, name: str) -> Pod | None: ...
    def running_container(self, namespace: str, pod: str, container: str) -> str | None: ...


@dataclass(frozen=True, slots=True)
class CheckpointLimits:
    """`timeout_s` is the runtime's default for a call; a request may ask for more, not for less.

    `memory_of` guesses an archive's size: what the container of that id has in memory, in bytes.
    """

    timeout_s: float = 120.0
    max_concurrent: int = 2
    memory_of: Callable[[str], int] = lambda _container_id: 0


class CheckpointFailed(Exception):
    """The agent's own reason for a checkpoint that failed after it was found possible."""


class CheckpointService:
    """Checkpoints of this node's containers; `recover` is called once, before the first."""

    def __init__(
        self,
        pods: PodDirectory,
        runtime: ContainerRuntime,
        store: CheckpointStore,
        pruner: Pruner,
        *,
        reviver: Reviver | None = None,
        limits: CheckpointLimits = CheckpointLimits(),
        now: Now = clock.utc_now,
    ) -> None:
        self._pods = pods
        self._runtime = runtime
        self._store = store
        self._pruner = pruner
        self._reports = pruner.reports
        self._reviver = reviver or Reviver(runtime)
        self._turns = Turns(limits.max_concurrent)
        self._limits = limits
        self._now = now
        self._frozen: set[str] = set()  # ids of containers that the runtime checkpoints just now
        self._recovering: set[str] = set()
        self._maybe_frozen: set[str] = set()
        self._runtime_version = ""

    async def recover(self) -> None:
        """Tidy up after an agent that ended during a checkpoint, and free its containers.

        Takes up to 15 s when there were such containers and the runtime does not answer. A store
        that cannot be used is logged; every checkpoint will say so too. So is a defect, and the
        next checkpoint of its container, or the next agent, tries again to free it.
        """
        try:
            interrupted = await asyncio.to_thread(self._store.prepare)
        except (StoreError, OSError) as error:
            log.error("checkpoints cannot be stored: %s", error)
            return
        except Exception:
            log.exception("looking for checkpoints that were broken off failed unexpectedly")
            return
        self._recovering.update(interrupted)
        await asyncio.gather(*(self._recover_one(*one) for one in interrupted.items()))

    async def _recover_one(self, container_id: str, manifest: Manifest) -> None:
        log.warning(
            "the node agent ended while container %s (%s) was checkpointed: no archive was made",
            container_id,
            f"{manifest.namespace}/{manifest.pod}/{manifest.container}",
        )
        try:
            if await self._reviver.revive(container_id):
                self._reports.thawed(_pod_of(manifest), manifest.container)
            await self._discard(container_id)
        except Exception:
            self._maybe_frozen.add(container_id)
            log.exception("freeing container %s failed unexpectedly", container_id)
        finally:
            self._recovering.discard(container_id)

    async def listing(self) -> list[dict[str, Any]]:
        """Every archive, oldest first, as JSON. ApiError 500 when the store cannot be used."""
        try:
            archives = await asyncio.to_thread(self._pruner.shelf.archives)
        except (StoreError, OSError) as error:
            raise ApiError(500, "InternalError", f"cannot list checkpoints: {error}") from error
        return [archive_index.record_of(archive, str(self._store.path)) for archive in archives]

    def is_busy(self, container_id: str) -> bool:
        """Whether a container is being checkpointed, or freed after a checkpoint, just now."""
        return container_id in self._frozen or container_id in self._recovering

    def is_frozen(self, container_id: str) -> bool:
        """Whether a container is being checkpointed just now, and cannot answer its probes."""
        return container_id in self._frozen

    async def close(self) -> None:
        """Break off what is under way and free its containers; takes some seconds at most."""
        await self._turns.close()

    async def checkpoint(
        self, namespace: str, pod: str, container: str, *, timeout: str = ""
    ) -> str:
        """The absolute path of a new archive of the running container.

        `timeout` is the query parameter as it came: seconds, "" when there is none. ApiError: 404
        for names that do not exist and for a timeout that is no number, 409 while the container is
        being checkpointed, 429 while enough others are, 503 when the agent is stopping, 500 with
        the runtime's text when it failed.
        """
        target = Target(namespace, pod, container)
        known = self._require_known(target)
        asked_s = _parse_timeout(timeout)
        with self._turns.take(target):
            began_s = asyncio.get_running_loop().time()
            try:
                manifest = await self._archive(target, known, asked_s)
            except (RuntimeCallError, CheckpointFailed, StoreError, OSError) as error:
                message = f"checkpointing of {target} failed ({error})"
                log.warning("%s", message)
                self._reports.failed(known, message)
                raise ApiError(500, "InternalError", message) from error
            self._reports.made(known, container, manifest.name, began_s)
            self._pruner.made(manifest.name)
        return str(self._store.path / manifest.name)

    def _require_known(self, target: Target) -> Pod:
        named = is_dns1123_label(target.namespace) and is_dns1123_subdomain(target.pod)
        pod = self._pods.find(target.namespace, target.pod) if named else None
        if pod is None:
            raise ApiError(404, "NotFound", "pod does not exist")
        if not is_dns1123_label(target.container):  # not repeated in the answer or a log line
            raise ApiError(404, "NotFound", "container does not exist: not a container name")
        if find_container(pod, target.container) is None:
            raise ApiError(404, "NotFound", f"container {target.container} does not exist")
        return pod

    async def _archive(self, target: Target, pod: Pod, asked_s: int) -> Manifest:
        container_id = self._pods.running_container(target.namespace, target.pod, target.container)
        if container_id is None:
            raise CheckpointFailed(f"container {target.container} not found")
        if container_id in self._recovering:
            raise self._turns.busy(target)
        if asked_s < 0:
            raise CheckpointFailed("CheckpointContainer requires the timeout value to be > 0")
        if await self._frozen_by_others(container_id):  # else a failure would let it run on
            raise CheckpointFailed(
                "the container is paused, or somebody else is checkpointing it; "
                "try again when it runs"
            )
        manifest = self._manifest(target, pod, container_id)
        self._store.check_name(manifest.name)
        expected = self._expected(manifest)
        await self._pruner.make_room(expected, expected.size_bytes * self._store.copies)
        try:
            partial = await asyncio.to_thread(self._store.begin, container_id, manifest)
            await self._dump(manifest, partial, max(float(asked_s), self._limits.timeout_s))
            manifest = await self._publish(target, manifest)
        finally:
            await self._discard(container_id)
        log.info("checkpoint of %s (container %s) is %s", target, container_id, manifest.name)
        return manifest

    async def _discard(self, container_id: str) -> None:
        """Remove what is left of a checkpoint; that it stays is no failure of an archive made."""
        frozen = container_id in self._maybe_frozen  # then the next agent has to look after it
        try:
            await asyncio.to_thread(self._store.discard, container_id, keep_marker=frozen)
        except (StoreError, OSError) as error:
            text = "what is left of the checkpoint of container %s stays until the next start: %s"
            log.error(text, container_id, error)

    async def _frozen_by_others(self, container_id: str) -> bool:
        """Whether it is seen frozen; what an earlier checkpoint of ours left so is tried again."""
        if container_id in self._maybe_frozen:
            await self._reviver.revive(container_id, settled=True)
        frozen = await self._reviver.is_frozen(container_id)
        if frozen is False:
            self._maybe_frozen.discard(container_id)
        return bool(frozen)

    def _manifest(self, target: Target, pod: Pod, container_id: str) -> Manifest:
        """What is known of the archive before it is made."""
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

    def _named(self, target: Target, manifest: Manifest) -> Manifest:
        moment = self._now()
        name = archive_name(target.namespace, target.pod, target.container, moment)
        created = times.format_time(moment)
        return replace(manifest, name=name + self._store.suffix, created=created)

    def _expected(self, manifest: Manifest) -> Archive:
        size = self._limits.memory_of(manifest.container_id)
        return Archive(manifest.name, size, self._now(), manifest=manifest)

    async def _dump(self, manifest: Manifest, location: str, timeout_s: float) -> None:
        """Let the runtime write the archive; whatever happens, the container runs afterwards."""
        container_id = manifest.container_id
        self._frozen.add(container_id)
        try:
            await self._call(container_id, location, timeout_s)
        except (RuntimeNotSupported, RuntimeNotFound):
            raise
        except (RuntimeCallError, asyncio.CancelledError) as error:
            self._maybe_frozen.add(container_id)
            if isinstance(error, asyncio.CancelledError):
                freed = await self._reviver.revive(container_id, limit_s=_STOPPING_LIMIT_S)
            else:
                cut_off = isinstance(error, RuntimeTimeout | RuntimeUnavailable)
                freed = await self._reviver.revive(container_id, settled=not cut_off)
            if await self._reviver.is_frozen(container_id) is False:
                self._maybe_frozen.discard(container_id)
            if freed:
                self._reports.thawed(_pod_of(manifest), manifest.container)
            raise
        else:
            self._maybe_frozen.discard(container_id)
        finally:
            self._frozen.discard(container_id)

    async def _call(self, container_id: str, location: str, timeout_s: float) -> None:
        """Ask the runtime, again when the container was only too busy to be frozen."""
        for attempt in range(1, _FREEZE_ATTEMPTS + 1):
            try:
                await self._runtime.checkpoint_container(
                    container_id, location=location, timeout_s=timeout_s
                )
            except RuntimeCallError as error:
                if _NOT_FROZEN not in str(error) or attempt == _FREEZE_ATTEMPTS:
                    raise
                log.debug("container %s was not frozen in try %d", container_id, attempt)
            else:
                return

    async def _publish(self, target: Target, manifest: Manifest) -> Manifest:
        """Give the archive its name; when that is taken, the name of the next second."""
        sealed = await asyncio.to_thread(self._store.seal, manifest.container_id)
        manifest = replace(
            manifest,
            runtime=await self._runtime_named(),
            size_bytes=sealed.size_bytes,
            sha256=sealed.sha256,
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

    async def _runtime_named(self) -> str:
        """The runtime's name and version, asked once; "" when it does not say."""
        if not self._runtime_version:
            try:
                version = await self._runtime.version()
                self._runtime_version = f"{version.name} {version.version}"
            except RuntimeCallError as error:
                log.debug("the manifest does not name the runtime: %s", error)
        return self._runtime_version


def _pod_of(manifest: Manifest) -> Pod:
    """The pod as far as an event needs it: it may not be known yet, or not any more."""
    meta = ObjectMeta(name=manifest.pod, namespace=manifest.namespace, uid=manifest.uid)
    return Pod(metadata=meta, spec=PodSpec(containers=[]))


def _parse_timeout(text: str) -> int:
    """Seconds, 0 for ""; what is no 64-bit integer is a 404, as in the reference agent."""
    if not text:
        return 0
    if not _INTEGER.fullmatch(text) or int(text) not in _INT64:
        raise ApiError(404, "NotFound", "cannot parse value of timeout parameter")
    return int(text)
