"""The attributes of a request, from method, path and query, and whether that path is served; pure.

The same record authorizes and routes the request, so that only what is authorized is done. Rules as
in the reference's request info (reference/apiserver.md §3.2): segments are decoded one by one, so a
`%2F` never makes a segment of its own. Whether a path is served is asked after authorization, so
that only callers with the right learn it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import unquote

from orch.wire.records.kinds import NAMESPACES, Resource
from orch.wire.selectors import parse_field_selector

_METHOD_VERBS = {
    "POST": "create",
    "GET": "get",
    "HEAD": "get",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
_COLLECTION_VERBS = {"get": "list", "delete": "deletecollection"}
_NAMESPACE_SUBRESOURCES = ("status", "finalize")
_ACTS = ("exec", "attach", "portforward")  # in pods: `create`, also by GET
_AGENT_ACTS = ("exec", "attach", "portForward", "run")  # at a node's agent: likewise
_STREAMED = ("proxy", "log", *_ACTS)
_REMEMBERED = 8192  # requests without a query, about 0.7 kB each
_PARTS = 8  # that are looked at: to decode 2,000 took a stranger's request 4 ms
_REMEMBERED_CHARS = 256  # any caller could fill the memory with longer paths


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """A request for a resource, or (`is_resource` False) for a path with `verb` its method.

    `rest` is what follows the subresource in the path, still encoded and with its leading slash,
    as the node proxy passes it on; "" when there is none. `alias` is the group's name in the
    request when that is not its own (see `aliases`). A long-running request ends when its client
    leaves or its time is up, not when it is answered.
    """

    verb: str
    path: str
    is_resource: bool = False
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    name: str = ""
    subresource: str = ""
    rest: str = ""
    field_selector: str = ""
    label_selector: str = ""
    alias: str = ""
    is_long_running: bool = field(init=False, compare=False)

    def __post_init__(self) -> None:
        streams = self.verb == "watch" or self.subresource in _STREAMED
        object.__setattr__(self, "is_long_running", streams)


def parse_request(method: str, raw_path: str, query: Mapping[str, str]) -> RequestInfo:
    """`raw_path` is the path as it was sent, percent-encoded and without the query."""
    if query or len(raw_path) > _REMEMBERED_CHARS:
        return _parsed(method, raw_path, query)
    return _remembered(method, raw_path)


def request_about(verb: str, resource: Resource, namespace: str, name: str) -> RequestInfo:
    """The request for an object under another verb, to ask whether it is allowed."""
    return RequestInfo(
        verb,
        path="",
        is_resource=True,
        group=resource.group,
        version=resource.version,
        namespace=namespace,
        resource=resource.plural,
        name=name,
    )


@lru_cache(maxsize=_REMEMBERED)
def _remembered(method: str, raw_path: str) -> RequestInfo:
    """Clients repeat the same requests: a lease is renewed every ten seconds."""
    return _parsed(method, raw_path, {})


def _parsed(method: str, raw_path: str, query: Mapping[str, str]) -> RequestInfo:
    path = _decoded(raw_path)
    parts = [_decoded(part) for part in [*filter(None, raw_path.split("/"))][:_PARTS]]
    group, version, below = _group_version(parts)
    if not below:
        return RequestInfo(method.lower(), path)
    verb = _METHOD_VERBS.get(method, method.lower())
    namespace, target = _split_namespace(below)
    resource, name, subresource = (*target, "", "", "")[:3]
    if not name:
        verb = _COLLECTION_VERBS.get(verb, verb)
        name = _selected_name(verb, query)
    if verb == "list" and is_true(query.get("watch")):
        verb = "watch"
    rest = _rest_of(raw_path, len(parts) - len(target) + 3) if subresource else ""
    if (resource == "pods" and subresource in _ACTS) or (
        (resource, subresource) == ("nodes", "proxy") and _acts_at_agent(rest)
    ):
        verb = "create"
    return RequestInfo(
        verb=verb,
        path=path,
        is_resource=True,
        group=group,
        version=version,
        namespace=namespace,
        resource=resource,
        name=name,
        subresource=subresource,
        rest=rest,
        field_selector=query.get("fieldSelector", ""),
        label_selector=query.get("labelSelector", ""),
    )


def _acts_at_agent(rest: str) -> bool:
    """As the agent reads a path: decoded, and with the slashes that clients encode."""
    return _decoded(rest).strip("/").partition("/")[0] in _AGENT_ACTS


def _decoded(text: str) -> str:
    return unquote(text) if "%" in text else text


def is_text(header: str) -> bool:
    """Whether a header was sent as UTF-8: other bytes become characters that no JSON may have."""
    return header.isascii() or not any("\ud800" <= char <= "\udfff" for char in header)


def is_true(value: str | None) -> bool:
    """A flag in a query: present means true, unless it says `0` or `false`."""
    return value is not None and value.lower() not in ("0", "false")


def _group_version(parts: list[str]) -> tuple[str, str, list[str]]:
    """Group, version and the segments below; no segments when the path is not a resource's."""
    if len(parts) > 2 and parts[0] == "api":
        return "", parts[1], parts[2:]
    if len(parts) > 3 and parts[0] == "apis":
        return parts[1], parts[2], parts[3:]
    return "", "", []


def _split_namespace(parts: list[str]) -> tuple[str, list[str]]:
    """`namespaces/x` and its own subresources are the object; anything else below is in x."""
    if parts[0] != "namespaces" or len(parts) == 1:
        return "", parts
    if len(parts) == 2 or parts[2] in _NAMESPACE_SUBRESOURCES:
        return parts[1], parts
    return parts[1], parts[2:]


def _selected_name(verb: str, query: Mapping[str, str]) -> str:
    """The name in a collection request whose selector names a single object."""
    if verb not in ("list", "deletecollection") or "fieldSelector" not in query:
        return ""
    try:
        name = parse_field_selector(query["fieldSelector"]).exact("metadata.name") or ""
    except ValueError:
        return ""  # the handler refuses it, after authorization
    return "" if name in (".", "..") or "/" in name or "%" in name else name


def _rest_of(raw_path: str, consumed: int) -> str:
    """The raw path after its first `consumed` non-empty segments."""
    position = 0
    for _ in range(consumed):
        while position < len(raw_path) and raw_path[position] == "/":
            position += 1
        if position == len(raw_path):
            return ""
        slash = raw_path.find("/", position)
        position = len(raw_path) if slash < 0 else slash
    return raw_path[position:]


COLLECTION_VERBS = ("list", "watch", "deletecollection")


def is_served(resource: Resource, info: RequestInfo) -> bool:
    """Whether the path exists: its scope and subresource must be the kind's own."""
    if info.subresource and info.subresource not in resource.subresources:
        return False
    if info.rest.strip("/") and info.subresource != "proxy":
        return False
    if resource is NAMESPACES:
        return True  # its own name is also the namespace of the request
    named = info.name and info.verb not in COLLECTION_VERBS
    return not info.namespace if not resource.namespaced else bool(info.namespace or not named)


def fits(resource: Resource, info: RequestInfo) -> bool:
    """Whether the path takes the verb: creations go to collections, changes to objects."""
    if info.subresource:
        return bool(info.name)
    if info.verb not in resource.verbs:
        return False
    if info.verb in ("create", "deletecollection"):
        placed = bool(info.namespace or not resource.namespaced)
        return placed and not (info.verb == "create" and info.name)
    return bool(info.name) or info.verb in COLLECTION_VERBS
