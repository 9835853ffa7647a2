"""Events about pods, with the reasons that `kubectl describe pod` shows.

Events of a static pod are recorded on its mirror, the object that users can inspect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from nodeagent.pods.backoff import StepFailed
from nodeagent.pods.decide.plan import SANDBOX
from orch.wire.podrules import podspec
from orch.wire.records.meta import ApiObject
from orch.wire.records.pods import Pod

NORMAL, WARNING = "Normal", "Warning"

_IMAGE_REASONS = ("ErrImagePull", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError")

Stored = Callable[[str, str], Pod | None]  # namespace, name → the API's object


class Recorder(Protocol):
    """Records events; `orch.client.events.EventRecorder` implements it."""

    def note(self, obj: ApiObject, type: str, reason: str, message: str) -> None: ...  # noqa: A002


class PodEvents:
    """`stored` finds the API's object of a static pod."""

    def __init__(self, recorder: Recorder, stored: Stored | None = None) -> None:
        self._recorder = recorder
        self._stored = stored
        self._crash_loops: dict[tuple[str, str], int] = {}  # uid, container → attempt
        self._pull_backoffs: dict[tuple[str, str], str] = {}  # uid, container → image

    def normal(self, pod: Pod | None, reason: str, message: str) -> None:
        self._note(pod, NORMAL, reason, message)

    def warning(self, pod: Pod | None, reason: str, message: str) -> None:
        self._note(pod, WARNING, reason, message)

    def failed(self, pod: Pod | None, failed: StepFailed) -> None:
        """Record a failed step: a container's as `Failed`, the pod's under its own reason."""
        if failed.reason == "FailedCreatePodSandBox":
            self.warning(pod, failed.reason, f"Failed to create pod sandbox: {failed}")
        elif failed.subject == SANDBOX:
            self.warning(pod, failed.reason, str(failed))
        elif failed.reason in _IMAGE_REASONS:
            self.warning(pod, "Failed", failed.event)
            self.warning(pod, "Failed", f"Error: {failed.reason}")
        else:
            self.warning(pod, "Failed", f"Error: {failed}")

    def crash_loops(self, pod: Pod, looping: Mapping[str, int]) -> None:
        """Record each crash that causes a back-off once; `looping`: name → attempt."""
        meta = pod.metadata
        for name, attempt in looping.items():
            key = (meta.uid or "", name)
            if self._crash_loops.get(key) != attempt:
                self._crash_loops[key] = attempt
                self.warning(
                    pod,
                    "BackOff",
                    f"Back-off restarting failed container {name} in pod "
                    f"{meta.name}_{meta.namespace}({meta.uid})",
                )

    def pull_backoffs(self, pod: Pod, images: Mapping[str, str]) -> None:
        """Record each back-off before another pull once; `images`: container name → image."""
        uid = pod.metadata.uid or ""
        for name, image in images.items():
            if self._pull_backoffs.get((uid, name)) != image:
                self.normal(pod, "BackOff", f'Back-off pulling image "{image}"')
        others = {k: v for k, v in self._pull_backoffs.items() if k[0] != uid}
        self._pull_backoffs = others | {(uid, name): image for name, image in images.items()}

    def forget(self, uid: str) -> None:
        """The pod was removed."""
        self._crash_loops = {k: v for k, v in self._crash_loops.items() if k[0] != uid}
        self._pull_backoffs = {k: v for k, v in self._pull_backoffs.items() if k[0] != uid}

    def _note(self, pod: Pod | None, kind: str, reason: str, message: str) -> None:
        if pod is None:
            return
        meta = pod.metadata
        stored = self._stored(meta.namespace or "", meta.name) if self._stored else None
        mirror = stored if stored and podspec.is_mirror(stored) else None
        self._recorder.note(mirror or pod, kind, reason, message)
