"""A manifest → the static pod it stands for, with the defaults a pod without API server gets.

The defaults are the reference agent's (pkg/kubelet/config/common.go): a name and a uid of its own
on every node, namespace `default`, and annotations that tell where the pod came from.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pydantic

from nodeagent.pods.sources import validation
from nodeagent.pods.spec import identity
from orch.component import yaml_file
from orch.component.yaml_file import Document, FieldPath, YamlError
from orch.wire import names, times
from orch.wire.podrules.podspec import FILE, NO_EXECUTE, URL
from orch.wire.records.pods import Pod, PodStatus, Toleration

log = logging.getLogger(__name__)

_PARTS = re.compile(r"[^.\[\]]+")


class ManifestError(Exception):
    """A manifest that stands for no pod; the text begins with `file:line:` and names the field."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a manifest was read: `kind` is FILE or URL, `place` its path or address."""

    kind: str
    place: str
    node_name: str
    seen: datetime

    @property
    def label(self) -> str:
        return f"{'url' if self.kind == URL else self.kind}:{self.place}"


def read_manifest(path: Path, origin: Origin) -> Pod:
    """Read one file. ManifestError for its content; OSError is the caller's."""
    try:
        document = yaml_file.read_yaml_file(path)
    except YamlError as error:
        raise ManifestError(str(error)) from None
    return static_pod(document, origin)


def static_pod(document: Document, origin: Origin) -> Pod:
    """The pod of one parsed manifest; fields that do nothing are logged with their place."""
    value = document.value
    if not isinstance(value, dict):
        raise ManifestError(f"{document.source}: a pod is expected, not {_shown(value)}")
    kind = (value.get("apiVersion"), value.get("kind"))
    if kind != ("v1", "Pod"):
        raise ManifestError(
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
    pod = with_defaults(pod, value, origin)
    for field, message in validation.problems(pod):
        raise _problem(document, _path_of(field), message)
    for path, message in validation.unknown_fields(Pod.from_wire(value)):
        log.warning("%s", _problem(document, path, message))
    return pod


def with_defaults(pod: Pod, manifest: object, origin: Origin) -> Pod:
    """The pod with its name on this node, namespace, uid, annotations and toleration."""
    meta = pod.metadata
    uid = meta.uid or identity.static_pod_uid(manifest, origin.node_name, origin.label)
    annotations = {
        **(meta.annotations or {}),
        names.ANNOTATION_CONFIG_SOURCE: origin.kind,
        names.ANNOTATION_CONFIG_SEEN: times.format_time(origin.seen),
        names.ANNOTATION_CONFIG_HASH: uid,
    }
    metadata = meta.model_copy(
        update={
            "uid": uid,
            "name": f"{meta.name}-{origin.node_name.lower()}",
            "namespace": meta.namespace or names.DEFAULT_NAMESPACE,
            "annotations": annotations,
            "deletionTimestamp": None,
            "resourceVersion": None,
        }
    )
    tolerations = list(pod.spec.tolerations or ())
    if origin.kind == FILE:
        tolerations.append(Toleration(operator="Exists", effect=NO_EXECUTE))
    spec = pod.spec.model_copy(
        update={"nodeName": origin.node_name, "tolerations": tolerations or None}
    )
    return pod.model_copy(
        update={"metadata": metadata, "spec": spec, "status": PodStatus(phase="Pending")}
    )


def _path_of(field: str) -> FieldPath:
    """`spec.containers[0].name`, in parts."""
    return tuple(int(part) if part.isdecimal() else part for part in _PARTS.findall(field))


def _problem(document: Document, path: FieldPath, message: str) -> ManifestError:
    return ManifestError(f"{document.place(path)}: {yaml_file.show_path(path)}: {message}")


def _shown(value: object) -> str:
    return "an empty file" if value is None else f"a {type(value).__name__}"
