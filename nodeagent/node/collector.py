"""Collects the facts of the Node object: machine, latest sample, runtime, images, addresses.

The adapter between the measuring components and the pure functions of `node.rules`. Calls that may
hang (name lookup, the runtime's image list) have a deadline and fall back to the last answer;
nothing here delays or fails the status.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from nodeagent.node.rules import addresses, contention
from nodeagent.node.rules.addresses import Candidates
from nodeagent.node.rules.facts import (
    AddressFacts,
    DeviceFacts,
    FilesystemFacts,
    ImageFacts,
    MachineFacts,
    NodeFacts,
    UsageFacts,
)
from nodeagent.runtime import verdict
from nodeagent.runtime.base import ContainerRuntime, RuntimeCallError
from nodeagent.runtime.isolation import RuntimeFeatures
from nodeagent.runtime.verdict import RuntimeHealth
from nodeagent.stats.host.machine import HostFacts
from nodeagent.stats.samples import FsSample, Sample
from orch.client.resolver import Resolver
from orch.component.process.once_log import OnceLog

log = logging.getLogger(__name__)

_REFRESH_S = 60.0  # images and addresses
_DEADLINE_S = 5.0
_ELSEWHERE = (("192.0.2.1", socket.AF_INET), ("2001:db8::1", socket.AF_INET6))


class Readings(Protocol):
    """Implemented by `stats.sampler.Sampler`."""

    latest: Sample | None

    async def fresh(self) -> Sample: ...


class Watch(Protocol):
    """Implemented by `runtime.health.RuntimeWatch`."""

    @property
    def health(self) -> RuntimeHealth: ...

    async def known(self) -> None: ...


class ProblemSource(Protocol):
    """A component that may report why the node is not Ready."""

    def problems(self) -> Sequence[str]: ...


class FactsCollector:
    """`problem_sources` report problems besides those of the runtime.

    `store_excess` returns by how many bytes checkpoints exceed their limits; None: not measured.
    `devices` returns what device plugins list.
    """

    def __init__(
        self,
        machine: MachineFacts,
        sampler: Readings,
        watch: Watch,
        *,
        node_ip: str = "",
        runtime: ContainerRuntime | None = None,
        problem_sources: Sequence[ProblemSource] = (),
        store_excess: Callable[[], int | None] = lambda: None,
        devices: Callable[[], DeviceFacts] = DeviceFacts,
    ) -> None:
        self._machine = machine
        self._node_ip = node_ip
        self._sampler = sampler
        self._watch = watch
        self._runtime = runtime
        self._problem_sources = problem_sources
        self._store_excess = store_excess
        self._devices = devices
        self._resolver = Resolver()
        self._images: tuple[ImageFacts, ...] = ()
        self._features: RuntimeFeatures | None = None
        self._addresses: tuple[AddressFacts, ...] | None = None
        self._refresh_due_s = 0.0
        self._unresolved = OnceLog(log, logging.INFO)

    async def collect(self) -> NodeFacts:
        """The current facts; images and addresses may be a minute old."""
        now_s = asyncio.get_running_loop().time()
        health = self._watch.health
        if now_s >= self._refresh_due_s or self._addresses is None:
            await self._refresh_addresses()
            if await self._refresh_runtime(health, now_s):
                self._refresh_due_s = now_s + _REFRESH_S
        return NodeFacts(
            time_s=asyncio.get_running_loop().time(),
            machine=self._machine,
            usage=usage_facts(self._sampler.latest, self._store_excess()),
            runtime=health,
            features=self._features,
            images=self._images,
            addresses=self._addresses or (),
            devices=self._devices(),
            problems=tuple(text for source in self._problem_sources for text in source.problems()),
        )

    async def settled(self) -> None:
        """Wait, with a limit, until runtime and machine have been observed once."""
        await self._watch.known()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(verdict.DOWN_AFTER_S):
                await self._sampler.fresh()

    async def _refresh_addresses(self) -> None:
        hostname = self._machine.hostname
        resolved: tuple[str, ...] = ()
        if not self._node_ip:
            try:
                async with asyncio.timeout(_DEADLINE_S):
                    resolved = await self._own_addresses(hostname)
            except (OSError, TimeoutError) as error:
                used = "unchanged" if self._addresses else "that of the default route"
                cause = str(error) or "no answer"
                self._unresolved.failed(
                    "the host name %s does not resolve (%s): the node's address is %s",
                    hostname, cause, used, cause=cause,
                )  # fmt: skip
                if self._addresses:
                    return
            else:
                self._unresolved.recovered()
        candidates = Candidates(hostname, self._node_ip, resolved, default_route_address())
        self._addresses = addresses.choose(candidates)

    async def _own_addresses(self, hostname: str) -> tuple[str, ...]:
        """The addresses of the name that belong to this machine."""
        found = await self._resolver.resolve(hostname, family=socket.AF_UNSPEC)
        local = (a["host"] for a in found if is_local(a["family"], a["host"]))
        return tuple(dict.fromkeys(local))

    async def _refresh_runtime(self, health: RuntimeHealth, now_s: float) -> bool:
        """False before the runtime's first answer: retry in the next round."""
        if self._runtime is None or verdict.is_down(health, now_s):
            return True
        if health.last_good_s is None:
            return False
        try:
            async with asyncio.timeout(_DEADLINE_S):
                self._features = await self._runtime.features()
                images = await self._runtime.images()
        except (RuntimeCallError, TimeoutError) as error:
            log.debug("what the runtime has is not updated: %s", error)
        else:
            self._images = tuple(
                ImageFacts((*image.digests, *image.tags), image.size_bytes) for image in images
            )
        return True


