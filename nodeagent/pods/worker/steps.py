"""Performs one planned action on the runtime and the host.

Every action can be repeated: what already exists is recognised. Afterwards the PLEG refreshes what
the action touched, so that the next plan sees it. Failures become StepFailed with the waiting
reason; RuntimeUnavailable passes through. A pod's directories and cgroups are removed once the
runtime holds nothing of it any more.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from functools import partial
from pathlib import Path

from nodeagent import descriptors
from nodeagent.pods.actions import (
    Action,
    CreateSandbox,
    RemoveContainer,
    RemoveSandbox,
    ResizePod,
    StartContainer,
    StopContainers,
    StopSandbox,
)
from nodeagent.pods.backoff import StepFailed, failing_as
from nodeagent.pods.cgroups.pod_cgroups import CgroupError
from nodeagent.pods.decide import plan
from nodeagent.pods.logs import rotation
from nodeagent.pods.observed import ObservedPod
from nodeagent.pods.sources import manifests
from nodeagent.pods.spec import dns, isolation
from nodeagent.pods.spec.env import SpecError
from nodeagent.pods.volumes import directories
from nodeagent.pods.volumes.volumes import VolumeError
from nodeagent.pods.worker.resizing import Resizing
from nodeagent.pods.worker.services import PodServices
from nodeagent.pods.worker.starting import Starting
from nodeagent.pods.worker.stopping import Stopping
from nodeagent.runtime.base import SandboxSpec
from orch.component.process import loops
from orch.wire.podrules import podspec
from orch.wire.records.pods import Pod

_RESOLVER_MAX_BYTES = 1 << 20


class Steps:
    """The steps of one pod; `pod` is None for an orphan that only the runtime knows."""

    def __init__(self, uid: str, services: PodServices) -> None:
        self._uid = uid
        self._services = services
        self._runtime = services.runtime
        self._starting = Starting(uid, services)
        self._stopping = Stopping(uid, services)
        self.resizing = Resizing(uid, services)

    @property
    def pulled_s(self) -> float:
        """Total time spent on pulling the pod's images."""
        return self._starting.pulled_s

    async def perform(self, action: Action, pod: Pod | None, seen: ObservedPod) -> None:
        """StepFailed, RuntimeUnavailable."""
        match action:
            case CreateSandbox() if pod:
                await self._create_sandbox(action, pod)
            case StartContainer() if pod:
                await self._starting.start(action, pod, seen)
            case StopContainers():
                if action.for_resize:
                    await self._services.sizes.note(seen, restarting=action.ids)
                await self._stopping.stop(action, pod, seen)
            case ResizePod() if pod:
                await self.resizing.resize(action, pod, seen)
            case StopSandbox():
                await self._stop_sandbox(action.sandbox_id, seen)
            case RemoveContainer():
                await self._remove_container(action.container_id, seen)
            case RemoveSandbox():
                await self._remove_sandbox(action.sandbox_id, seen)

    async def _create_sandbox(self, action: CreateSandbox, pod: Pod) -> None:
        handler = await self._isolated_by(pod)
        wanted = replace(await self._specify_sandbox(action, pod), runtime_handler=handler)
        try:
            await self._services.volumes.prepare(pod, await self._services.projected_data(pod))
            make_logs = partial(directories.make, Path(wanted.log_directory), unlinked=1)
            await loops.finish_in_thread(make_logs, name="log directory")
        except (VolumeError, OSError) as error:
            raise StepFailed(plan.SANDBOX, "FailedMount", str(error)) from error
        await self._services.cgroups.ensure(pod)
        async with failing_as("FailedCreatePodSandBox"):
            if action.replaces:
                text = "Pod sandbox changed, it will be killed and re-created."
                self._services.events.normal(pod, "SandboxChanged", text)
                await self._runtime.stop_sandbox(action.replaces)
            sandbox_id = await self._runtime.run_sandbox(wanted)
            await self._services.pleg.refresh(self._uid, sandboxes=(sandbox_id,))
        if action.attempt == 0:
            await self._tell_ignored(pod)

    async def _tell_ignored(self, pod: Pod) -> None:
        if podspec.is_static(pod):
            return  # logged, with their lines
        if text := await asyncio.to_thread(manifests.ignored_text, pod):
            self._services.events.warning(pod, "FieldsIgnored", text)

    async def _specify_sandbox(self, action: CreateSandbox, pod: Pod) -> SandboxSpec:
        settings = self._services.settings
        try:
            wanted = await self._services.sandbox_spec(pod, action.attempt)
            path = dns.file_read(pod, settings.dns)
            text = await asyncio.to_thread(_resolver_file, path) if path else ""
        except (SpecError, OSError) as error:
            raise StepFailed(plan.SANDBOX, "FailedCreatePodSandBox", str(error)) from error
        resolved, notes = dns.pod_dns(pod, settings.dns, text)
        for reason, message in notes:
            self._services.events.warning(pod, reason, message)
        return replace(
            wanted,
            dns_servers=resolved.servers,
            dns_searches=resolved.searches,
            dns_options=resolved.options,
        )

    async def _isolated_by(self, pod: Pod) -> str:
        """The runtime's handler for a pod that runs with no less isolation than it asks for."""
        reason = "FailedCreatePodSandBox"
        try:
            isolation.require_supported(pod)
            named = pod.spec.runtimeClassName
            handler = await self._services.classes.handler_of(pod) if named else ""
            if isolation.needs_features(pod):
                async with failing_as(reason):
                    isolation.require_features(pod, handler, await self._runtime.features())
        except SpecError as error:
            raise StepFailed(plan.SANDBOX, reason, str(error)) from error
        return handler

    async def _stop_sandbox(self, sandbox_id: str, seen: ObservedPod) -> None:
        async with failing_as("FailedKillPod"):
            await self._runtime.stop_sandbox(sandbox_id)
            await self._services.pleg.refresh(
                self._uid, sandboxes=(sandbox_id,), containers=_containers_of(sandbox_id, seen)
            )

    async def _remove_container(self, container_id: str, seen: ObservedPod) -> None:
        async with failing_as("FailedRemoveContainer"):
            await self._runtime.remove_container(container_id)
            self._services.pleg.forget(self._uid, container_id)
        self._services.messages.forget((container_id,))
        gone = next((c for c in seen.containers if c.container.id == container_id), None)
        if gone and gone.log_path:
            await asyncio.to_thread(rotation.remove, gone.log_path)
            await asyncio.to_thread(self._services.log_links.remove, gone.log_path)

    async def _remove_sandbox(self, sandbox_id: str, seen: ObservedPod) -> None:
        async with failing_as("FailedRemoveSandbox"):
            await self._runtime.remove_sandbox(sandbox_id)
            containers = _containers_of(sandbox_id, seen)
            self._services.pleg.forget(self._uid, sandbox_id, *containers)
        self._services.messages.forget(containers)


