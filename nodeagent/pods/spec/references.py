"""The ConfigMaps, Secrets and tokens that a pod refers to, and their content; pure.

`volumes.objects` fetches them from the API.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from orch.wire.names import DEFAULT_SERVICE_ACCOUNT
from orch.wire.podrules import podspec
from orch.wire.podrules.references import (
    CONFIG_MAP,
    SECRET,
    TOKEN_S,
    ApiReference,
    api_references,
    volume_references,
)
from orch.wire.records.pods import Pod, ServiceAccountTokenProjection


class Reference(NamedTuple):
    """An object of the pod's own namespace."""

    kind: str  # CONFIG_MAP or SECRET
    name: str

    def __str__(self) -> str:
        return f'{self.kind.lower()} "{self.name}"'


class TokenReference(NamedTuple):
    """A token of the pod's own service account, for its own time."""

    account: str
    audience: str  # "": the API server
    expiration_s: int

    def __str__(self) -> str:
        return f'token of serviceaccount "{self.account}"'


@dataclass(frozen=True, slots=True, weakref_slot=True)
class ObjectData:
    """`absent`: the object does not exist. `problem`: why it could not be read.

    `type` is a Secret's.
    """

    data: Mapping[str, bytes] = field(default_factory=dict)
    absent: bool = False
    problem: str = ""
    type: str = ""


Needed = Reference | TokenReference
Objects = Mapping[Needed, ObjectData]
TOKEN = "token"  # noqa: S105 - the key of its text in the data of a TokenReference
NO_OBJECTS: Objects = MappingProxyType({})


class NotThere(Exception):
    """A required object or key is missing; the text names it."""


def references(pod: Pod) -> set[Needed]:
    """All that the pod refers to, optional objects included."""
    containers = [
        {
            "env": [v.to_wire() for v in container.env or () if v.valueFrom is not None],
            "envFrom": [source.to_wire() for source in container.envFrom or ()],
        }
        for container in podspec.all_containers(pod)
    ]
    return _fetched(api_references({"containers": containers, **_volumes(pod)})) | _tokens(pod)


def pull_secrets(pod: Pod) -> tuple[Reference, ...]:
    """The Secrets to pull the pod's images with, in their order; unnamed ones are ignored."""
    named = dict.fromkeys(ref.name for ref in pod.spec.imagePullSecrets or () if ref.name)
    return tuple(Reference(SECRET, name) for name in named)


def shown_in_volumes(pod: Pod) -> set[Needed]:
    """What the pod's files show and follow while it runs."""
    return _fetched(volume_references(_volumes(pod))) | _tokens(pod)


def account_of(pod: Pod) -> str:
    """The name of its service account."""
    return pod.spec.serviceAccountName or DEFAULT_SERVICE_ACCOUNT


def token_reference(pod: Pod, wanted: ServiceAccountTokenProjection) -> TokenReference:
    """Which token it is that a volume's source wants."""
    return TokenReference(
        account_of(pod), wanted.audience or "", wanted.expirationSeconds or TOKEN_S
    )


def _tokens(pod: Pod) -> set[Needed]:
    return {
        token_reference(pod, source.serviceAccountToken)
        for volume in pod.spec.volumes or ()
        for source in (volume.projected and volume.projected.sources) or ()
        if source.serviceAccountToken is not None
    }


def _volumes(pod: Pod) -> Mapping[str, Any]:
    """The part of the pod's document that refers; all of it takes long for a large pod."""
    return {"volumes": [volume.to_wire() for volume in pod.spec.volumes or ()]}


def look_up(objects: Objects, reference: Needed, *, optional: bool) -> Mapping[str, bytes] | None:
    """The object's values; None for an optional object that does not exist. NotThere."""
    found = objects.get(reference, ObjectData(problem=f"{reference} was not read"))
    if found.problem:
        raise NotThere(found.problem)
    if not found.absent:
        return found.data
    if optional:
        return None
    raise NotThere(f"{reference} not found")


def _fetched(found: Iterable[ApiReference]) -> set[Needed]:
    kinds = (CONFIG_MAP, SECRET)
    return {Reference(ref.kind, ref.name) for ref in found if ref.kind in kinds and ref.name}
