"""Is there such a path, and may the verb be used at it? Pure, from the table of kinds.

Asked after authorization, so that nobody learns what is served without being allowed to use it.
"""

from __future__ import annotations

from orch.server.requestinfo import RequestInfo
from orch.wire.kinds import NAMESPACES, Resource

COLLECTION_VERBS = ("list", "watch", "deletecollection")


def is_served(resource: Resource, info: RequestInfo) -> bool:
    """Is there such a path? Scope and subresource must be the kind's own."""
    if info.subresource and info.subresource not in resource.subresources:
        return False
    if info.rest.strip("/") and info.subresource != "proxy":
        return False
    if resource is NAMESPACES:
        return True  # its own name is also the namespace of the request
    named = info.name and info.verb not in COLLECTION_VERBS
    return not info.namespace if not resource.namespaced else bool(info.namespace or not named)


def fits(resource: Resource, info: RequestInfo) -> bool:
    """May the verb be used at this path: collections are created in, objects are changed."""
    if info.subresource:
        return bool(info.name)
    if info.verb not in resource.verbs:
        return False
    if info.verb in ("create", "deletecollection"):
        placed = bool(info.namespace or not resource.namespaced)
        return placed and not (info.verb == "create" and info.name)
    return bool(info.name) or info.verb in COLLECTION_VERBS
