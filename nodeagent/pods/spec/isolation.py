"""The agent's own checks of the isolation that a pod asks for, before anything is made; pure.

The API server's rules again (`podrules.isolation`), because pods also come from elsewhere, and what
only this node can tell: AppArmor, the runtime's handlers, the user that an image names, and kernel
parameters. Of those a pod may set the ones that are confined to its namespaces by kernels that are
new enough (spec.md, "Kernel requirements"), and what the node's administrator allows
(`allowedUnsafeSysctls`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from nodeagent.pods.spec.env import SpecError
from nodeagent.runtime.base import Image
from nodeagent.runtime.isolation import RuntimeFeatures, SeccompKind, SeccompSetting, SELinuxLabel
from orch.wire import names
from orch.wire.errors import Cause
from orch.wire.podrules import isolation
from orch.wire.podrules.podspec import all_containers, place_of
from orch.wire.records.isolation import (
    AppArmorProfile,
    PodSecurityContext,
    SecurityContext,
    SELinuxOptions,
)
from orch.wire.records.pods import Container, Pod

MAX_RUNTIME_METADATA_BYTES = 8 * 1024  # of a pod's labels, and of its annotations
_MAX_ENTRY_BYTES = 1024
_MAX_ID = 2**31 - 1

# The first kernel that gives every namespace its own value; (0, 0): all supported ones.
SAFE_SYSCTLS: dict[str, tuple[int, int]] = {
    "kernel.shm_rmid_forced": (0, 0),
    "net.ipv4.ip_local_port_range": (0, 0),
    "net.ipv4.ping_group_range": (0, 0),
    "net.ipv4.ip_unprivileged_port_start": (0, 0),
    "net.ipv4.ip_local_reserved_ports": (3, 16),
    "net.ipv4.tcp_keepalive_time": (4, 5),
    "net.ipv4.tcp_keepalive_intvl": (4, 5),
    "net.ipv4.tcp_keepalive_probes": (4, 5),
    "net.ipv4.tcp_fin_timeout": (4, 6),
    "net.ipv4.tcp_syncookies": (4, 6),
    "net.ipv4.tcp_rmem": (4, 15),
    "net.ipv4.tcp_wmem": (4, 15),
}
_VERSION = re.compile(r"(\d+)\.(\d+)")
_ANNOTATED = {
    "runtime/default": AppArmorProfile(type="RuntimeDefault"),
    "unconfined": AppArmorProfile(type="Unconfined"),
}


def require_supported(pod: Pod) -> None:
    """SpecError for a pod whose sandbox would have less isolation than the pod asks for."""
    _require(isolation.pod_causes(pod.to_wire()["spec"]))
    if _size(_short(pod.metadata.annotations)) > MAX_RUNTIME_METADATA_BYTES:
        raise SpecError(
            f"metadata.annotations: those of up to {_MAX_ENTRY_BYTES} bytes are passed to the "
            f"runtime, and take more than {MAX_RUNTIME_METADATA_BYTES} bytes together; remove some"
        )


def require_features(pod: Pod, handler: str, features: RuntimeFeatures) -> None:
    """SpecError for a pod that needs what the runtime, or its `handler`, does not have."""
    if handler and handler not in features.handlers:
        known = ", ".join(sorted(filter(None, features.handlers))) or "none"
        raise SpecError(
            f"spec.runtimeClassName: the runtime has no handler {handler!r}; it has {known}"
        )
    if pod.spec.hostUsers is False and handler not in features.user_namespaces:
        lacking = f"RuntimeClass handler {handler!r}" if handler else "runtime"
        raise SpecError(
            f"can't set `spec.hostUsers: false`, {lacking} does not support user namespaces"
        )
    if _needs_strict_groups(pod) and not features.strict_groups:
        raise SpecError(
            "spec.securityContext.supplementalGroupsPolicy: the runtime of this node does not "
            "support Strict; use Merge"
        )
    if _needs_recursion(pod) and handler not in features.recursive_readonly:
        raise SpecError(
            "volumeMounts.recursiveReadOnly: the runtime of this node has no recursive read-only "
            "mounts; use IfPossible, or a newer runtime and kernel"
        )


def needs_features(pod: Pod) -> bool:
    """Whether the pod asks for what only some runtimes have."""
    spec = pod.spec
    special = bool(spec.runtimeClassName) or spec.hostUsers is False
    return special or _needs_strict_groups(pod) or _needs_recursion(pod)


def _needs_recursion(pod: Pod) -> bool:
    mounts = (mount for c in all_containers(pod) for mount in c.volumeMounts or ())
    return any(mount.recursiveReadOnly == "Enabled" for mount in mounts)


def _needs_strict_groups(pod: Pod) -> bool:
    context = pod.spec.securityContext
    return context is not None and context.supplementalGroupsPolicy == "Strict"


def require_supported_container(pod: Pod, container: Container) -> None:
    """SpecError for a container that would run with less isolation than it asks for."""
    own_users = pod.spec.hostUsers is False
    place = place_of(pod, container)
    _require(isolation.container_causes(container.to_wire(), place, host_users=not own_users))


def selinux(options: SELinuxOptions | None) -> SELinuxLabel | None:
    """The label that the runtime is asked for; it does nothing where SELinux is off."""
    if options is None:
        return None
    parts = (options.user, options.role, options.type, options.level)
    return SELinuxLabel(*(part or "" for part in parts))


def apparmor(pod: Pod, container: Container, *, enabled: bool) -> SeccompSetting | None:
    """The AppArmor profile of a container, None for the runtime's default where there is one.

    SpecError where it cannot be enforced; `enabled`: whether this host has AppArmor.
    """
    own, whole = container.securityContext, pod.spec.securityContext
    annotated = _annotated(pod.metadata.annotations or {}, container.name)
    profile = (own and own.appArmorProfile) or annotated or (whole and whole.appArmorProfile)
    if not profile:
        return None
    setting = SeccompSetting(SeccompKind(profile.type), profile.localhostProfile or "")
    if not enabled and setting.kind is not SeccompKind.UNCONFINED:
        raise SpecError(
            f"{place_of(pod, container)}: Cannot enforce AppArmor: AppArmor is not enabled on the "
            "host (appArmorProfile); choose a node that has it, or the type Unconfined"
        )
    return setting


def require_loaded(setting: SeccompSetting | None, loaded: str) -> None:
    """SpecError for a profile that is not in `loaded`: lines `name (mode)`, "" if unknown."""
    if setting is None or setting.kind is not SeccompKind.LOCALHOST or not loaded:
        return
    names_loaded = {line.rpartition(" (")[0] for line in loaded.splitlines()}
    if setting.localhost_path not in names_loaded:
        text = f'profile "{setting.localhost_path}" is not loaded (appArmorProfile)'
        raise SpecError(f"Cannot enforce AppArmor: {text}; load it with apparmor_parser")


def _annotated(annotations: Mapping[str, str], container: str) -> AppArmorProfile | None:
    """The profile in the annotation that came before the field."""
    value = annotations.get(names.ANNOTATION_APPARMOR_PREFIX + container)
    if value is None:
        return None
    if value.startswith("localhost/"):
        return AppArmorProfile(type="Localhost", localhostProfile=value.removeprefix("localhost/"))
    if value not in _ANNOTATED:
        raise SpecError(
            f"metadata.annotations[{names.ANNOTATION_APPARMOR_PREFIX}{container}]: {value!r} is "
            "not one of runtime/default, unconfined, localhost/<profile>"
        )
    return _ANNOTATED[value]


def sysctl_problem(pod: Pod, kernel_version: str, unsafe: Iterable[str] = ()) -> str:
    """Why the pod's first bad sysctl is refused; "" when all are fine.

    `unsafe` are names that are allowed beside the safe ones; one may end in `*`.
    """
    context, patterns = pod.spec.securityContext, tuple(unsafe)
    for sysctl in (context and context.sysctls) or ():
        name = sysctl.name.replace("/", ".")
        why = _name_problem(name, kernel_version, patterns) or _namespace_problem(name, pod)
        if why:
            return f'forbidden sysctl: "{name}" {why}'
    return ""


def _name_problem(name: str, kernel_version: str, unsafe: tuple[str, ...]) -> str:
    if any(_is_meant(name, pattern.replace("/", ".")) for pattern in unsafe):
        return ""
    if name not in SAFE_SYSCTLS:
        return "not allowlisted; allowedUnsafeSysctls of the node may name it"
    needed = SAFE_SYSCTLS[name]
    if is_at_least(kernel_version, needed):
        return ""
    return f"needs kernel {needed[0]}.{needed[1]}, this node has {kernel_version}"


def _is_meant(name: str, pattern: str) -> bool:
    if pattern.endswith("*"):
        return name.startswith(pattern[:-1])
    return name == pattern


def _namespace_problem(name: str, pod: Pod) -> str:
    of_host = {"Net": pod.spec.hostNetwork, "IPC": pod.spec.hostIPC}
    namespace = isolation.sysctl_namespace(name)
    shown = namespace.lower()
    return f"not allowed with host {shown} enabled" if of_host.get(namespace) else ""


def is_at_least(version: str, needed: tuple[int, int]) -> bool:
    """An unreadable version counts as new enough: the runtime has the last word."""
    match = _VERSION.match(version)
    return match is None or (int(match[1]), int(match[2])) >= needed


def require_user(pod: Pod, container: Container) -> bool:
    """Whether the image's user must be checked; SpecError where the pod contradicts itself."""
    own = container.securityContext or SecurityContext()
    whole = pod.spec.securityContext or PodSecurityContext()
    nonroot = whole.runAsNonRoot if own.runAsNonRoot is None else own.runAsNonRoot
    user = whole.runAsUser if own.runAsUser is None else own.runAsUser
    if nonroot and user == 0:
        text = "container's runAsUser breaks non-root policy"
        raise SpecError(f"{text} {_shown(pod, container)}")
    return bool(nonroot) and user is None


