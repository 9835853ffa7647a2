"""Everything known about the pods of this node: desired, observed, and the status of both.

One writer per fact: `pod_workers` (desired), `pleg` (observed), the workers' reports (status). All
calls are quick and run in the event loop. Listeners get the uid of the changed pod. The sampler's
targets are built here from the observed pods.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from nodeagent.pods.decide.phase import FINAL_PHASES
from nodeagent.pods.observed import ActiveContainer, ObservedPod, is_active, is_ready
from nodeagent.pods.spec import spec
from nodeagent.pods.spec.spec import PodSettings
from nodeagent.pods.volumes.volumes import is_in_memory, volume_path
from nodeagent.runtime.base import ContainerDetail, ContainerState
from nodeagent.stats.samples import ContainerTarget, PodTarget, VolumeTarget
from orch.wire import names
from orch.wire.records.meta import ObjectMeta
from orch.wire.records.pods import Container, Pod, PodSpec, PodStatus, Volume


def pod_target(view: ObservedPod, pod: Pod | None, settings: PodSettings) -> PodTarget | None:
    """None when nothing of the pod runs."""
    sandbox = view.sandbox
    ready = sandbox if sandbox and is_ready(sandbox) else None
    running = [c for c in view.containers if c.container.state is ContainerState.RUNNING]
    if ready is None and not running:
        return None
    log_dir = spec.log_directory(settings, view.namespace, view.name, view.uid)
    return PodTarget(
        namespace=view.namespace,
        name=view.name,
        uid=view.uid,
        cgroup_parent=view.cgroup_parent() or f"{settings.cgroup_parent}/pod{view.uid}",
        sandbox_id=ready.sandbox.id if ready else None,
        sandbox_pid=ready.pid if ready else None,
        started_at_ns=view.sandboxes[-1].sandbox.created_at_ns if view.sandboxes else 0,
        containers=tuple(_container_target(c, log_dir) for c in running),
        log_dir=log_dir,
        volumes=_volumes(view.uid, pod, settings),
        host_network=bool(pod and pod.spec.hostNetwork),
    )


def _container_target(detail: ContainerDetail, log_dir: str) -> ContainerTarget:
    return ContainerTarget(
        name=detail.container.name,
        id=detail.container.id,
        started_at_ns=detail.started_at_ns,
        log_dir=f"{log_dir}/{detail.container.name}",
        image=detail.container.image,
    )


def _volumes(uid: str, pod: Pod | None, settings: PodSettings) -> tuple[VolumeTarget, ...]:
    listed = [(volume, _kind(volume)) for volume in (pod and pod.spec.volumes) or ()]
    return tuple(
        VolumeTarget(volume.name, _path(uid, volume, kind, settings), kind, is_in_memory(volume))
        for volume, kind in listed
        # image volumes count as their image's disk, and a server may not answer
        if kind and volume.image is None and volume.nfs is None
    )


def _kind(volume: Volume) -> str:
    return next((key for key in volume.to_wire() if key != "name"), "")


def _path(uid: str, volume: Volume, kind: str, settings: PodSettings) -> str:
    if volume.hostPath is not None:
        return volume.hostPath.path
    return volume_path(settings.root_dir, uid, kind, volume.name)


def first_of_each(listed: Iterable[Pod]) -> tuple[list[Pod], tuple[str, ...]]:
    """The first pod of every name and of every uid, and messages about those left out."""
    kept: dict[str, Pod] = {}
    by_name: dict[str, Pod] = {}
    refused: list[str] = []
    for pod in listed:
        uid = pod.metadata.uid or ""
        other = by_name.get(pod.key) or kept.get(uid)
        if other is not None:
            what = "name" if other.key == pod.key else "uid"
            refused.append(
                f"pod {pod.key} ({uid}) is not run: pod {other.key} ({other.metadata.uid}) "
                f"has the same {what}; give it another"
            )
            continue
        kept[uid] = by_name[pod.key] = pod
    return [*kept.values()], tuple(refused)


Listener = Callable[[str], None]


class PodRegistry:
    """Pods by uid; a pod that is no longer desired is observed until it is gone.

    `complete`: every source has been read at least once. `listed`: the runtime has listed its
    pods.
    """

    def __init__(self, settings: PodSettings) -> None:
        self.complete = False
        self.listed = False
        self._unread: set[str] = set()  # uids of listed pods with changed details
        self._settings = settings
        self._desired: dict[str, Pod] = {}
        self._over: dict[str, Pod] = {}
        self._uids: dict[tuple[str, str], str] = {}
        self._statuses: dict[str, PodStatus] = {}
        self._views: dict[str, ObservedPod] = {}
        self._unknown: set[str] = set()  # uids of pods with a container in an unknown state
        # Inputs and results of the last call of `targets`.
        self._targets: dict[str, tuple[ObservedPod, Pod | None, PodTarget | None]] = {}
        self._on_view: list[Listener] = []
        self._on_status: list[Listener] = []

    # ---- for the agent's other parts

    def pods(self) -> list[Pod]:
        """The pods that some source wants, static ones included, each with its latest status."""
        return [*map(self._with_status, self._desired.values()), *self._over.values()]

    def find(self, namespace: str, name: str) -> Pod | None:
        """The pod of that name that some source wants, with its latest status."""
        uid = self._uids.get((namespace, name), "")
        desired = self._desired.get(uid)
        return self._with_status(desired) if desired else self._over.get(uid)

    def running_container(self, namespace: str, pod: str, container: str) -> str | None:
        """The runtime's id of a running container; None when there is none."""
        uid = self._uids.get((namespace, pod))
        view = self._views.get(uid) if uid else None
        running = view.running(container) if view else None
        return running.container.id if running else None

    def targets(self) -> list[PodTarget]:
        """What to measure: every pod that has a sandbox or a running container."""
        known, self._targets = self._targets, {}
        for uid, view in self._views.items():
            pod = self._desired.get(uid)
            entry = known.get(uid)
            if entry is None or entry[0] is not view or entry[1] is not pod:
                entry = (view, pod, pod_target(view, pod, self._settings))
            self._targets[uid] = entry
        return [target for _, _, target in self._targets.values() if target is not None]

    def running_pods(self) -> list[Pod]:
        """Pods as the runtime reports them, desired or not."""
        return [_running_pod(view) for view in self._views.values() if view.active]

    def device_holders(self) -> set[str] | None:
        """Uids of pods that may use devices, now or later; None while not all are known."""
        if not self.complete or not self.listed:
            return None
        return self.unfinished() | {uid for uid, view in self._views.items() if view.active}

    def unfinished(self) -> set[str]:
        """Uids of desired pods that have not ended."""
        statuses = (
            (uid, self._statuses.get(uid) or pod.status) for uid, pod in self._desired.items()
        )
        return {uid for uid, status in statuses if status.phase not in FINAL_PHASES}

    def noted_devices(self) -> Iterator[tuple[str, str, str]]:
        """Uid, name and note of each container that was made with devices and has not ended."""
        for uid, view in self._views.items():
            for row in (detail.container for detail in view.containers):
                note = row.annotations.get(names.RUNTIME_ANNOTATION_DEVICES)
                if note and row.state is not ContainerState.EXITED:
                    yield uid, row.name, note

    # ---- desired

    def live_uids(self) -> Collection[str] | None:
        """Uids of all pods that some source wants; None while not all of them are known."""
        return {*self._desired, *self._over} if self.complete else None

    def desired(self, uid: str) -> Pod | None:
        return self._desired.get(uid)

    def all_desired(self) -> list[Pod]:
        """The pods that should run here as their sources gave them, without their statuses."""
        return list(self._desired.values())

    def set_desired(
        self, pods: Iterable[Pod], *, over: Iterable[Pod] = (), complete: bool = True
    ) -> None:
        """Replace the whole set; each pod has a uid and a name of its own (`first_of_each`). `over`
        are those that have ended and left nothing here: they are shown, and nothing is done about
        them.
        """
        self.complete = complete
        self._over = {pod.metadata.uid or "": pod for pod in over}
        self._desired = {pod.metadata.uid or "": pod for pod in pods}
        self._uids = {
            (pod.metadata.namespace or "", pod.metadata.name): uid
            for uid, pod in (*self._over.items(), *self._desired.items())
        }
        for uid in set(self._statuses) - set(self._desired) - set(self._views):
            del self._statuses[uid]

    # ---- observed

    def views(self) -> dict[str, ObservedPod]:
        return dict(self._views)

    def active_containers(self, *, only_unknown: bool) -> list[ActiveContainer]:
        """All containers that may have processes, or only those in an unknown state."""
        return [
            ActiveContainer(detail.container.id, detail.container.name, self._desired.get(uid))
            for uid in (self._unknown if only_unknown else self._views)
            for detail in self._views[uid].containers
            if detail.container.state is ContainerState.UNKNOWN
            or (not only_unknown and is_active(detail))
        ]

    def view(self, uid: str) -> ObservedPod:
        """The pod as the runtime reports it; empty for an unknown pod."""
        return self._views.get(uid) or ObservedPod(uid, "", "")

    def has_nothing(self, uid: str) -> bool:
        """Whether the runtime is known to hold nothing of a pod."""
        return uid not in self._views and self.settled(uid)

    def settled(self, uid: str) -> bool:
        """Whether the view of a pod is complete: listed, with every detail read."""
        return self.listed and self.is_read(uid)

    @property
    def all_read(self) -> bool:
        return not self._unread

    def is_read(self, uid: str) -> bool:
        return uid not in self._unread

    def set_listed(self) -> None:
        self.listed = True

    def set_read(self, uid: str, *, read: bool = True) -> None:
        """Whether the details of a listed pod have been read since they changed."""
        (self._unread.discard if read else self._unread.add)(uid)

    def set_view(self, view: ObservedPod) -> None:
        """Store a pod's observed state and notify listeners when it changed."""
        if view == self.view(view.uid):
            return
        self._unknown.discard(view.uid)
        if view.empty:
            self._views.pop(view.uid, None)
        else:
            self._views[view.uid] = view
            if any(c.container.state is ContainerState.UNKNOWN for c in view.containers):
                self._unknown.add(view.uid)
        for listener in self._on_view:
            listener(view.uid)

    def on_view(self, listener: Listener) -> None:
        self._on_view.append(listener)

    # ---- status

    def status(self, uid: str) -> PodStatus | None:
        return self._statuses.get(uid)

    def has_ended(self, uid: str) -> bool:
        """Whether the pod has its final status; one without a status may still turn out to run."""
        status = self._statuses.get(uid)
        return status is not None and status.phase in FINAL_PHASES

    def set_status(self, uid: str, status: PodStatus) -> None:
        if status == self._statuses.get(uid):
            return
        self._statuses[uid] = status
        for listener in self._on_status:
            listener(uid)

    def on_status(self, listener: Listener) -> None:
        self._on_status.append(listener)

    def _with_status(self, pod: Pod) -> Pod:
        status = self._statuses.get(pod.metadata.uid or "")
        return pod.model_copy(update={"status": status}) if status else pod


def _running_pod(view: ObservedPod) -> Pod:
    containers = [Container(name=c.container.name, image=c.container.image) for c in view.active]
    return Pod(
        metadata=ObjectMeta(name=view.name, namespace=view.namespace, uid=view.uid),
        spec=PodSpec(containers=containers),
    )
