"""Starts a container: image, volumes and log directory, creation, start, postStart hook."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from nodeagent.pods import counts as pods_counts
from nodeagent.pods.actions import StartContainer
from nodeagent.pods.backoff import StepFailed, failing_as
from nodeagent.pods.images import keyring, pulling
from nodeagent.pods.images.keyring import KeyringError
from nodeagent.pods.images.pulling import ImageProblem
from nodeagent.pods.observed import ObservedPod
from nodeagent.pods.prober.probes import ProbeTarget
from nodeagent.pods.spec import isolation, spec
from nodeagent.pods.spec.env import SpecError
from nodeagent.pods.spec.spec import ContainerContext
from nodeagent.pods.volumes import directories
from nodeagent.pods.volumes.volumes import VolumeError
from nodeagent.pods.worker import stopping
from nodeagent.pods.worker.services import PodServices
from nodeagent.runtime.base import (
    ContainerSpec,
    Login,
    RuntimeCallError,
    SandboxDetail,
    SandboxSpec,
)
from nodeagent.seccomp import CONFIG_ERROR
from orch.component.process import loops
from orch.component.process.threads import run_in_thread
from orch.wire.podrules.podspec import find_container
from orch.wire.records.pods import Container, Pod


class Starting:
    """Starts the containers of one pod; StepFailed carries the waiting reason."""

    def __init__(self, uid: str, services: PodServices) -> None:
        self.pulled_s = 0.0
        self._uid = uid
        self._services = services
        self._runtime = services.runtime

    async def start(self, action: StartContainer, pod: Pod, seen: ObservedPod) -> None:
        """A container removed from the pod since the step was planned is skipped."""
        container = find_container(pod, action.name)
        sandbox = seen.sandbox
        if container is None or sandbox is None:
            return
        container_id = action.created_id or await self._create(
            action, pod, container, sandbox, seen
        )
        async with failing_as("RunContainerError", container.name):
            try:
                await self._runtime.start_container(container_id)
            finally:
                await self._services.pleg.refresh(self._uid, containers=(container_id,))
        self._services.events.normal(pod, "Started", f"Started container {container.name}")
        await self._link_log(pod, container.name, action.attempt, container_id)
        await self._after_start(container_id, pod, container, seen)

    async def _link_log(self, pod: Pod, container: str, attempt: int, container_id: str) -> None:
        namespace, name = pod.metadata.namespace or "", pod.metadata.name
        logs = spec.log_directory(self._services.settings, namespace, name, self._uid)
        link = f"{name}_{namespace}_{container}-{container_id}"
        await self._services.log_links.add(link, f"{logs}/{container}/{attempt}.log")

    async def _create(
        self,
        action: StartContainer,
        pod: Pod,
        container: Container,
        sandbox: SandboxDetail,
        seen: ObservedPod,
    ) -> str:
        try:
            await self._ensure_image(pod, container.image, container.imagePullPolicy)
            await self._ensure_image_volumes(pod, container)
        except ImageProblem as error:
            raise StepFailed(container.name, error.reason, str(error)) from error
        try:
            attempt = sandbox.sandbox.attempt
            in_sandbox = spec.sandbox_spec(pod, self._services.settings, attempt=attempt)
            wanted = await self._specify(action, pod, container, sandbox)
            wanted = replace(wanted, pid_of=_target(container, seen))
            log_dir = Path(in_sandbox.log_directory, container.name)
            make_logs = partial(directories.make, log_dir, unlinked=2)
            await loops.finish_in_thread(make_logs, name="log directory")
        except (SpecError, VolumeError, ValueError, OSError) as error:
            raise StepFailed(container.name, CONFIG_ERROR, str(error)) from error
        async with failing_as("CreateContainerError", container.name):
            container_id = await self._create_and_count(sandbox, wanted, in_sandbox)
            await self._services.pleg.refresh(
                self._uid, containers=(container_id,), created_in=sandbox.sandbox.id
            )
        self._services.events.normal(pod, "Created", f"Created container: {container.name}")
        return container_id

    async def _specify(
        self, action: StartContainer, pod: Pod, container: Container, sandbox: SandboxDetail
    ) -> ContainerSpec:
        services = self._services
        isolation.require_supported_container(pod, container)
        image = await self._checked_image(pod, container)
        data = await services.projected_data(pod)
        context = ContainerContext(
            volumes=await services.volumes.prepare(pod, data),
            pod_ips=sandbox.ips,
            seccomp=await services.seccomp.setting_of(pod, container),
            objects=data.objects,
        )
        wanted = spec.container_spec(pod, container, action, services.settings, context)
        bound = await services.volumes.bind_sub_paths(
            self._uid, container.name, wanted.mounts, context.volumes
        )
        message = await services.messages.mount(self._uid, container, action.attempt)
        files = (message, *await services.hosts.mounts(pod, sandbox.ips))
        taken = {mount.container_path for mount in bound}
        own = [file for file in files if file.container_path not in taken]
        return replace(wanted, image=image, mounts=(*bound, *own))

    async def _checked_image(self, pod: Pod, container: Container) -> str:
        """The image to run: by its id where its user was checked, since names may move on."""
        if not isolation.require_user(pod, container):
            return container.image
        async with failing_as(CONFIG_ERROR, container.name):
            found = await self._runtime.image(container.image)
        isolation.require_image_user(pod, container, found)
        return found.id if found else container.image

    async def _create_and_count(
        self, sandbox: SandboxDetail, wanted: ContainerSpec, in_sandbox: SandboxSpec
    ) -> str:
        """Create the container and count its image volumes as mounted or failed."""
        volumes = sum(1 for mount in wanted.mounts if mount.image)
        counts, sandbox_id = self._services.counts, sandbox.sandbox.id
        try:
            container_id = await self._runtime.create_container(sandbox_id, wanted, in_sandbox)
        except RuntimeCallError:
            counts.image_volume_errors += volumes
            raise
        counts.image_volumes_mounted += volumes
        return container_id

    async def _ensure_image_volumes(self, pod: Pod, container: Container) -> None:
        counts, volumes = self._services.counts, spec.image_volumes(pod)
        mounted = [volumes[m.name] for m in container.volumeMounts or () if m.name in volumes]
        counts.image_volumes_requested += len(mounted)
        try:
            for image in mounted:
                await self._ensure_image(pod, image.reference, image.pullPolicy)
        except ImageProblem:
            counts.image_volume_errors += len(mounted)
            raise

    async def _ensure_image(self, pod: Pod, image: str, policy: str | None) -> None:
        events = self._services.events
        if not await pulling.must_pull(self._runtime, image, policy):
            events.normal(pod, "Pulled", f'Container image "{image}" already present on machine')
            return
        events.normal(pod, "Pulling", f'Pulling image "{image}"')
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        logins = await self._logins(pod, image)
        took_s = await self._services.pulls.pull(self._runtime, image, logins)
        whole_s = loop.time() - began_s
        self.pulled_s += whole_s
        size_bytes = await pulling.size_bytes(self._runtime, image)
        counts = self._services.counts
        counts.timings.observe(pods_counts.IMAGE_PULL, took_s, pods_counts.size_class(size_bytes))
        text = f'Successfully pulled image "{image}" in {took_s:.3f}s'
        text += f" ({whole_s:.3f}s including waiting)"
        events.normal(pod, "Pulled", f"{text}. Image size: {size_bytes} bytes.")

    async def _logins(self, pod: Pod, image: str) -> Sequence[Login]:
        """Those that the pod's pull secrets have for the image. ImageProblem."""
        secrets = await self._services.objects.pull_secrets(pod)
        if failed := [name for name, data in secrets if data.absent or data.problem]:
            text = f"Unable to retrieve some image pull secrets ({', '.join(failed)})"
            text += "; attempting to pull the image may not succeed."
            self._services.events.warning(pod, "FailedToRetrieveImagePullSecret", text)
        if not (read := [(name, data) for name, data in secrets if data.data]):
            return ()
        find = partial(keyring.logins, image, read)
        try:
            return await run_in_thread(find, name="pull secrets")
        except KeyringError as error:
            raise ImageProblem("ErrImagePull", str(error)) from error

    async def _after_start(
        self, container_id: str, pod: Pod, container: Container, seen: ObservedPod
    ) -> None:
        """Run the postStart hook; when it fails, stop the container."""
        handler = container.lifecycle and container.lifecycle.postStart
        if not handler:
            return
        address = seen.address(self._services.settings.host_ip)
        target = ProbeTarget(container_id, container, address, bool(pod.spec.hostNetwork))
        outcome = await stopping.run_hook(
            self._services.prober, target, handler, limit_s=stopping.NO_LIMIT_S
        )
        if outcome.good:
            return
        text = f"PostStartHook failed: {outcome.text}"
        self._services.events.warning(pod, "FailedPostStartHook", text)
        async with failing_as("PostStartHookError", container.name):
            grace_s = spec.grace_period_s(pod)
            await self._runtime.stop_container(container_id, timeout_s=grace_s)
            await self._services.pleg.refresh(self._uid, containers=(container_id,))
        raise StepFailed(container.name, "PostStartHookError", text)


def _target(container: Container, seen: ObservedPod) -> str:
    """The id of the container whose processes an ephemeral one is to see; "" for none."""
    name = container.targetContainerName
    if not name:
        return ""
    found = seen.latest(name)
    if found is None:
        raise SpecError(f"targetContainerName: unable to find target container {name}")
    return found.container.id
