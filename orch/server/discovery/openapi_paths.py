"""The paths of OpenAPI documents, made from the table of kinds; pure.

Every path and verb that is served is here, with its parameters, bodies and answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from orch.server.discovery.discovery import SUBRESOURCES
from orch.server.discovery.openapi_schemas import GVK, Schemas, gvk_of
from orch.server.request.media import JSON_PATCH, PATCHES, STRATEGIC_PATCH
from orch.wire.records.kinds import Resource

Json = dict[str, Any]

_JSON = "application/json"
_TEXT = "text/plain"
_TEXTS = ("labelSelector", "fieldSelector", "continue", "resourceVersion", "resourceVersionMatch")
_NUMBERS = ("limit", "timeoutSeconds")
_FLAGS = ("watch", "allowWatchBookmarks", "sendInitialEvents")
_STATUS = "io.orch.meta.Status"
_DELETE_OPTIONS = "io.orch.meta.DeleteOptions"
_ACTIONS = {"get": "get", "list": "list", "create": "post", "update": "put", "patch": "patch"}
_METHODS = {**_ACTIONS, "list": "get", "delete": "delete", "deletecollection": "delete"}


def paths_of(resource: Resource, schemas: Schemas) -> Iterator[tuple[str, Json]]:
    """Every path of a kind with its operations."""
    maker = _Operations(resource, schemas)
    scope = "{namespace}" if resource.namespaced else ""
    collection = maker.item(("list", "create", "deletecollection"), name=False)
    if collection:
        yield resource.path(scope), collection
    if resource.namespaced and "list" in resource.verbs:
        yield resource.path(), maker.item(("list",), name=False, everywhere=True)
    item = maker.item(("get", "update", "patch", "delete"), name=True)
    if item:
        yield resource.path(scope, "{name}"), item
    for name in resource.subresources:
        yield from maker.subresource(resource.path(scope, "{name}", name), name)


class _Operations:
    def __init__(self, resource: Resource, schemas: Schemas) -> None:
        self._resource = resource
        self._schemas = schemas
        self._object = schemas.of_kind(resource)
        self._list = schemas.of_list(resource) if "list" in resource.verbs else {}
        self._status = schemas.plain(_STATUS, STATUS)

    def item(self, verbs: tuple[str, ...], *, name: bool, everywhere: bool = False) -> Json:
        """The operations of the kind at one path; {} when there are none."""
        served = [verb for verb in verbs if verb in self._resource.verbs]
        if not served:
            return {}
        suffix = "ForAllNamespaces" if everywhere else ""
        item: Json = {_METHODS[verb]: self._operation(verb, suffix) for verb in served}
        return {**item, "parameters": self._place(name=name, everywhere=everywhere)}

    def subresource(self, path: str, name: str) -> Iterator[tuple[str, Json]]:
        described = SUBRESOURCES[name]
        place = self._place(name=True, everywhere=False)
        if name == "proxy":
            item: Json = {method: self._streamed(method, "Proxy") for method in
                          ("get", "post", "put", "patch", "delete")}  # fmt: skip
            yield path, {**item, "parameters": place}
            rest = {"name": "path", "in": "path", "required": True, "schema": {"type": "string"}}
            item = {method: self._streamed(method, "ProxyPath") for method in item}
            yield f"{path}/{{path}}", {**item, "parameters": [*place, rest]}
        elif name == "log":
            yield path, {"get": self._streamed("get", "Log", _LOG), "parameters": place}
        elif name in _STREAMS:
            item = {
                method: self._streamed(method, name.title(), _STREAMS[name])
                for method in ("get", "post")
            }
            yield path, {**item, "parameters": place}
        elif "create" in described.verbs:
            yield path, {"post": self._post(name, described.kind), "parameters": place}
        else:
            item = {_METHODS[v]: self._operation(v, name.title()) for v in described.verbs}
            yield path, {**item, "parameters": place}

    def _place(self, *, name: bool, everywhere: bool) -> list[Json]:
        wanted = ["namespace"] if self._resource.namespaced and not everywhere else []
        wanted += ["name"] if name else []
        text = {"type": "string"}
        return [{"name": part, "in": "path", "required": True, "schema": text} for part in wanted]

    def _head(self, verb: str, suffix: str) -> Json:
        resource = self._resource
        parts = resource.group.split(".")
        if resource.schema is None:
            parts = parts[:-2]  # of groups of this server the last two say nothing
        group = "".join(part.title() for part in parts) or "Core"
        operation_id = f"{verb}{group}{resource.version.title()}{resource.kind}{suffix}"
        return {
            "operationId": operation_id,
            "tags": [f"{group.lower()}_{resource.version}"],
            "x-kubernetes-action": _ACTIONS.get(verb, verb),
            GVK: gvk_of(resource),
        }

    def _operation(self, verb: str, suffix: str) -> Json:
        operation = {**self._head(verb, suffix), "parameters": _parameters(verb)}
        answered = self._list if verb == "list" else self._object
        codes = {
            "create": ("200", "201", "202"),
            "update": ("200", "201"),
            "delete": ("200", "202"),
        }
        operation["responses"] = {
            code: _content(_JSON, answered if verb not in _REMOVING else self._status)
            for code in codes.get(verb, ("200",))
        } | _refusals(self._status)
        if verb in ("create", "update"):
            operation["requestBody"] = {"required": True, **_content(_JSON, self._object)}
        elif verb == "patch":
            content = {name: {"schema": schema} for name, schema in _PATCHES.items()}
            if self._resource.schema is not None:
                del content[STRATEGIC_PATCH]  # clients send what they find here
            operation["requestBody"] = {"required": True, "content": content}
        elif verb in _REMOVING:
            body = self._schemas.plain(_DELETE_OPTIONS, DELETE_OPTIONS)
            operation["requestBody"] = _content(_JSON, body)
        return operation

    def _post(self, name: str, kind: str) -> Json:
        described = self._schemas.plain(f"io.orch.subresources.{kind}", _posted(kind))
        return {
            **self._head("create", name.title()),
            "parameters": _parameters("create"),
            "requestBody": {"required": True, **_content(_JSON, described)},
            "responses": {"201": _content(_JSON, self._status), **_refusals(self._status)},
        }

    def _streamed(self, method: str, suffix: str, parameters: list[Json] | None = None) -> Json:
        """Of a stream the 200 stands for 101: the client leaves HTTP."""
        content = {"*/*" if suffix != "Log" else _TEXT: {"schema": {"type": "string"}}}
        answers: Json = {"200": {"description": "OK", "content": content}}
        return {
            **self._head(method, suffix),
            "x-kubernetes-action": "connect" if suffix != "Log" else "get",
            "parameters": parameters or [],
            "responses": answers | _refusals(self._status),
        }


_REMOVING = ("delete", "deletecollection")


def _content(media: str, schema: Json) -> Json:
    return {"description": "OK", "content": {media: {"schema": schema}}}


def _refusals(status: Json) -> Json:
    content = {"content": {_JSON: {"schema": status}}}
    return {
        "401": {"description": "Unauthorized", **content},
        "default": {"description": "A refusal, with its reason.", **content},
    }


_QUERIES = {
    "allowWatchBookmarks": "Bookmarks in a watch tell how far it is where nothing changes.",
    "command": "The command with its arguments, one parameter each.",
    "container": "The container; that of the pod where it has one.",
    "continue": "Where the last part of a list ended, as its metadata says: the next one is given.",
    "dryRun": "With All nothing is stored.",
    "fieldManager": "Who makes the change, as managedFields tell it.",
    "fieldSelector": "A selector to restrict the list of returned objects by their fields.",
    "fieldValidation": "Whether unknown fields, and those given twice, end the request.",
    "follow": "Whether to go on with what is written from now on.",
    "force": "Whether an apply takes fields that others own.",
    "gracePeriodSeconds": "How long the object has to end.",
    "labelSelector": "A selector to restrict the list of returned objects by their labels.",
    "limit": "The most objects in one answer; the rest is asked for with continue.",
    "limitBytes": "The most bytes of the log.",
    "pretty": "Whether to indent the answer.",
    "ports": "The ports, one parameter each.",
    "previous": "Whether to read the log of the container before this one.",
    "propagationPolicy": "What becomes of the objects that this one owns.",
    "resourceVersion": "The state that is asked for, as resourceVersionMatch says.",
    "resourceVersionMatch": "Exact for that state alone, NotOlderThan for any since.",
    "sendInitialEvents": "Whether a watch begins with the objects that are there.",
    "sinceSeconds": "How old lines of the log may be.",
    "sinceTime": "When lines of the log begin.",
    "stderr": "Whether to join the standard error.",
    "stdin": "Whether to join the standard input.",
    "stdout": "Whether to join the standard output.",
    "tailLines": "The number of lines at the end of the log to begin with.",
    "timeoutSeconds": "How long a list or a watch may take.",
    "timestamps": "Whether lines begin with their times.",
    "tty": "Whether the command has a terminal.",
    "watch": "Watch for changes to the described resources: each is told as it happens.",
}  # fmt: skip


def _query(name: str, kind: str, *choices: str) -> Json:
    schema: Json = {"type": kind, **({"enum": list(choices)} if choices else {})}
    return {"name": name, "in": "query", "description": _QUERIES[name], "schema": schema}


def _parameters(verb: str) -> list[Json]:
    pretty = _query("pretty", "string")
    if verb in ("create", "update", "patch"):
        return [
            *([_query("force", "boolean")] if verb == "patch" else ()),
            _query("dryRun", "string", "All"),
            _query("fieldManager", "string"),
            _query("fieldValidation", "string", "Ignore", "Warn", "Strict"),
            pretty,
        ]
    deleting = [
        _query("dryRun", "string", "All"),
        _query("gracePeriodSeconds", "integer"),
        _query("propagationPolicy", "string", "Orphan", "Background", "Foreground"),
        pretty,
    ]
    listing = [
        *(_query(name, "string") for name in _TEXTS),
        *(_query(name, "integer") for name in _NUMBERS),
        *(_query(name, "boolean") for name in _FLAGS),
    ]
    if verb == "deletecollection":
        return [*deleting, *listing[:2]]
    return {"delete": deleting, "list": [*listing, pretty]}.get(verb, [pretty])


_LOG = [
    _query("container", "string"),
    *(_query(name, "boolean") for name in ("follow", "previous", "timestamps")),
    *(_query(name, "integer") for name in ("sinceSeconds", "tailLines", "limitBytes")),
    _query("sinceTime", "string"),
]
_ATTACH = [
    _query("container", "string"),
    *(_query(name, "boolean") for name in ("stdin", "stdout", "stderr", "tty")),
]
_STREAMS = {
    "attach": _ATTACH,
    "exec": [*_ATTACH, _query("command", "string")],
    "portforward": [_query("ports", "integer")],
}
_OBJECT: Json = {"type": "object"}
_PATCHES: Json = dict.fromkeys(PATCHES, _OBJECT) | {JSON_PATCH: {"type": "array", "items": _OBJECT}}
_META: Json = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": _OBJECT}
DELETE_OPTIONS: Json = {
    "type": "object",
    "description": "Options of a deletion.",
    "properties": {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "gracePeriodSeconds": {"type": "integer", "format": "int64"},
        "orphanDependents": {"type": "boolean"},
        "propagationPolicy": {"type": "string"},
        "preconditions": {
            "type": "object",
            "properties": {"uid": {"type": "string"}, "resourceVersion": {"type": "string"}},
        },
        "dryRun": {"type": "array", "items": {"type": "string"}},
    },
}
STATUS: Json = {
    "type": "object",
    "description": "The answer where there is no object, and every refusal.",
    "properties": {
        **_META,
        "status": {"type": "string"},
        "message": {"type": "string"},
        "reason": {"type": "string"},
        "code": {"type": "integer", "format": "int64"},
        "details": _OBJECT,
    },
}


def _posted(kind: str) -> Json:
    target = {"Binding": {"target": _OBJECT}, "Eviction": {"deleteOptions": DELETE_OPTIONS}}
    return {"type": "object", "properties": {**_META, **target.get(kind, {"spec": _OBJECT})}}
