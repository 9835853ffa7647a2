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
from nodeagent.pods.devices import allocation
from nodeagent.pods.devices.allocation import DeviceError
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
    Mount,
    RuntimeCallError,
    SandboxDetail,
    SandboxSpec,
)
from nodeagent.seccomp import CONFIG_ERROR
from orch.component.process import loops
from orch.component.process.threads import run_in_thread
from orch.wire.podrules.podspec import find_container, place_of
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
        self._tell_unheeded_signal(pod, container)
        await self._link_log(pod, container.name, action.attempt, container_id)
        await self._after_start(container_id, pod, container, seen)

    def _tell_unheeded_signal(self, pod: Pod, container: Container) -> None:
        """A runtime that knows signals shows the container's; others send their own."""
        latest = self._services.registry.view(self._uid).latest(container.name)
        wanted = container.lifecycle and container.lifecycle.stopSignal
        if wanted and latest and not latest.stop_signal:
            path = f"{place_of(pod, container)}.lifecycle.stopSignal"
            text = f"the container runtime ignores {path}: the container is stopped with the signal"
            self._services.events.warning(pod, "FieldsIgnored", f"{text} of its image, or SIGTERM")

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
            raise StepFailed(container.name, error.reason, str(error), event=error.event) from error
        try:
            in_sandbox = await self._services.sandbox_spec(pod, sandbox.sandbox.attempt)
            wanted = await self._specify(action, pod, container, sandbox)
            wanted = replace(wanted, pid_of=_target(container, seen))
            log_dir = Path(in_sandbox.log_directory, container.name)
            make_logs = partial(directories.make, log_dir, unlinked=2)
            await loops.finish_in_thread(make_logs, name="log directory")
        except (SpecError, VolumeError, DeviceError, ValueError, OSError) as error:
            raise StepFailed(container.name, CONFIG_ERROR, str(error)) from error
        if not await self._services.allocations.save():
            text = "what the pod is allocated cannot be written down, see the agent's log"
            raise StepFailed(container.name, "CreateContainerError", text)
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
            env_files=await services.volumes.env_files(pod, container),
        )
        specify = partial(spec.container_spec, pod, container, action, services.settings, context)
        wanted = await asyncio.to_thread(specify)  # it may have a hundred thousand variables
        if wanted.apparmor is not None:
            isolation.require_loaded(wanted.apparmor, await asyncio.to_thread(_loaded_profiles))
        bound = await services.volumes.bind_sub_paths(
            self._uid, container.name, wanted.mounts, context.volumes
        )
        message = await services.messages.mount(self._uid, container, action.attempt)
        files = (message, *await services.hosts.mounts(pod, sandbox.ips))
        taken = {mount.container_path for mount in bound}
        own = [file for file in files if file.container_path not in taken]
        whole = replace(wanted, image=image, mounts=self._labelled((*bound, *own)))
        if services.devices is None:
            return whole
        given = await services.devices.of_container(pod, container)
        return allocation.with_devices(whole, given)

    def _labelled(self, mounts: Sequence[Mount]) -> tuple[Mount, ...]:
        """What is of the pod alone gets its label for SELinux; what is the host's keeps its own."""
        own = f"{self._services.settings.root_dir}/pods/{self._uid}/"
        return tuple(
            replace(mount, selinux_relabel=mount.host_path.startswith(own)) for mount in mounts
        )

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
        try:
            logins = await self._logins(pod, image)
            namespace = pod.metadata.namespace or ""
            took_s = await self._services.pulls.pull(self._runtime, image, logins, namespace)
        except ImageProblem as error:
            error.event = f'Failed to pull image "{image}": {error}'
            raise
        whole_s = loop.time() - began_s
        self.pulled_s += whole_s
        size_bytes = await pulling.size_bytes(self._runtime, image)
        counts = self._services.counts
        counts.timings.observe(pods_counts.IMAGE_PULL, took_s, pods_counts.size_class(size_bytes))
        text = f'Successfully pulled image "{image}" in {took_s:.3f}s'
        text += f" ({whole_s:.3f}s including waiting)"
        events.normal(pod, "Pulled", f"{text}. Image size: {size_bytes} bytes.")

    async def _logins(self, pod: Pod, image: str) -> Sequence[Login]:
        """Those that the pod's pull secrets have for the image, then the node's. ImageProblem."""
        found = [*await self._logins_of_pod(pod, image)]
        found += await self._services.node_logins.logins(image)
        if plugins := self._services.plugins:
            found += await plugins.logins(image, pod)
        return list(dict.fromkeys(found))[: keyring.LOGINS]

    async def _logins_of_pod(self, pod: Pod, image: str) -> Sequence[Login]:
        secrets = await self._services.objects.pull_secrets(pod)
        if failed := [name for name, data in secrets if data.absent or data.problem]:
            text = f"Unable to retrieve some image pull secrets ({', '.join(failed)})"
            text += "; attempting to pull the image may not succeed."
            self._services.events.warning(pod, "FailedToRetrieveImagePullSecret", text)
        if others := [n for n, data in secrets if data.data and not keyring.has_logins(data)]:
            text = f"Image pull secrets of the wrong type are not used: {', '.join(others)}"
            text += "; make them of the type kubernetes.io/dockerconfigjson"
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
            self._services.prober, pod, target, handler, limit_s=stopping.NO_LIMIT_S
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


_PROFILES = "/sys/kernel/security/apparmor/profiles"
_PROFILES_MAX_BYTES = 4 << 20


def _loaded_profiles() -> str:
    """Of the kernel; "" where it does not say."""
    try:
        with Path(_PROFILES).open("rb") as file:
            return file.read(_PROFILES_MAX_BYTES).decode(errors="replace")
    except OSError:
        return ""


def _target(container: Container, seen: ObservedPod) -> str:
    """The id of the container whose processes an ephemeral one is to see; "" for none."""
    name = container.targetContainerName
    if not name:
        return ""
    found = seen.latest(name)
    if found is None:
        raise SpecError(f"targetContainerName: unable to find target container {name}")
    return found.container.id
