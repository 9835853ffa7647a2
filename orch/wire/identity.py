"""Who a request comes from, once authenticated, and which node an identity speaks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from orch.wire.names import GROUP_NODES, USER_NODE_PREFIX


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