def _resolver_file(path: str) -> str:
    with Path(path).open("rb") as file:  # the administrator's; often a link
        return file.read(_RESOLVER_MAX_BYTES).decode(errors="replace")


def _containers_of(sandbox_id: str, seen: ObservedPod) -> list[str]:
    return [c.container.id for c in seen.containers if c.container.sandbox_id == sandbox_id]


async def remove_traces(uid: str, services: PodServices) -> None:
    """Remove cgroups, logs and volumes; StepFailed names what could not be removed.

    The pod's directory goes last: it shows the next agent that something is left.
    """
    try:
        await services.cgroups.remove(uid)
        await asyncio.to_thread(_remove_logs, services, uid)
        await services.volumes.remove(uid)
    except (VolumeError, CgroupError, OSError) as error:
        raise StepFailed(plan.SANDBOX, "FailedCleanup", str(error)) from error


def _remove_logs(services: PodServices, uid: str) -> None:
    """Match by the uid alone, since the name of an orphan may be unknown."""
    pod_logs_dir = services.settings.pod_logs_dir
    try:
        entries = os.listdir(pod_logs_dir)
    except FileNotFoundError:
        return
    for entry in entries:
        path = os.path.join(pod_logs_dir, entry)
        if uid and entry.endswith(f"_{uid}"):
            services.log_links.remove(f"{path}/")
            os.unlink(path) if os.path.islink(path) else descriptors.remove_tree(path)
