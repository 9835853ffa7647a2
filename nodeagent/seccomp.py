"""Which seccomp profile a container runs under; pure.

A container's own setting comes before its pod's; without either the agent's default decides. A
privileged container is never confined. Sources: spec.md "Seccomp profile selection" and the
reference agent's table (kuberuntime helpers). Whether a profile's file is there is the business of
`seccompfile`.

Stricter than the reference agent, which runs a profile type it does not know unconfined: a typing
error in a static pod, which no API server has checked, would silently remove the protection.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from pathlib import PurePosixPath

from nodeagent.runtime.base import SeccompKind, SeccompSetting
from orch.wire.podrules.podspec import places
from orch.wire.records.pods import Container, Pod, SeccompProfile

CONFIG_ERROR = "CreateContainerConfigError"
CREATE_ERROR = "CreateContainerError"

_UNCONFINED = SeccompSetting(SeccompKind.UNCONFINED)
_RUNTIME_DEFAULT = SeccompSetting(SeccompKind.RUNTIME_DEFAULT)


class SeccompError(Exception):
    """A container cannot be created with the profile it asks for.

    `reason` becomes its waiting reason: CONFIG_ERROR when the pod's own text is wrong, and trying
    again cannot help; CREATE_ERROR when the node lacks what the text names.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@dataclass(frozen=True, slots=True)
class Resolution:
    """The profile of a container, and which field decided it."""

    setting: SeccompSetting
    source: str  # "spec.containers[0].securityContext.seccompProfile", "seccompDefault", …


def resolve(
    pod: Pod, container: Container, *, seccomp_default: bool, seccomp_root: str
) -> Resolution:
    """The setting to give the runtime for `container` of `pod`, and where it comes from.

    `seccomp_default` is the agent's setting: RuntimeDefault instead of Unconfined where nothing is
    said. `seccomp_root` is the absolute directory of Localhost profiles. SeccompError with
    CONFIG_ERROR when the profile that applies is not well formed; its text names the field.
    """
    context, whole = container.securityContext, pod.spec.securityContext
    place = _place_of(pod, container)
    if context and context.privileged:
        return Resolution(_UNCONFINED, f"{place}.securityContext.privileged")
    for profile, field in (
        (context and context.seccompProfile, f"{place}.securityContext.seccompProfile"),
        (whole and whole.seccompProfile, "spec.securityContext.seccompProfile"),
    ):
        if profile:
            return Resolution(_setting_at(profile, seccomp_root, field), field)
    if seccomp_default:
        return Resolution(_RUNTIME_DEFAULT, "seccompDefault")
    return Resolution(_UNCONFINED, "default")


def _place_of(pod: Pod, container: Container) -> str:
    return next(
        (place for place, one in places(pod) if one.name == container.name),
        f"container {container.name}",
    )


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
        f"seccompProfile type {profile.type!r} is not known; "
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
