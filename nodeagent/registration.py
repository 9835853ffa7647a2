"""Registering the node: create its object, or adopt and repair the one that is there.

What the object contains is `node.status`; when to try again is `statusloop`.
"""

from __future__ import annotations

from nodeagent.node import labels
from orch.client.resources import ApiClient
from orch.wire.core import Node
from orch.wire.errors import ApiError


async def register(client: ApiClient, wanted: Node, *, create: bool) -> Node:
    """The node's object at the API server; without `create`, somebody else has to make it.

    An object that exists keeps everything but the default labels. Raises what the client raises.
    """
    if create:
        try:
            return await client.create(wanted)
        except ApiError as error:
            if error.reason not in ("AlreadyExists", "Forbidden"):
                raise
    node = await client.get(Node, wanted.metadata.name)
    changes = labels.repairs(node.metadata.labels or {}, wanted.metadata.labels or {})
    if not changes:
        return node
    return await client.patch(Node, node.metadata.name, {"metadata": {"labels": changes}})
