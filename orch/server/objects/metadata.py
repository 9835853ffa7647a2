"""The parts of an object's metadata that the server owns; pure.

Identity and times are set at creation and kept by every change, whatever the client sends.
"""

from __future__ import annotations

from typing import Any

from orch.server.objects.document import Document
from orch.wire.errors import bad_request
from orch.wire.records.kinds import Resource

Metadata = dict[str, Any]

GENERATED_BASE_MAX = 58  # so that base and suffix fit in a label of 63
_SERVER_OWNED = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
)
_DROPPED = (*_SERVER_OWNED, "resourceVersion", "selfLink", "managedFields")


def fit_to_endpoint(resource: Resource, namespace: str, document: Document) -> None:
    """Fill kind, apiVersion and namespace from the URL; ApiError 400 on a mismatch."""
    metadata = fit_to_kind(resource.kind, (resource.api_version,), document)
    if resource.namespaced:
        fit_to_namespace(namespace, metadata)
    else:
        metadata.pop("namespace", None)


def fit_to_kind(kind: str, api_versions: tuple[str, ...], document: Document) -> Metadata:
    """Fill kind, apiVersion (the first) and metadata where they are missing; ApiError 400 for
    others. Returns the metadata.
    """
    for name, accepted in (("kind", (kind,)), ("apiVersion", api_versions)):
        if document.get(name, "") == "":
            document[name] = accepted[0]
        elif document[name] not in accepted:
            raise bad_request(
                f"the {name} in the data ({document[name]}) does not match the expected {name}"
                f" ({accepted[0]})"
            )
    metadata = document.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        raise bad_request("metadata: must be an object")
    return metadata


def fit_to_namespace(namespace: str, metadata: Metadata) -> None:
    """Fill the namespace from the URL; ApiError 400 when the body has another."""
    if not metadata.get("namespace"):
        metadata["namespace"] = namespace
    elif metadata["namespace"] != namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def fit_to_name(name: str, document: Document) -> None:
    """ApiError 400 unless the body names the object the URL names (or none)."""
    metadata = document["metadata"]
    if metadata.setdefault("name", name) != name:
        raise bad_request(
            f"the name of the object ({metadata['name']}) does not match the name on the URL"
            f" ({name})"
        )


def named_version(sent: Metadata) -> Any:
    """The resourceVersion that a client names; "" for none, and for "0", which means any."""
    version = sent.get("resourceVersion") or ""
    return "" if version == "0" else version


def stamp_new(document: Document, *, name: str, uid: str, created: str) -> None:
    """Make the metadata of a new object: the client's fields, plus identity and time."""
    sent: Metadata = document["metadata"]
    metadata: Metadata = {"name": name}
    for field in ("generateName", "namespace"):
        if sent.get(field):
            metadata[field] = sent[field]
    metadata |= {"uid": uid, "creationTimestamp": created}
    document["metadata"] = metadata | {
        field: value
        for field, value in sent.items()
        if field not in _DROPPED and field not in metadata
    }


def as_before(changed: Document, before: Document) -> Document:
    """A document that a webhook made, with the identity it had and what the server owns; ApiError
    400 where the webhook gave it another.
    """
    own = before["metadata"]
    metadata = dict(changed.get("metadata") or {})
    for name in ("kind", "apiVersion"):
        if changed.get(name) != before[name]:
            raise bad_request(f"an admission webhook changes {name} to {changed.get(name)!r}")
    for name in ("name", "namespace", "generateName"):
        if metadata.get(name) != own.get(name):
            raise bad_request(f"an admission webhook changes metadata.{name}")
    kept = {name: own[name] for name in _DROPPED if name in own}
    others = {name: value for name, value in metadata.items() if name not in _DROPPED}
    return {**changed, "metadata": {**others, **kept}}


def stamp_changed(new: Document, old: Document) -> None:
    """Restore the stored values of fields that the server owns."""
    sent, stored = new["metadata"], old["metadata"]
    metadata = {field: sent[field] for field in sent if field not in _DROPPED}
    metadata |= {field: stored[field] for field in _SERVER_OWNED if field in stored}
    new["metadata"] = metadata


def drop_double_owners(document: Document) -> list[str]:
    """Keep the first owner of each uid; returns a warning about others. Accepts any shape."""
    found = document.get("metadata")
    owners = found.get("ownerReferences") if isinstance(found, dict) else None
    if not isinstance(owners, list) or not all(isinstance(owner, dict) for owner in owners):
        return []
    kept: dict[str, Any] = {}
    doubles = []
    for owner in owners:
        uid = str(owner.get("uid"))
        if kept.setdefault(uid, owner) is not owner:
            doubles.append(uid)
    if not doubles:
        return []
    document["metadata"]["ownerReferences"] = list(kept.values())
    return [
        ".metadata.ownerReferences contains duplicate entries; the server keeps the first of each;"
        f" duplicate UID(s) observed: {', '.join(doubles)}"
    ]


def generated_name(base: str, suffix: str) -> str:
    return base[:GENERATED_BASE_MAX] + suffix
