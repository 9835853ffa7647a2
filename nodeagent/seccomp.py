"""Selects the seccomp profile of a container: its own, its pod's, or the agent's default; pure.

Privileged containers run unconfined. Sources: spec.md "Seccomp profile selection" and the reference
agent's kuberuntime helpers; unlike there, an unknown profile type is an error, since a typo in a
static pod would silently remove the protection. Must not read profile files (`profiles.file`).
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from pathlib import PurePosixPath

from nodeagent.runtime.isolation import SeccompKind, SeccompSetting
from orch.wire.podrules.podspec import place_of
from orch.wire.records.isolation import SeccompProfile
from orch.wire.records.pods import Container, Pod

CONFIG_ERROR = "CreateContainerConfigError"
CREATE_ERROR = "CreateContainerError"

_UNCONFINED = SeccompSetting(SeccompKind.UNCONFINED)
_RUNTIME_DEFAULT = SeccompSetting(SeccompKind.RUNTIME_DEFAULT)


class SeccompError(Exception):
    """A container cannot be created with the profile it specifies.

    `reason` becomes its waiting reason: CONFIG_ERROR when the pod is invalid and retrying cannot
    help; CREATE_ERROR when the node lacks the profile.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@dataclass(frozen=True, slots=True)
class Resolution:
    """The profile of a container, and the field that decided it."""

    setting: SeccompSetting
    source: str  # "spec.containers[0].securityContext.seccompProfile", "seccompDefault", …


def resolve(
    pod: Pod, container: Container, *, seccomp_default: bool, seccomp_root: str
) -> Resolution:
    """The runtime's setting for `container` of `pod`, and its origin.

    `seccomp_default` is the agent's setting: RuntimeDefault instead of Unconfined by default.
    `seccomp_root` is the absolute directory of Localhost profiles. SeccompError with CONFIG_ERROR,
    naming the field, when the profile is malformed.
    """
    context, pod_context = container.securityContext, pod.spec.securityContext
    place = place_of(pod, container)
    if context and context.privileged:
        return Resolution(_UNCONFINED, f"{place}.securityContext.privileged")
    for profile, field in (
        (context and context.seccompProfile, f"{place}.securityContext.seccompProfile"),
        (pod_context and pod_context.seccompProfile, "spec.securityContext.seccompProfile"),
    ):
        if profile:
            return Resolution(_setting_at(profile, seccomp_root, field), field)
    if seccomp_default:
        return Resolution(_RUNTIME_DEFAULT, "seccompDefault")
    return Resolution(_UNCONFINED, "default")


def _setting_at(profile: SeccompProfile, seccomp_root: str, field: str) -> SeccompSetting:
    try:
        return _setting(profile, seccomp_root)
    except SeccompError as error:
        raise SeccompError(error.reason, f"{error.message} ({field})") from None


def _setting(profile: SeccompProfile, seccomp_root: str) -> SeccompSetting:
    if profile.type == SeccompKind.LOCALHOST.value:
        path = _profile_path(profile.localhostProfile or "", seccomp_root)
        return SeccompSetting(SeccompKind.LOCALHOST, path)
    if profile.type == SeccompKind.RUNTIME_DEFAULT.value:
        return _RUNTIME_DEFAULT
    if profile.type == SeccompKind.UNCONFINED.value:
        return _UNCONFINED
    raise SeccompError(
        CONFIG_ERROR,
        f"seccompProfile type {profile.type!r} is unknown; "
        "use RuntimeDefault, Unconfined or Localhost",
    )


def _profile_path(name: str, seccomp_root: str) -> str:
    """The absolute path of the profile `name`, which must stay below `seccomp_root`."""
    if not name:
        raise SeccompError(
            CONFIG_ERROR, "localhostProfile must be set if seccompProfile type is Localhost."
        )
    if name.startswith("/"):
        raise SeccompError(CONFIG_ERROR, f"localhostProfile {name!r} must be a relative path")
    if ".." in PurePosixPath(name).parts:
        raise SeccompError(CONFIG_ERROR, f"localhostProfile {name!r} must not contain '..'")
    if "\0" in name:
        raise SeccompError(CONFIG_ERROR, f"localhostProfile {name!r} must not contain a NUL byte")
    return posixpath.normpath(posixpath.join(seccomp_root, name))
