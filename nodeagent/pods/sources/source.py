"""The role of a source of desired pods, and the API server as one.

A source is `ready` once it has been read completely; only then may pods that no source wants be
removed. While it has been `incomplete` since its start, pods from before the agent's start that it
may still define keep running.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from orch.client.informer import Informer
from orch.client.json_api import SILENCE_S
from orch.client.resources import ApiClient
from orch.component.process.once_log import OnceLog
from orch.wire import names
from orch.wire.podrules import podspec
from orch.wire.records.pods import Pod

log = logging.getLogger(__name__)

Changed = Callable[[], None]

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


class PodSource(Protocol):
    """`name` is the value of the source annotation: file, http or api."""

    name: str

    @property
    def ready(self) -> bool: ...
    @property
    def incomplete(self) -> bool: ...
    def pods(self) -> Sequence[Pod]: ...
    async def run(self, changed: Changed) -> None: ...


class ApiSource:
    """The pods that the API server has bound to this node, without mirror pods."""

    name = podspec.API
    incomplete = False

    def __init__(self, client: ApiClient, node_name: str, *, silence_s: float = SILENCE_S) -> None:
        self._listeners: list[Changed] = []
        self.informer = Informer(
            client,
            Pod,
            field_selector=f"spec.nodeName={node_name}",
            on_change=self._notify,
            silence_s=silence_s,
        )
        self._annotated: dict[str, Pod] = {}  # by uid
        self._odd = OnceLog(log)

    @property
    def ready(self) -> bool:
        return self.informer.synced

    def pods(self) -> Sequence[Pod]:
        own = [pod for pod in self.listed() if not podspec.is_mirror(pod)]
        annotated = (self._with_source(pod) for pod in own)
        self._annotated = {pod.metadata.uid or "": pod for pod in annotated if pod is not None}
        return list(self._annotated.values())

    def mirrors(self) -> Sequence[Pod]:
        """The mirror pods of this node's static pods."""
        return [pod for pod in self.listed() if podspec.is_mirror(pod)]

    def listed(self) -> Iterable[Pod]:
        """Every pod of this node at the API server, as last seen; mirrors included."""
        return self.informer.objects().values()

    def stored(self, namespace: str, name: str) -> Pod | None:
        """The API server's object of a pod, as last seen."""
        return self.informer.objects().get(f"{namespace}/{name}")

    def on_change(self, listener: Changed) -> None:
        """Call `listener` whenever the API's pods of this node changed, mirrors included."""
        self._listeners.append(listener)

    async def run(self, changed: Changed) -> None:
        self.on_change(changed)
        await self.informer.run()

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()

    def _with_source(self, pod: Pod) -> Pod | None:
        """None for a pod whose names would lead out of the directories that they are part of."""
        known = self._annotated.get(pod.metadata.uid or "")
        version = pod.metadata.resourceVersion
        if known is not None and version and version == known.metadata.resourceVersion:
            return known
        odd = next((name for name in _names(pod) if not _PLAIN.fullmatch(name)), None)
        if odd is not None:
            text = "a pod of the API server is left out: %.100r cannot be part of a path"
            self._odd.failed(text, odd, subject=pod.key)
            return None
        source = {names.ANNOTATION_CONFIG_SOURCE: podspec.API}
        annotations = {**(pod.metadata.annotations or {}), **source}
        metadata = pod.metadata.model_copy(update={"annotations": annotations})
        return pod.model_copy(update={"metadata": metadata})


def _names(pod: Pod) -> Iterable[str]:
    """Those that become parts of paths."""
    meta = pod.metadata
    yield from (meta.uid or "", meta.namespace or "", meta.name)
    yield from (container.name for container in podspec.all_containers(pod))
    yield from (volume.name for volume in pod.spec.volumes or ())
