"""Where desired pods come from: the role of a source, and the API as one.

A source is `ready` once it was read to its end; only then may pods that nobody wants be removed.
`doubtful` says that it could not read everything it has since it began: what it may have asked for
before the agent's start is then left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from orch.client.informer import Informer
from orch.client.resources import ApiClient
from orch.wire import names
from orch.wire.podrules import podspec
from orch.wire.records.pods import Pod

Changed = Callable[[], None]


class PodSource(Protocol):
    """`name` is the value of the source annotation: file, http or api."""

    name: str

    @property
    def ready(self) -> bool: ...
    @property
    def doubtful(self) -> bool: ...
    def pods(self) -> Sequence[Pod]: ...
    async def run(self, changed: Changed) -> None: ...


class ApiSource:
    """The pods that the API has bound to this node; mirror pods are not among them."""

    name = podspec.API
    doubtful = False

    def __init__(self, client: ApiClient, node_name: str) -> None:
        self._listeners: list[Changed] = []
        self._informer = Informer(
            client, Pod, field_selector=f"spec.nodeName={node_name}", on_change=self._tell
        )
        self._annotated: dict[str, tuple[str, Pod]] = {}  # uid → version, pod

    @property
    def ready(self) -> bool:
        return self._informer.synced

    def pods(self) -> Sequence[Pod]:
        own = [pod for pod in self.listed() if not podspec.is_mirror(pod)]
        kept = {pod.metadata.uid or "": self._with_source(pod) for pod in own}
        self._annotated = {
            uid: (pod.metadata.resourceVersion or "", pod) for uid, pod in kept.items()
        }
        return list(kept.values())

    def mirrors(self) -> Sequence[Pod]:
        """The mirror pods of this node's static ones."""
        return [pod for pod in self.listed() if podspec.is_mirror(pod)]

    def listed(self) -> Iterable[Pod]:
        """Every pod of this node that the API holds, as last seen; mirrors included."""
        return self._informer.objects().values()

    def stored(self, namespace: str, name: str) -> Pod | None:
        """The API's own record of a pod, as last seen."""
        return self._informer.objects().get(f"{namespace}/{name}")

    def on_change(self, listener: Changed) -> None:
        """Call `listener` whenever the API's pods of this node changed, mirrors included."""
        self._listeners.append(listener)

    async def run(self, changed: Changed) -> None:
        self.on_change(changed)
        await self._informer.run()

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()

    def _with_source(self, pod: Pod) -> Pod:
        version, known = self._annotated.get(pod.metadata.uid or "", ("", pod))
        if version and version == pod.metadata.resourceVersion:
            return known
        annotations = {
            **(pod.metadata.annotations or {}),
            names.ANNOTATION_CONFIG_SOURCE: podspec.API,
        }
        metadata = pod.metadata.model_copy(update={"annotations": annotations})
        return pod.model_copy(update={"metadata": metadata})
