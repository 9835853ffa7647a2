"""The security contexts of pods and containers, as the API has them."""

from __future__ import annotations

from orch.wire.records.meta import WireModel


class SeccompProfile(WireModel):
    type: str
    localhostProfile: str | None = None


class AppArmorProfile(WireModel):
    type: str = ""
    localhostProfile: str | None = None  # the name of a profile that the host has loaded


class Capabilities(WireModel):
    add: list[str] | None = None
    drop: list[str] | None = None


class Sysctl(WireModel):
    name: str
    value: str


class SELinuxOptions(WireModel):
    user: str | None = None
    role: str | None = None
    type: str | None = None
    level: str | None = None


class PodSecurityContext(WireModel):
    runAsUser: int | None = None
    runAsGroup: int | None = None
    runAsNonRoot: bool | None = None
    fsGroup: int | None = None
    supplementalGroups: list[int] | None = None
    supplementalGroupsPolicy: str | None = None  # Merge | Strict
    seccompProfile: SeccompProfile | None = None
    appArmorProfile: AppArmorProfile | None = None
    seLinuxOptions: SELinuxOptions | None = None
    sysctls: list[Sysctl] | None = None


class SecurityContext(WireModel):
    runAsUser: int | None = None
    runAsGroup: int | None = None
    runAsNonRoot: bool | None = None
    privileged: bool | None = None
    allowPrivilegeEscalation: bool | None = None
    readOnlyRootFilesystem: bool | None = None
    procMount: str | None = None  # Default | Unmasked
    capabilities: Capabilities | None = None
    seccompProfile: SeccompProfile | None = None
    appArmorProfile: AppArmorProfile | None = None
    seLinuxOptions: SELinuxOptions | None = None
