"""Changes of the cpu and memory of a pod that may be running already (`pods/resize`); pure.

What may change, field paths and texts are the reference's (K:pkg/apis/core/validation,
ValidatePodResize). Pods are documents. Whether a node has room is asked of the node, at
admission and by its agent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from orch.wire import causes, quantity, raw
from orch.wire.errors import Cause
from orch.wire.podrules.podspec import LASTING, document_places, mirror_hash
from orch.wire.podrules.resources import PARTS, RESIZED, pod_level_causes, resource_causes

Document = dict[str, Any]

SIZED = ("resources", "resizePolicy")
_CHANGES = "only cpu and memory resources are mutable"
_CHANGES_OF_INIT = "only cpu and memory resources for init or sidecar containers are mutable"


def sized_spec(sent: Document, old: Document) -> Document:
    """The old spec with the sizes of the sent one; the sent one whole where its containers are
    others, which is refused then.
    """
    kept = {**old, **{name: _sized(sent, old, name) for name in LASTING if old.get(name)}}
    if [len(kept.get(name) or ()) for name in LASTING] != _counts(sent):
        return sent
    if sent.get("resources") is None:
        kept.pop("resources", None)
    else:
        kept["resources"] = sent["resources"]
    return kept


def _counts(spec: Document) -> list[int]:
    return [len(spec.get(name) or ()) for name in LASTING]


def _sized(sent: Document, old: Document, name: str) -> list[Document]:
    new, before = sent.get(name) or [], old.get(name) or []
    if [c.get("name") for c in new] != [c.get("name") for c in before]:
        return list(new)
    return [
        {
            **{key: part for key, part in container.items() if key not in SIZED},
            **{key: wanted[key] for key in SIZED if wanted.get(key) is not None},
        }
        for container, wanted in zip(before, new, strict=True)
    ]


def resize_causes(new: Document, old: Document) -> Iterator[Cause]:
    """What is wrong with a resize of the pod `old`; both have the defaults. Without the class of
    service, which `qos_causes` judges.
    """
    if mirror_hash(old) is not None:
        yield causes.forbidden("", "static pods cannot be resized")
        return
    if raw.text(old, "spec", "os", "name") == "windows":
        yield causes.forbidden("", "windows pods cannot be resized")
        return
    if not _is_supported(old):
        yield causes.forbidden("spec", "Pod running on node without support for resize")
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    found = [*_place_causes(spec, before)]
    if found:
        yield from found
        return
    if spec.get("resources") or before.get("resources"):
        yield from _pod_level_causes(spec, before)
    for (path, container), (_, former) in zip(
        document_places(spec, LASTING), document_places(before, LASTING), strict=True
    ):
        if container != former:
            yield from _container_causes(container, former, path)


def _is_supported(pod: Document) -> bool:
    """An agent that can resize reports what its running containers have."""
    for status in raw.records(pod, "status", "containerStatuses"):
        if raw.value(status, "state", "running") is not None:
            return status.get("resources") is not None
    return True


def _place_causes(spec: Document, before: Document) -> Iterator[Cause]:
    for name in LASTING:
        names, former = ([c.get("name") for c in part.get(name) or ()] for part in (spec, before))
        if len(names) != len(former):
            text = f"{name} may not be added or removed on resize"
            yield causes.forbidden(f"spec.{name}", text)
            continue
        for index, pair in enumerate(zip(names, former, strict=True)):
            if pair[0] != pair[1]:
                text = f"{name} may not be renamed or reordered on resize"
                yield causes.forbidden(f"spec.{name}[{index}].name", text)


def _pod_level_causes(spec: Document, before: Document) -> Iterator[Cause]:
    path, new, old = "spec.resources", spec.get("resources"), before.get("resources")
    if old and not new:
        yield causes.forbidden(path, "pod-level resources cannot be removed")
        return
    for part in PARTS:
        if _removed(new or {}, old or {}, part):
            text = f"pod-level resource {part} cannot be removed"
            yield causes.forbidden(f"{path}.{part}", text)
    yield from pod_level_causes(spec)
    if _others(new or {}) != _others(old or {}):
        yield causes.forbidden("spec", f"{_CHANGES} at pod-level")


def _container_causes(container: Document, former: Document, path: str) -> Iterator[Cause]:
    new, old = container.get("resources") or {}, former.get("resources") or {}
    for part in PARTS:
        if _removed(new, old, part):
            text = f"resource {part} cannot be removed"
            yield causes.forbidden(f"{path}.resources.{part}", text)
    yield from resource_causes(new, f"{path}.resources")
    is_init = path.startswith("spec.init")
    if _fixed(container) != _fixed(former):
        yield causes.forbidden(*((path, _CHANGES_OF_INIT) if is_init else ("spec", _CHANGES)))
    if is_init and container.get("restartPolicy") != "Always" and _restarts(container):
        text = "non-sidecar init containers with a resize policy of RestartContainer"
        yield causes.forbidden(path, f"{text} cannot be resized")


def _removed(new: Mapping[str, Any], old: Mapping[str, Any], part: str) -> bool:
    return not (old.get(part) or {}).keys() <= (new.get(part) or {}).keys()


def _restarts(container: Document) -> bool:
    policies = raw.records(container, "resizePolicy")
    return any(policy.get("restartPolicy") == "RestartContainer" for policy in policies)


def _fixed(container: Document) -> Document:
    """What no resize may change of a container."""
    others = {name: part for name, part in container.items() if name != "resources"}
    return {**others, "resources": _others(container.get("resources") or {})}


def _others(resources: Mapping[str, Any]) -> Document:
    """All resources but cpu and memory, with amounts that can be compared."""
    kept: Document = {name: value for name, value in resources.items() if name not in PARTS}
    for part in PARTS:
        amounts = resources.get(part) or {}
        kept[part] = {k: _comparable(v) for k, v in amounts.items() if k not in RESIZED}
    return kept


def _comparable(amount: Any) -> Any:
    try:
        return quantity.parse_quantity(amount)
    except ValueError:
        return amount