def require_image_user(pod: Pod, container: Container, image: Image | None) -> None:
    """SpecError when the image runs as root, or may; without an image or a user it does."""
    uid, user = (image.uid, image.username) if image else (None, "")
    advice = f"set runAsUser {_shown(pod, container)}"
    if uid is None and user:
        raise SpecError(
            f"container has runAsNonRoot and image has non-numeric user ({user}), cannot verify "
            f"user is non-root; {advice}"
        )
    if not uid:
        raise SpecError(f"container has runAsNonRoot and image will run as root; {advice}")
    if not 0 < uid <= _MAX_ID:  # cut to 32 bits, or looked up as a name, it may be root's
        raise SpecError(
            f"container has runAsNonRoot and image has user {uid}, which is not between 1 and "
            f"{_MAX_ID}; {advice}"
        )


def for_runtime(entries: Mapping[str, str] | None) -> dict[str, str]:
    """The labels or annotations of a pod that its runtime and plugins may read.

    Longer values are left out, and all of them where they take more than
    MAX_RUNTIME_METADATA_BYTES: the runtime lists all its pods in one message of bounded size.
    """
    short = _short(entries)
    return short if _size(short) <= MAX_RUNTIME_METADATA_BYTES else {}


def _short(entries: Mapping[str, str] | None) -> dict[str, str]:
    return {k: v for k, v in (entries or {}).items() if _size({k: v}) <= _MAX_ENTRY_BYTES}


def _size(entries: Mapping[str, str]) -> int:
    return sum(len(key.encode()) + len(value.encode()) for key, value in entries.items())


def _require(found: Iterable[Cause]) -> None:
    for cause in found:
        raise SpecError(f"{cause.field}: {cause.message}")


def _shown(pod: Pod, container: Container) -> str:
    meta = pod.metadata
    shown = f"{meta.name}_{meta.namespace or ''}({meta.uid or ''})"
    return f'(pod: "{shown}", container: {container.name})'
