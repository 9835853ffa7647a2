"""ConfigMaps, Secrets and tokens of the API that pods of this node refer to.

Objects are read again whenever a container starts, and at an interval while files show them, then
once for all pods that show the same; the last known content counts while the API is unavailable.
Any pod may refer to thousands of objects: few are read at once, the namespaces in rotation, and
pods that know the same content share it. A server that does not answer is waited for once, not by
each pod after the other.
"""

from __future__ import annotations

import asyncio
import base64
import math
from collections.abc import Iterable
from weakref import WeakValueDictionary

from nodeagent.pods.spec import references
from nodeagent.pods.spec.references import (
    TOKEN,
    Needed,
    ObjectData,
    Objects,
    Reference,
    TokenReference,
)
from nodeagent.pods.volumes.tokens import PodIdentity, PodTokens, Silence, TokenProblem
from orch.client.resources import ApiClient
from orch.client.transport import TransportError
from orch.component.http.fair_queue import Bounds, Turns
from orch.component.secret import Secret
from orch.wire.errors import ApiError
from orch.wire.podrules import podspec
from orch.wire.podrules.references import CONFIG_MAP, PULL_SECRETS, TOKEN_S
from orch.wire.records.configuration import ConfigMap, ServiceAccount
from orch.wire.records.configuration import Secret as SecretObject
from orch.wire.records.pods import Pod

REFRESH_S = 60.0  # how often the files of a running pod are compared with the API
_SHARED_FOR = 0.5  # of that time, what is read for one pod counts for others
AT_ONCE = 16  # reads under way: the agent has more to ask for than objects of pods
_READS = Bounds(seats=AT_ONCE, wait_s=30.0)

PULL_BYTES = 1 << 20  # of all secrets that a pod's images are pulled with
_FAILURES = 3  # to read one of them; then the API is not asked for more
_NOT_READ = ObjectData(problem="was not read")


