"""ConfigMaps and Secrets of the API that pods of this node refer to.

Read again whenever a container starts, and at an interval while its files show them; the last known
content counts while the API is unavailable.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterable

from nodeagent.pods.spec import references
from nodeagent.pods.spec.references import ObjectData, Objects, Reference
from orch.client.resources import ApiClient
from orch.client.transport import TransportError
from orch.wire.errors import ApiError
from orch.wire.podrules.references import CONFIG_MAP, PULL_SECRETS
from orch.wire.records.configuration import ConfigMap, Secret
from orch.wire.records.pods import Pod

REFRESH_S = 60.0  # how often the files of a running pod are compared with the API

PULL_BYTES = 1 << 20  # of all secrets that a pod's images are pulled with
_FAILURES = 3  # to read one of them; then the API is not asked for more
_NOT_READ = ObjectData(problem="was not read")


class PodObjects:
    """`client` None: without an API server there are no objects."""

    def __init__(self, client: ApiClient | None, *, refresh_s: float = REFRESH_S) -> None:
        self.refresh_s = refresh_s
        self._client = client
        self._known: dict[str, dict[Reference, ObjectData]] = {}  # by uid of the pod
        self._pull_secrets: dict[str, dict[Reference, ObjectData]] = {}

    async def of(self, pod: Pod) -> Objects:
        """The objects that the pod refers to, as they are now or were last known; never raises."""
        return await self._read(pod, references.references(pod))

    async def shown_in_volumes(self, pod: Pod) -> Objects:
        """Those of them that the files of volumes show."""
        return await self._read(pod, references.shown_in_volumes(pod))

    async def pull_secrets(self, pod: Pod) -> list[tuple[str, ObjectData]]:
        """By name, the Secrets that the pod's images are pulled with; never raises.

        They are read one by one, up to bounds of number and size, since any pod may name many.
        """
        wanted, namespace = references.pull_secrets(pod), pod.metadata.namespace or ""
        known = self._pull_secrets.get(pod.metadata.uid or "", {})
        found: dict[Reference, ObjectData] = {}
        failures = size_bytes = 0
        for reference in wanted[:PULL_SECRETS]:
            data = await self._fetch(namespace, reference) if failures < _FAILURES else _NOT_READ
            if data.problem:
                failures += 1
                data = known.get(reference, data)
            size_bytes += sum(map(len, data.data.values()))
            if size_bytes > PULL_BYTES:
                break
            found[reference] = data
        self._pull_secrets[pod.metadata.uid or ""] = {
            reference: data for reference, data in found.items() if not data.problem
        }
        return [(reference.name, found.get(reference, _NOT_READ)) for reference in wanted]

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self._known.pop(uid, None)
        self._pull_secrets.pop(uid, None)

    async def _read(self, pod: Pod, wanted: Iterable[Reference]) -> Objects:
        listed = list(wanted)
        if not listed:
            return {}
        namespace = pod.metadata.namespace or ""
        found = await asyncio.gather(*(self._fetch(namespace, wanted) for wanted in listed))
        known = self._known.setdefault(pod.metadata.uid or "", {})
        for reference, data in zip(listed, found, strict=True):
            if not data.problem or reference not in known:
                known[reference] = data
        return dict(known)

    async def _fetch(self, namespace: str, reference: Reference) -> ObjectData:
        if self._client is None:
            return ObjectData(problem=f"{reference} cannot be read: there is no API server")
        try:
            if reference.kind != CONFIG_MAP:
                return _data_of(await self._client.find(Secret, reference.name, namespace))
            return _data_of(await self._client.find(ConfigMap, reference.name, namespace))
        except (ApiError, TransportError) as error:
            return ObjectData(problem=f"{reference} cannot be read: {error}")


def _data_of(found: ConfigMap | Secret | None) -> ObjectData:
    if found is None:
        return ObjectData(absent=True)
    if isinstance(found, Secret):
        return ObjectData(_decoded(found.data), type=found.type or "")
    text = {key: value.encode() for key, value in (found.data or {}).items()}
    return ObjectData({**text, **_decoded(found.binaryData)})


def _decoded(data: dict[str, str] | None) -> dict[str, bytes]:
    return {key: base64.b64decode(value) for key, value in (data or {}).items()}
