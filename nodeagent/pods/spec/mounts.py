"""The mounts of a container: which host path appears at which path; pure.

Joins sub-paths to the volumes' paths and refuses those that lead out of them. Links inside a volume
are the concern of `volumes`, which reads the real files.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from nodeagent.pods.spec import env
from nodeagent.pods.spec.env import SpecError
from nodeagent.runtime.base import Mount
from orch.wire.records.pods import Container, VolumeMount, VolumeMountStatus

_PATH_MAX = 4096  # bytes, as the kernel's
_SHOWN = 100
_DISABLED = "Disabled"
_WRITTEN = ("downward-api", "configmap", "secret", "projected")
_PROPAGATION = {
    "": "private",
    "None": "private",
    "HostToContainer": "host_to_container",
    "Bidirectional": "bidirectional",
}


def container_mounts(
    container: Container,
    volumes: Mapping[str, str],
    images: Mapping[str, str],
    values: Mapping[str, str],
    *,
    recursive_possible: bool = True,
) -> tuple[Mount, ...]:
    """One mount per volumeMount.

    `volumes` gives paths on the host, `images` references, both by the volume's name; `values` are
    the container's environment (for subPathExpr).
    """
    return tuple(
        _image_mount(container, mount, images[mount.name])
        if mount.name in images
        else _mount(container, mount, volumes, values, recursive_possible)
        for mount in container.volumeMounts or ()
    )


def sub_path(mount: VolumeMount, values: Mapping[str, str]) -> str:
    """The path below the volume, "" for the volume itself; SpecError when it leads out of it, or is
    longer than any path.
    """
    path = _expanded(mount.subPathExpr, values) if mount.subPathExpr else mount.subPath or ""
    if len(path.encode(errors="replace")) > _PATH_MAX:
        raise SpecError(f"subPath {path[:_SHOWN]!r} has more than {_PATH_MAX} bytes")
    if path.startswith("/") or ".." in PurePosixPath(path).parts or "\0" in path:
        raise SpecError(f"subPath {path!r} must be relative and must not contain '..' or NUL")
    return path


def _expanded(expression: str, values: Mapping[str, str]) -> str:
    try:
        return env.expand(expression, values, env.Room(_PATH_MAX))
    except SpecError:
        shown = expression[:_SHOWN]
        raise SpecError(f"subPathExpr {shown!r} stands for more than {_PATH_MAX} bytes") from None


def _mount(
    container: Container,
    mount: VolumeMount,
    volumes: Mapping[str, str],
    values: Mapping[str, str],
    recursive_possible: bool,
) -> Mount:
    source = volumes.get(mount.name)
    if source is None:
        raise SpecError(f"container {container.name}: volume {mount.name!r} is not in spec.volumes")
    below = sub_path(mount, values)
    # A container must not change files that the agent writes as root.
    readonly = bool(mount.readOnly) or any(f"/volumes/{kind}/" in source for kind in _WRITTEN)
    return Mount(
        host_path=str(PurePosixPath(source, below)) if below else source,
        container_path=mount.mountPath,
        readonly=readonly,
        propagation=_propagation(container, mount),
        recursive_readonly=_is_recursive(container, mount, possible=recursive_possible),
    )


def _image_mount(container: Container, mount: VolumeMount, reference: str) -> Mount:
    if mount.subPath or mount.subPathExpr or mount.mountPropagation not in (None, "", "None"):
        raise SpecError(
            f"container {container.name}: volumeMount {mount.mountPath}: an image volume is "
            "mounted whole and by itself; leave out subPath, subPathExpr and mountPropagation"
        )
    return Mount("", mount.mountPath, readonly=True, image=reference)


def _is_recursive(container: Container, mount: VolumeMount, *, possible: bool) -> bool:
    """Whether mounts below the volume become read-only, too; SpecError where that fails."""
    asked = mount.recursiveReadOnly or _DISABLED
    where = f"container {container.name}: volumeMount {mount.mountPath}: recursiveReadOnly {asked}"
    if asked not in (_DISABLED, "IfPossible", "Enabled"):
        raise SpecError(f"{where} is not one of Disabled, IfPossible, Enabled")
    if asked == _DISABLED:
        return False
    if not mount.readOnly:
        raise SpecError(f"{where} needs readOnly: true")
    if mount.mountPropagation not in (None, "", "None"):
        raise SpecError(f"{where} needs mountPropagation None")
    if asked == "Enabled" and not possible:
        raise SpecError(f"{where} needs kernel 5.12 (mount_setattr)")
    return possible


def mount_statuses(
    container: Container, *, recursive_possible: bool
) -> list[VolumeMountStatus] | None:
    """How the volumes of a container are mounted; None without any."""
    shown = [
        VolumeMountStatus(
            name=mount.name,
            mountPath=mount.mountPath,
            readOnly=mount.readOnly or None,
            recursiveReadOnly=_recursion(mount, possible=recursive_possible),
        )
        for mount in container.volumeMounts or ()
    ]
    return shown or None


def _recursion(mount: VolumeMount, *, possible: bool) -> str | None:
    if not mount.readOnly:
        return None
    asked = mount.recursiveReadOnly or _DISABLED
    return "Enabled" if asked != _DISABLED and possible else _DISABLED


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
