"""A manifest → its static pod, with the defaults of a pod without an API server; pure.

The defaults are the reference agent's (pkg/kubelet/config/common.go): a name and a uid that differ
on every node, namespace `default`, and annotations that record the pod's source. A pod that cannot
run is refused with the line of the mistake.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pydantic

from orch.component import yaml_file
from orch.component.yaml_file import Document, FieldPath
from orch.wire import names, times, validation
from orch.wire.podrules import references
from orch.wire.podrules.podspec import FILE, NO_EXECUTE, URL, document_fields, places
from orch.wire.podrules.validation import creation_causes
from orch.wire.records.fields import fields_beyond
from orch.wire.records.meta import ObjectMeta, WireModel
from orch.wire.records.placement import Affinity, NodeAffinity
from orch.wire.records.pods import Container, Pod, PodSpec, PodStatus, Toleration

Problem = tuple[str, str]  # the field, and what is wrong with it

_PARTS = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Fields of the reference that need other components, or that only other components read: a warning
# about each of them would teach people to overlook warnings.
_IGNORED_SILENTLY: Mapping[type[WireModel], frozenset[str]] = {
    ObjectMeta: _words("managedFields selfLink creationTimestamp"),
    PodSpec: _words(
        "schedulerName topologySpreadConstraints priorityClassName preemptionPolicy"
        " enableServiceLinks automountServiceAccountToken serviceAccount schedulingGates"
        " os"  # all that is not refused is so here
    ),
    Affinity: _words("podAffinity podAntiAffinity"),
    NodeAffinity: _words("preferredDuringSchedulingIgnoredDuringExecution"),
}


_PATHS_SHOWN, _PATH_SHOWN = 10, 80


class PodFileError(Exception):
    """A manifest that is not a valid pod; the text begins with `file:line:` and names the field."""


@dataclass(frozen=True, slots=True)
class ManifestOrigin:
    """Where a manifest was read: `kind` is FILE or URL, `place` its path or URL."""

    kind: str
    place: str
    node_name: str
    seen: datetime

    @property
    def label(self) -> str:
        return f"{'url' if self.kind == URL else self.kind}:{self.place}"


@dataclass(frozen=True, slots=True)
class PodManifest:
    """`ignored` has a text for each field without effect, with its place."""

    pod: Pod
    ignored: tuple[str, ...]


def static_pod(document: Document, origin: ManifestOrigin) -> PodManifest:
    """The pod of one parsed manifest, with its defaults; PodFileError."""
    written = written_pod(document)
    pod = _of_node(written.pod, document.value, origin)
    for field, message in problems(pod):
        raise _problem(document, _path_of(field), message)
    return PodManifest(_marked(pod, origin), written.ignored)


def written_pod(document: Document) -> PodManifest:
    """The pod of one parsed manifest as it is written, by rights or not; PodFileError."""
    value = document.value
    if not isinstance(value, dict):
        raise PodFileError(f"{document.source}: a pod is expected, not {_shown(value)}")
    kind = (value.get("apiVersion"), value.get("kind"))
    if kind != ("v1", "Pod"):
        raise PodFileError(
            f"{document.source}: apiVersion {kind[0]!r} and kind {kind[1]!r} are not v1 and Pod"
        )
    try:
        pod = Pod.from_wire(value)
    except pydantic.ValidationError as error:
        problem = error.errors()[0]
        raise _problem(document, problem["loc"], problem["msg"]) from None
    if not pod.metadata.name:
        text = "invalid pod: name is needed for the pod"
        raise _problem(document, ("metadata", "name"), text)
    ignored = (str(_problem(document, path, text)) for path, text in unknown_fields(pod))
    return PodManifest(pod, tuple(ignored))


def _of_node(pod: Pod, manifest: object, origin: ManifestOrigin) -> Pod:
    """The pod with its node, its name there, a namespace and a uid."""
    meta = pod.metadata
    metadata = meta.model_copy(
        update={
            "uid": meta.uid or static_pod_uid(manifest, origin),
            "name": f"{meta.name}-{origin.node_name.lower()}",
            "namespace": meta.namespace or names.DEFAULT_NAMESPACE,
            "deletionTimestamp": None,
            "resourceVersion": None,
        }
    )
    spec = pod.spec.model_copy(update={"nodeName": origin.node_name})
    return pod.model_copy(
        update={"metadata": metadata, "spec": spec, "status": PodStatus(phase="Pending")}
    )


def _marked(pod: Pod, origin: ManifestOrigin) -> Pod:
    """The pod with the annotations and the toleration that every pod of its origin has."""
    annotations = {
        **(pod.metadata.annotations or {}),
        names.ANNOTATION_CONFIG_SOURCE: origin.kind,
        names.ANNOTATION_CONFIG_SEEN: times.format_time(origin.seen),
        names.ANNOTATION_CONFIG_HASH: pod.metadata.uid,
    }
    tolerations = list(pod.spec.tolerations or ())
    if origin.kind == FILE:
        tolerations.append(Toleration(operator="Exists", effect=NO_EXECUTE))
    metadata = pod.metadata.model_copy(update={"annotations": annotations})
    spec = pod.spec.model_copy(update={"tolerations": tolerations or None})
    return pod.model_copy(update={"metadata": metadata, "spec": spec})


def static_pod_uid(manifest: object, origin: ManifestOrigin) -> str:
    """32 hexadecimal digits that differ for every manifest, node and place."""
    data = [manifest, f"host:{origin.node_name}", origin.label]
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _path_of(field: str) -> FieldPath:
    """The parts of a path like `spec.containers[0].resources.limits[example.com/gpu]`."""
    parts = (index or name for index, name in _PARTS.findall(field))
    return tuple(int(part) if part.isdecimal() else part for part in parts)


def _problem(document: Document, path: FieldPath, message: str) -> PodFileError:
    return PodFileError(f"{document.place(path)}: {yaml_file.show_path(path)}: {message}")


def _shown(value: object) -> str:
    return "an empty file" if value is None else f"a {type(value).__name__}"


def problems(pod: Pod) -> Iterator[Problem]:
    """Why the agent cannot run a pod that no API server has validated; empty when it can.

    The API server's rules for pods, and further ones for static pods: metadata that can become
    paths on this host, mounts that the runtime accepts, no references to API objects.
    """
    yield from _metadata(pod)
    document = pod.to_wire()
    spec = document["spec"]
    # The agent has set the node's name, which only differs in case from that of a valid object.
    spec["nodeName"] = spec.get("nodeName", "").lower()
    for cause in creation_causes(document["metadata"], spec):
        yield cause.field, cause.message
    for place, container in places(pod):
        yield from _mounts(container, place)
    if not document_fields(spec).isdisjoint(references.FIELDS):
        for found in references.api_references(spec):
            yield found.path, f"a static pod cannot refer to a {found.kind}"


def _metadata(pod: Pod) -> Iterator[Problem]:
    meta = pod.metadata
    for message in validation.dns1123_subdomain_problems(meta.name):
        yield "metadata.name", f"{meta.name!r}: {message}"
    for message in validation.dns1123_label_problems(meta.namespace or ""):
        yield "metadata.namespace", f"{meta.namespace!r}: {message}"
    uid = meta.uid or ""
    if not validation.is_dns1123_label(uid.lower()):
        yield "metadata.uid", f"{uid!r} is not a uid: use letters, digits and '-'"


def _mounts(container: Container, place: str) -> Iterator[Problem]:
    for index, mount in enumerate(container.volumeMounts or ()):
        here = f"{place}.volumeMounts[{index}]"
        if not mount.mountPath.startswith("/") or ":" in mount.mountPath:
            yield f"{here}.mountPath", f"{mount.mountPath!r} must be an absolute path without ':'"


def unknown_fields(pod: Pod) -> list[tuple[FieldPath, str]]:
    """The path of every field without effect, with a text about it.

    Old manifests keep working, as with the reference agent; but a misspelt `securityContext` must
    not go unnoticed.
    """
    found: list[tuple[FieldPath, str]] = []
    for path, model, name in _extras(pod, ()):
        if name in _IGNORED_SILENTLY.get(type(model), ()):
            continue
        if name in (fields_beyond(type(model)) or ()):
            text = "this agent does not support it; it is ignored"
        else:
            text = f"there is no such field; it is ignored{_suggest(type(model), name)}"
        found.append(((*path, name), text))
    return found


def ignored_text(pod: Pod) -> str:
    """The fields of a pod of the API that have no effect here, for an event; "" for none."""
    paths = [yaml_file.show_path(path) for path, _ in unknown_fields(pod)]
    shown = ", ".join(path[:_PATH_SHOWN] for path in paths[:_PATHS_SHOWN])
    more = f" and {len(paths) - _PATHS_SHOWN} more" if len(paths) > _PATHS_SHOWN else ""
    return f"this agent does not support these fields and ignores them: {shown}{more}" * bool(paths)


def _extras(value: Any, path: FieldPath) -> Iterator[tuple[FieldPath, WireModel, str]]:
    if isinstance(value, WireModel):
        for name in value.model_extra or ():
            yield path, value, name
        for name in type(value).model_fields:
            if name != "status":
                yield from _extras(getattr(value, name), (*path, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _extras(item, (*path, index))


def _suggest(model: type[WireModel], name: str) -> str:
    known = [*model.model_fields, *(fields_beyond(model) or ())]
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    return f" (did you mean {near[0]}?)" if near else ""
