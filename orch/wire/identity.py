"""Who a request comes from, once authenticated, and which node an identity speaks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from orch.wire.authentication import UserInfo
from orch.wire.names import (
    GROUP_AUTHENTICATED,
    GROUP_NODES,
    GROUP_UNAUTHENTICATED,
    USER_NODE_PREFIX,
)


@dataclass(frozen=True, slots=True)
class Identity:
    """An authenticated caller; `extra` carries what the authenticator added (lower-case keys)."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)


def node_name_of(identity: Identity) -> str | None:
    """The node a node identity stands for; None for everyone else.

    A node identity has both the user name `system:node:<name>` and the group `system:nodes`.
    """
    if GROUP_NODES not in identity.groups or not identity.name.startswith(USER_NODE_PREFIX):
        return None
    return identity.name[len(USER_NODE_PREFIX) :] or None


def known(identity: Identity) -> Identity:
    """The identity as a member of `system:authenticated`, unless it says otherwise itself."""
    if GROUP_AUTHENTICATED in identity.groups or GROUP_UNAUTHENTICATED in identity.groups:
        return identity
    return replace(identity, groups=(*identity.groups, GROUP_AUTHENTICATED))


def user_info(identity: Identity) -> UserInfo:
    """An identity as the records of reviews show it."""
    return UserInfo(
        username=identity.name,
        uid=identity.uid or None,
        groups=list(identity.groups) or None,
        extra={key: list(values) for key, values in identity.extra.items()} or None,
    )
