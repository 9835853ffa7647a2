"""The values of isolation that pods are given by a container runtime: see `base`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class RuntimeFeatures:
    """`handlers` are the names a pod's runtimeClassName may have; "" is the default one."""

    handlers: frozenset[str] = frozenset()
    strict_groups: bool = False  # supplementalGroupsPolicy
    recursive_readonly: frozenset[str] = frozenset()  # handlers with recursive read-only mounts
    user_namespaces: frozenset[str] = frozenset()  # handlers that can make them


class SeccompKind(Enum):
    RUNTIME_DEFAULT = "RuntimeDefault"
    UNCONFINED = "Unconfined"
    LOCALHOST = "Localhost"


@dataclass(frozen=True, slots=True)
class SeccompSetting:
    kind: SeccompKind
    localhost_path: str = ""  # absolute, only for LOCALHOST


UNCONFINED = SeccompSetting(SeccompKind.UNCONFINED)


@dataclass(frozen=True, slots=True)
class SELinuxLabel:
    """ "" for a part that the runtime chooses."""

    user: str = ""
    role: str = ""
    type: str = ""
    level: str = ""


@dataclass(frozen=True, slots=True)
class UserNamespace:
    """Ids of users and groups from 0 on are `length` ids of the host, from `first_id` on."""

    first_id: int
    length: int


@dataclass(frozen=True, slots=True)
class ContainerUser:
    uid: int
    gid: int
    supplemental_groups: Sequence[int] = ()
