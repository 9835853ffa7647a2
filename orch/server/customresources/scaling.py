"""The subresource `scale`: the number of replicas of an object, as a Scale of its own.

Where an object has that number its definition says. Who changes a Scale changes the object, by the
rules of every change.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import orjson
from aiohttp import web

from orch.component.http import httpd
from orch.server.customresources.kinds import CustomStrategy, ScalePaths
from orch.server.handlers.call import Call, read_document
from orch.server.objects.backend import Backend
from orch.server.objects.document import Document, decode_as
from orch.server.objects.modify import Part, Transform, change_of, modify
from orch.server.request import media
from orch.server.storage.base import Stored
from orch.wire import causes
from orch.wire.errors import bad_request, invalid
from orch.wire.records.configuration import CustomObject
from orch.wire.records.kinds import Resource

SCALE = Resource("autoscaling", "v1", "scales", "scale", CustomObject, True, own_kind="Scale")
_KEPT = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
_MOST = 2**31 - 1
Handler = Callable[[Call], Awaitable[web.StreamResponse]]


def handlers(backend: Backend) -> Mapping[tuple[str, str], Handler]:
    """By verb and subresource; of kinds whose strategy has the paths of a scale."""
    return {
        ("get", "scale"): partial(_get, backend),
        ("update", "scale"): partial(_update, backend),
        ("patch", "scale"): partial(_patch, backend),
    }


async def _get(backend: Backend, call: Call) -> web.Response:
    return _answer(backend, call, backend.find(call.target()))


async def _update(backend: Backend, call: Call) -> web.Response:
    sent = await read_document(call)
    if sent.get("kind", SCALE.kind) != SCALE.kind:
        raise bad_request(f"the kind of the body is {sent['kind']}, expected {SCALE.kind}")
    wanted = call.write_options("UpdateOptions")
    change = partial(_scaled, call, lambda _scale: sent)
    stored = await modify(backend, call.target(), change, wanted, part=_part(call))
    return _answer(backend, call, stored)


async def _patch(backend: Backend, call: Call) -> web.Response:
    body = await httpd.read_body(call.request)
    kind = media.parse_media(call.content_type).type
    wanted = call.write_options("PatchOptions")
    change = partial(_scaled, call, change_of(SCALE, kind, body))
    stored = await modify(backend, call.target(), change, wanted, part=_part(call))
    return _answer(backend, call, stored)


def _part(call: Call) -> Part:
    def put(current: Document, scale: Document) -> Document:
        return _scaled(call, lambda _scale: scale, current)

    return Part((SCALE.api_version, SCALE.kind), partial(_scale_of, _paths(call)), put)


def _paths(call: Call) -> ScalePaths:
    strategy = call.strategy
    if not isinstance(strategy, CustomStrategy) or strategy.scale is None:
        raise web.HTTPNotFound
    return strategy.scale


def _answer(backend: Backend, call: Call, stored: Stored) -> web.Response:
    rendering = call.rendering(backend.now())
    document = decode_as(call.strategy.resource, stored)
    return call.answer(rendering, orjson.dumps(_scale_of(_paths(call), document)))


def _scale_of(paths: ScalePaths, document: Document) -> Document:
    metadata = {name: v for name, v in document["metadata"].items() if name in _KEPT}
    selector = _at(document, paths.selector)
    status: Document = {"replicas": _number(_at(document, paths.status))}
    if isinstance(selector, str) and selector:
        status["selector"] = selector
    return {
        "kind": SCALE.kind,
        "apiVersion": SCALE.api_version,
        "metadata": metadata,
        "spec": {"replicas": _number(_at(document, paths.replicas))},
        "status": status,
    }


def _number(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value if path else None


def _scaled(call: Call, change: Transform, current: Document) -> Document:
    """The object with the number of replicas that its changed Scale has."""
    paths = _paths(call)
    scale = change(_scale_of(paths, current))
    spec = scale.get("spec")
    replicas = spec.get("replicas", 0) if isinstance(spec, dict) else None
    if isinstance(replicas, bool) or not isinstance(replicas, int) or not 0 <= replicas <= _MOST:
        why = "must be a whole number that is not negative"
        cause = causes.invalid_value("spec.replicas", replicas, why)
        raise invalid(SCALE.kind, call.info.name, (cause,), SCALE.group)
    metadata = dict(current["metadata"])
    sent = scale.get("metadata")
    for name in ("uid", "resourceVersion"):
        if isinstance(sent, dict) and sent.get(name):
            metadata[name] = sent[name]
    changed: Document = _with({**current, "metadata": metadata}, paths.replicas, replicas)
    return changed


def _with(value: Any, path: tuple[str, ...], replicas: int) -> Any:
    if not path:
        return replicas
    record = value if isinstance(value, dict) else {}
    return {**record, path[0]: _with(record.get(path[0]), path[1:], replicas)}