class PodObjects:
    """`client` None: without an API server there are no objects."""

    def __init__(
        self,
        client: ApiClient | None,
        *,
        refresh_s: float = REFRESH_S,
        tokens: PodTokens | None = None,
    ) -> None:
        self.refresh_s = refresh_s
        self._client = client
        self._tokens = tokens or PodTokens(client)
        self._turns = Turns(_READS)
        self._silence = Silence()
        self._shared = _Shared()
        self._shown: dict[str, Pod] = {}  # as they were at their last refresh, by uid
        self._known: dict[str, dict[Needed, ObjectData]] = {}  # by uid of the pod
        self._pull_secrets: dict[str, dict[Reference, ObjectData]] = {}

    async def of(self, pod: Pod) -> Objects:
        """All that the pod refers to, as it is now or was last known; never raises."""
        return await self._read(pod, references.references(pod))

    async def shown_in_volumes(self, pod: Pod) -> Objects:
        """What of it the files of volumes show; an object that was just read for another pod is
        not read again, unless this pod has changed.
        """
        uid = pod.metadata.uid or ""
        age_s = self.refresh_s * _SHARED_FOR if self._shown.get(uid) is pod else 0.0
        self._shown[uid] = pod
        return await self._read(pod, references.shown_in_volumes(pod), age_s)

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

    async def identity(self, pod: Pod, audience: str) -> PodIdentity | None:
        """The pod's service account, with a token for others; None for a static pod.

        TokenProblem.
        """
        if self._client is None or podspec.is_static(pod):
            return None
        namespace = pod.metadata.namespace or ""
        wanted = TokenReference(references.account_of(pod), audience, TOKEN_S)
        try:
            account = await self._client.find(ServiceAccount, wanted.account, namespace)
        except (ApiError, TransportError) as error:
            raise TokenProblem(
                f"serviceaccount {wanted.account} cannot be read: {error}"
            ) from error
        if account is None:
            raise TokenProblem(f"there is no serviceaccount {wanted.account}")
        token = await self._tokens.of(pod, wanted)
        if token.problem:
            raise TokenProblem(token.problem)
        known = (namespace, wanted.account, account.metadata.uid or "")
        text = Secret(token.data[TOKEN].decode())
        return PodIdentity(known, account.metadata.annotations or {}, text)

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self._known.pop(uid, None)
        self._shown.pop(uid, None)
        self._pull_secrets.pop(uid, None)
        self._tokens.forget(uid)

    async def _read(self, pod: Pod, wanted: Iterable[Needed], age_s: float = 0.0) -> Objects:
        """`age_s`: how old what was read for another pod may be."""
        listed = list(wanted)
        if not listed:
            return {}
        found: list[ObjectData] = []
        for start in range(0, len(listed), AT_ONCE):
            some = listed[start : start + AT_ONCE]
            found += await asyncio.gather(*(self._need(pod, wanted, age_s) for wanted in some))
        known = self._known.setdefault(pod.metadata.uid or "", {})
        for reference, data in zip(listed, found, strict=True):
            if not data.problem or reference not in known or isinstance(reference, TokenReference):
                known[reference] = data  # a token that is of no more use is none
        return dict(known)

    async def _need(self, pod: Pod, wanted: Needed, age_s: float) -> ObjectData:
        if isinstance(wanted, TokenReference):
            return await self._tokens.of(pod, wanted)
        namespace = pod.metadata.namespace or ""
        if (recent := self._shared.find(namespace, wanted, age_s)) is not None:
            return recent
        data = await self._fetch(namespace, wanted)
        if data.problem:
            return data
        return self._shared.put(namespace, wanted, data, keep_s=self.refresh_s)

    async def _fetch(self, namespace: str, reference: Reference) -> ObjectData:
        if self._client is None:
            return ObjectData(problem=f"{reference} cannot be read: there is no API server")
        kind: type[ConfigMap | SecretObject]
        kind = ConfigMap if reference.kind == CONFIG_MAP else SecretObject
        began_s = math.inf
        try:
            async with self._turns.hold(namespace):
                if why := self._silence.why():
                    return ObjectData(problem=f"{reference} cannot be read: {why}")
                began_s = asyncio.get_running_loop().time()
                return _data_of(await self._client.find(kind, reference.name, namespace))
        except TimeoutError:
            return ObjectData(problem=f"{reference} is not read yet: too many are to be read")
        except (ApiError, TransportError) as error:
            self._silence.failed(began_s, error)
            return ObjectData(problem=f"{reference} cannot be read: {error}")


class _Shared:
    """What was read last, for all pods that refer to it."""

    def __init__(self) -> None:
        self._read: dict[tuple[str, Reference], tuple[float, ObjectData]] = {}  # the oldest first
        self._held = WeakValueDictionary[tuple[str, Reference], ObjectData]()  # by anybody

    def find(self, namespace: str, wanted: Reference, age_s: float) -> ObjectData | None:
        read_s, data = self._read.get((namespace, wanted), (-math.inf, None))
        return data if asyncio.get_running_loop().time() - read_s < age_s else None

    def put(
        self, namespace: str, wanted: Reference, data: ObjectData, *, keep_s: float
    ) -> ObjectData:
        """The data, the very one that others have if it is the same. What is older than `keep_s` is
        forgotten.
        """
        now_s, key = asyncio.get_running_loop().time(), (namespace, wanted)
        if (held := self._held.get(key)) == data and held is not None:
            data = held
        self._held[key] = data
        self._read.pop(key, None)
        self._read[key] = now_s, data
        while self._read and (oldest := next(iter(self._read))):
            if now_s - self._read[oldest][0] < keep_s:
                break
            del self._read[oldest]
        return data


def _data_of(found: ConfigMap | SecretObject | None) -> ObjectData:
    if found is None:
        return ObjectData(absent=True)
    if isinstance(found, SecretObject):
        return ObjectData(_decoded(found.data), type=found.type or "")
    text = {key: value.encode() for key, value in (found.data or {}).items()}
    return ObjectData({**text, **_decoded(found.binaryData)})


def _decoded(data: dict[str, str] | None) -> dict[str, bytes]:
    return {key: base64.b64decode(value) for key, value in (data or {}).items()}
