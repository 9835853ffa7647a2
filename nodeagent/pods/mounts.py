"""Which host paths a container sees where; pure.

Volumes are already on the host; this module joins sub-paths and refuses what would lead out of
them. Links inside a volume are the concern of `volumes`, which looks at the real files.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from nodeagent.pods import env
from nodeagent.pods.env import SpecError
from nodeagent.runtime.base import Mount
from orch.wire.pods import Container, VolumeMount

_PROPAGATION = {
    "": "private",
    "None": "private",
    "HostToContainer": "host_to_container",
    "Bidirectional": "bidirectional",
}


def container_mounts(
    container: Container, volumes: Mapping[str, str], values: Mapping[str, str]
) -> tuple[Mount, ...]:
    """One mount per volumeMount; `values` are the container's environment (for subPathExpr)."""
    return tuple(
        _mount(container, mount, volumes, values) for mount in container.volumeMounts or ()
    )


def sub_path(mount: VolumeMount, values: Mapping[str, str]) -> str:
    """The path below the volume, "" for the volume itself; SpecError when it leads out of it."""
    expression = str((mount.model_extra or {}).get("subPathExpr") or "")
    path = env.expand(expression, values) if expression else mount.subPath or ""
    if path.startswith("/") or ".." in PurePosixPath(path).parts:
        raise SpecError(f"subPath {path!r} must be relative and must not contain '..'")
    return path


def _mount(
    container: Container, mount: VolumeMount, volumes: Mapping[str, str], values: Mapping[str, str]
) -> Mount:
    source = volumes.get(mount.name)
    if source is None:
        raise SpecError(f"container {container.name}: volume {mount.name!r} is not in spec.volumes")
    below = sub_path(mount, values)
    # what the agent itself writes there must not be turned against the host by a container
    readonly = bool(mount.readOnly) or "/volumes/downward-api/" in source
    return Mount(
        host_path=str(PurePosixPath(source, below)) if below else source,
        container_path=mount.mountPath,
        readonly=readonly,
        propagation=_propagation(container, mount),
        recursive_readonly=readonly
        and (mount.model_extra or {}).get("recursiveReadOnly") == "Enabled",
    )


def _propagation(container: Container, mount: VolumeMount) -> str:
    asked = mount.mountPropagation or ""
    if asked not in _PROPAGATION:
        raise SpecError(
            f"container {container.name}: mountPropagation {asked!r} is not one of None, "
            "HostToContainer, Bidirectional"
        )
    security = container.securityContext
    if asked == "Bidirectional" and not (security and security.privileged):
        raise SpecError(
            f"container {container.name}: mountPropagation Bidirectional needs privileged: true"
        )
    return _PROPAGATION[asked]
