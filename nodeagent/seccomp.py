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
from pathlib import PurePosixPath

from nodeagent.runtime.base import SeccompKind, SeccompSetting
from orch.wire.pods import Container, Pod, SeccompProfile

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


def effective_profile(
    pod: Pod, container: Container, *, seccomp_default: bool, seccomp_root: str
) -> SeccompSetting:
    """The setting to give the runtime for `container` of `pod`.

    `seccomp_default` is the agent's setting: RuntimeDefault instead of Unconfined where nothing is
    said. `seccomp_root` is the absolute directory of Localhost profiles. SeccompError with
    CONFIG_ERROR when the profile that applies is not well formed.
    """
    context = container.securityContext
    if context and context.privileged:
        return _UNCONFINED
    if context and context.seccompProfile:
        return _setting(context.seccompProfile, seccomp_root)
    if pod.spec.securityContext and pod.spec.securityContext.seccompProfile:
        return _setting(pod.spec.securityContext.seccompProfile, seccomp_root)
    return _RUNTIME_DEFAULT if seccomp_default else _UNCONFINED


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