def machine_facts(
    host: HostFacts, *, hostname: str = "", hugepages_bytes: Mapping[int, int] | None = None
) -> MachineFacts:
    """`hostname` overrides the machine's own (--hostname-override)."""
    return MachineFacts(
        cpu_count=host.cpu_count,
        memory_bytes=host.memory_bytes,
        hostname=hostname or host.hostname,
        architecture=host.architecture,
        operating_system=host.operating_system,
        kernel_version=host.kernel_version,
        os_image=host.os_image,
        machine_id=host.machine_id,
        system_uuid=host.system_uuid,
        boot_id=host.boot_id,
        swap_bytes=host.swap_bytes,
        hugepages_bytes=hugepages_bytes or {},
    )


def usage_facts(sample: Sample | None, store_excess: int | None = None) -> UsageFacts:
    """Available memory is what is not in the working set of the whole machine."""
    if sample is None:
        return UsageFacts(checkpoint_excess_bytes=store_excess)
    node = sample.node
    memory = node.cgroup.memory if node.cgroup else None
    working_set = memory.working_set_bytes if memory else None
    known = working_set is not None and node.memory_bytes > 0
    return UsageFacts(
        memory_available_bytes=max(0, node.memory_bytes - (working_set or 0)) if known else None,
        memory_working_set_bytes=working_set,
        node_fs=_filesystem_facts(node.fs),
        image_fs=_filesystem_facts(node.image_fs),
        pids_in_use=node.rlimit.running if node.rlimit else None,
        pids_max=node.rlimit.max_pids if node.rlimit else None,
        checkpoint_excess_bytes=store_excess,
        stalls=contention.stalls(sample),
    )


def _filesystem_facts(fs: FsSample | None) -> FilesystemFacts:
    if fs is None:
        return FilesystemFacts()
    return FilesystemFacts(fs.available_bytes, fs.capacity_bytes, fs.inodes_free, fs.inodes)


def is_local(family: int, address: str) -> bool:
    """Whether this machine has the address."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def default_route_address() -> str | None:
    """The source address of packets to other networks; sends nothing. None without a route."""
    for target, family in _ELSEWHERE:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((target, 9))
                return str(probe.getsockname()[0])
        except OSError:
            continue
    return None
