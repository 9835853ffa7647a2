"""What must be right about a pod that no API server has seen, before the agent runs it; pure.

The server's own rules for all that an agent runs, and what is asked of such a pod alone: metadata
that can become paths on this host, mounts the runtime takes, nothing that only the API holds.

What a manifest says that nobody will act upon: misspelt fields, and fields not supported; pure.

The reference agent reads static manifests leniently, and so does this one: an old manifest goes on
working. But a field that does nothing is said, because a misspelt `securityContext` would
otherwise be silently no security context.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from orch.component.yaml_file import FieldPath
from orch.wire import validation
from orch.wire.podrules.podspec import places
from orch.wire.podrules.references import api_references
from orch.wire.podrules.validation import runnable_causes
from orch.wire.records.fields import fields_beyond
from orch.wire.records.meta import ObjectMeta, WireModel
from orch.wire.records.pods import Container, Pod, PodSpec

Problem = tuple[str, str]  # the field, and what is wrong with it


def problems(pod: Pod) -> Iterator[Problem]:
    """Every problem; none for a pod that can be run."""
    yield from _metadata(pod)
    spec = pod.to_wire()["spec"]
    for cause in runnable_causes(spec):
        yield cause.field, cause.message
    for place, container in places(pod):
        yield from _mounts(container, place)
    for found in api_references(spec):
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
        if mount.subPath and (mount.subPath.startswith("/") or ".." in mount.subPath.split("/")):
            yield f"{here}.subPath", f"{mount.subPath!r} must be relative and without '..'"


UnknownfieldsProblem = tuple[FieldPath, str]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Fields of the reference that do nothing on a node without their machinery, or that only others
# read: saying each time that they are ignored would only teach people to overlook it.
_OF_OTHERS: Mapping[type[WireModel], frozenset[str]] = {
    ObjectMeta: _words("managedFields selfLink creationTimestamp"),
    PodSpec: _words(
        "schedulerName affinity topologySpreadConstraints priorityClassName preemptionPolicy"
        " enableServiceLinks automountServiceAccountToken serviceAccount schedulingGates"
    ),
    Container: _words("stdinOnce"),
}


def unknown_fields(pod: Pod) -> list[UnknownfieldsProblem]:
    """The path of every field that does nothing, with what is said of it."""
    found: list[UnknownfieldsProblem] = []
    for path, model, name in _extras(pod, ()):
        if name in _OF_OTHERS.get(type(model), ()):
            continue
        if name in (fields_beyond(type(model)) or ()):
            text = "this agent does not support it; it is ignored"
        else:
            text = f"there is no such field; it is ignored{_guess(type(model), name)}"
        found.append(((*path, name), text))
    return found


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


def _guess(model: type[WireModel], name: str) -> str:
    known = [*model.model_fields, *(fields_beyond(model) or ())]
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    return f" (did you mean {near[0]}?)" if near else ""
