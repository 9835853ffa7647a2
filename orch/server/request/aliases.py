"""The reference's group names at the server's edge: which are served, and requests under them.

Off unless `--serve-upstream-aliases` is given. A request under such a name is translated to the own
group first, so that it is authorized, counted and routed as that; only the code that reads its body
or writes its answer or refusal uses the name (`RequestInfo.alias`).
"""

from __future__ import annotations

from dataclasses import replace

import orjson

from orch.server.request.attributes import RequestInfo
from orch.wire.errors import ApiError, Cause
from orch.wire.names import COORDINATION_GROUP
from orch.wire.records import aliases
from orch.wire.records.kinds import RESOURCES, Resource
from orch.wire.records.usage import USAGE

OWN_GROUPS = tuple(aliases.UPSTREAM_BY_OWN)  # those that have another name
_OWN_GROUPS_END = b".orch.io/"
_LEASE_UPSTREAM = aliases.UPSTREAM_BY_OWN[COORDINATION_GROUP]


def served_resources(*, upstream: bool) -> tuple[Resource, ...]:
    """The resources that clients discover; the reference's names first, so that they win, and
    short names once: clients warn of others.
    """
    if not upstream:
        return RESOURCES
    aliased = [
        replace(resource, group=aliases.UPSTREAM_BY_OWN[resource.group])
        for resource in RESOURCES
        if resource.group in aliases.UPSTREAM_BY_OWN
    ]
    own = [
        replace(resource, short_names=()) if resource.group in aliases.UPSTREAM_BY_OWN else resource
        for resource in RESOURCES
    ]
    return (*aliased, *USAGE, *own)


def own_request(info: RequestInfo) -> RequestInfo:
    """The request translated to this service's own group, if it uses another name."""
    own = aliases.OWN_BY_UPSTREAM.get(info.group)
    if own is None:
        return info
    namespace = aliases.own_namespace(info.namespace)
    return replace(info, group=own, namespace=namespace, alias=info.group)


def refusal_as_asked(error: Exception, info: RequestInfo) -> Exception:
    """The refusal with groups and fields under the names that the client uses."""
    if not info.alias or not isinstance(error, ApiError):
        return error
    renamed = aliases.message_to_upstream
    causes = tuple(Cause(c.reason, renamed(c.message), renamed(c.field)) for c in error.causes)
    group = aliases.UPSTREAM_BY_OWN.get(error.group, error.group)
    return replace(error, group=group, message=renamed(error.message), causes=causes)


def shown_as(alias: str, body: bytes) -> bytes:
    """An object's bytes under a reference's group name; frequent Leases without parsing, unless
    more than their apiVersion may need translating.
    """
    if alias == _LEASE_UPSTREAM and body.count(_OWN_GROUPS_END) == 1:
        # Only the first: stored objects begin with kind and apiVersion.
        own, upstream = COORDINATION_GROUP.encode(), alias.encode()
        return body.replace(b'"apiVersion":"%b/' % own, b'"apiVersion":"%b/' % upstream, 1)
    return orjson.dumps(aliases.to_upstream(orjson.loads(body)))
