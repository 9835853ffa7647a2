"""Does one planned step on the runtime and the host; the thin side of `plan`.

Each step can be repeated: what it makes is recognised when it is already there. After a step the
observer reads what was touched, so that the next plan sees it. Failures become StepFailed with the
waiting reason that users know; a runtime that is away stays RuntimeUnavailable.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

from nodeagent.pods import images, plan, spec
from nodeagent.pods.actions import (
    Action,
    CreateSandbox,
    RemoveContainer,
    RemoveSandbox,
    StartContainer,
    StopContainers,
    StopSandbox,
)
from nodeagent.pods.env import SpecError
from nodeagent.pods.images import ImageProblem
from nodeagent.pods.observed import ObservedPod
from nodeagent.pods.services import PodServices
from nodeagent.pods.spec import ContainerContext
from nodeagent.pods.troubles import StepFailed
from nodeagent.pods.volumes import VolumeError
from nodeagent.runtime.base import ContainerDetail, RuntimeCallError, RuntimeUnavailable
from orch.wire.pods import Container, Pod


class Steps:
    """The steps of one pod; `pod` is None for what the runtime holds of a pod nobody wants."""

    def __init__(self, uid: str, services: PodServices) -> None:
        self._uid = uid
        self._services = services
        self._runtime = services.runtime

    async def perform(self, action: Action, pod: Pod | None, seen: ObservedPod) -> None:
        """StepFailed, RuntimeUnavailable."""
        match action:
            case CreateSandbox() if pod:
                await self._create_sandbox(action, pod)
            case StartContainer() if pod:
                await self._start(action, pod, seen)
            case StopContainers():
                await self._stop(action, seen, pod)
            case StopSandbox():
                async with self._failing_as("FailedKillPod"):
                    await self._runtime.stop_sandbox(action.sandbox_id)
                    held = [
                        c.container.id
                        for c in seen.containers
                        if c.container.sandbox_id == action.sandbox_id
                    ]
                    await self._refresh(sandboxes=(action.sandbox_id,), containers=held)
            case RemoveContainer():
                await self._remove_container(action.container_id, seen)
            case RemoveSandbox():
                await self._remove_sandbox(action.sandbox_id, seen)

    async def _create_sandbox(self, action: CreateSandbox, pod: Pod) -> None:
        try:
            await self._services.volumes.prepare(pod)
        except VolumeError as error:
            raise StepFailed(plan.SANDBOX, "FailedMount", str(error)) from error
        await self._services.cgroups.ensure(pod)
        wanted = spec.sandbox_spec(pod, self._services.settings, attempt=action.attempt)
        await asyncio.to_thread(Path(wanted.log_directory).mkdir, 0o755, True, True)
        async with self._failing_as("FailedCreatePodSandBox"):
            if action.replaces:
                await self._runtime.stop_sandbox(action.replaces)
            made = await self._runtime.run_sandbox(wanted)
            await self._refresh(sandboxes=(made,))

    async def _start(self, action: StartContainer, pod: Pod, seen: ObservedPod) -> None:
        container = spec.find_container(pod, action.name)
        if container is None or seen.sandbox is None:
            return  # the pod changed since the step was planned
        container_id = action.created_id or await self._create(action, pod, container, seen)
        async with self._failing_as("RunContainerError", container.name):
            try:
                await self._runtime.start_container(container_id)
            finally:
                await self._refresh(containers=(container_id,))
        self._services.events.normal(pod, "Started", f"Started container {container.name}")

    async def _create(
        self, action: StartContainer, pod: Pod, container: Container, seen: ObservedPod
    ) -> str:
        sandbox = seen.sandbox
        assert sandbox is not None  # noqa: S101 — _start has looked
        try:
            await self._ensure_image(pod, container)
        except ImageProblem as error:
            raise StepFailed(container.name, error.reason, str(error)) from error
        settings = self._services.settings
        try:
            context = ContainerContext(
                volumes=await self._services.volumes.prepare(pod),
                pod_ips=sandbox.ips,
                seccomp=await self._services.seccomp_of(pod, container),
            )
            wanted = spec.container_spec(pod, container, action, settings, context)
            await self._services.volumes.check_mounts(wanted.mounts, context.volumes)
        except (SpecError, VolumeError, ValueError) as error:
            reason = "CreateContainerConfigError"
            raise StepFailed(container.name, reason, str(error)) from error
        in_sandbox = spec.sandbox_spec(pod, settings, attempt=sandbox.sandbox.attempt)
        log_path = Path(in_sandbox.log_directory, wanted.log_path)
        await asyncio.to_thread(log_path.parent.mkdir, 0o755, True, True)
        async with self._failing_as("CreateContainerError", container.name):
            made = await self._runtime.create_container(sandbox.sandbox.id, wanted, in_sandbox)
            await self._refresh(containers=(made,), made_in=sandbox.sandbox.id)
        self._services.events.normal(pod, "Created", f"Created container: {container.name}")
        return made

    async def _ensure_image(self, pod: Pod, container: Container) -> None:
        events, image = self._services.events, container.image
        if not await images.must_pull(self._runtime, container):
            events.normal(pod, "Pulled", f'Container image "{image}" already present on machine')
            return
        events.normal(pod, "Pulling", f'Pulling image "{image}"')
        await images.pull(self._runtime, image)
        events.normal(pod, "Pulled", f'Successfully pulled image "{image}"')

    async def _stop(self, action: StopContainers, seen: ObservedPod, pod: Pod | None) -> None:
        grace_s = action.grace_s
        if grace_s is None:
            grace_s = spec.grace_period_s(pod) if pod else seen.grace_period_s()
        for one in seen.containers:
            if one.container.id in action.ids:
                told = f"Stopping container {one.container.name}: {action.why}"
                self._services.events.normal(pod, "Killing", told)
        stops = (self._runtime.stop_container(one, timeout_s=grace_s) for one in action.ids)
        results = await asyncio.gather(*stops, return_exceptions=True)
        async with self._failing_as("FailedKillPod"):
            await self._refresh(containers=action.ids)
            for result in results:
                if isinstance(result, BaseException):
                    raise result

    async def _remove_container(self, container_id: str, seen: ObservedPod) -> None:
        async with self._failing_as("FailedRemoveContainer"):
            await self._runtime.remove_container(container_id)
            self._services.observer.forget(self._uid, container_id)
        gone = next((c for c in seen.containers if c.container.id == container_id), None)
        if gone and gone.log_path:
            await asyncio.to_thread(_remove_log, gone)

    async def _remove_sandbox(self, sandbox_id: str, seen: ObservedPod) -> None:
        async with self._failing_as("FailedRemoveSandbox"):
            await self._runtime.remove_sandbox(sandbox_id)
            held = (c for c in seen.containers if c.container.sandbox_id == sandbox_id)
            ids = [c.container.id for c in held]
            self._services.observer.forget(self._uid, sandbox_id, *ids)

    async def _refresh(
        self,
        *,
        sandboxes: Iterable[str] = (),
        containers: Iterable[str] = (),
        made_in: str = "",
    ) -> None:
        observer = self._services.observer
        await observer.refresh(
            self._uid, sandboxes=sandboxes, containers=containers, made_in=made_in
        )

    @contextlib.asynccontextmanager
    async def _failing_as(self, reason: str, subject: str = plan.SANDBOX) -> AsyncIterator[None]:
        try:
            yield
        except RuntimeUnavailable:
            raise
        except RuntimeCallError as error:
            raise StepFailed(subject, reason, str(error)) from error


def _remove_log(detail: ContainerDetail) -> None:
    """The log of a container that is gone, and what rotation made of it."""
    path = Path(detail.log_path)
    for rotated in path.parent.glob(f"{path.name}*"):
        rotated.unlink(missing_ok=True)
