"""Server-side apply: a configuration is laid over the object, or becomes it; who applied what is
remembered, so that the next time what is missing is taken away.

The rules of merging, owning and conflicting are in `field_managers`. Here is what is around them:
the body that is read, the object that is not there yet, and those that are written meanwhile.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from orch.server import turns
from orch.server.objects import field_managers, metadata
from orch.server.objects.backend import TRIES, Backend
from orch.server.objects.create import create
from orch.server.objects.document import Document, ObjectTarget
from orch.server.objects.modify import Transform, modify
from orch.server.objects.options import WriteOptions
from orch.server.request.bodies import drop_nulls, loads
from orch.server.storage.base import Stored
from orch.wire import times
from orch.wire.errors import ApiError, bad_request
from orch.wire.records import aliases

_FAILED = "error decoding YAML"


def configuration(target: ObjectTarget, body: bytes, alias: str = "") -> Document:
    """The configuration in a body, which is JSON by now, fitted to the URL; `alias` is the group's
    name in the request. Null fields stay: they are applied as well. ApiError 400, 413.
    """
    data: Any = loads(body, _FAILED)
    if not isinstance(data, dict):
        raise bad_request(f"{_FAILED}: a configuration is an object")
    drop_nulls(data)  # refuses what is nested too deeply, and numbers that are too large
    turns.give_way()
    config = aliases.to_own(data) if alias else data
    metadata.fit_to_endpoint(target.strategy.resource, target.namespace, config)
    metadata.fit_to_name(target.name, config)
    field_managers.require_fitting(target, config)
    return config


def change_of(
    backend: Backend, target: ObjectTarget, options: WriteOptions, config: Document
) -> Transform:
    """The change that applying a configuration makes; of {} it makes a new object."""
    now = times.format_time(backend.now())

    def change(current: Document) -> Document:
        return field_managers.applied(target, options, config, current, now)

    return change


async def apply(
    backend: Backend, target: ObjectTarget, change: Transform, options: WriteOptions
) -> tuple[Stored, bool]:
    """The stored object, and whether it was created. ApiError 400, 403, 404, 409, 413, 422."""
    for _ in range(TRIES):
        if target.subresource or backend.storage.get(target.key) is not None:
            try:
                return await modify(backend, target, change, options), False
            except ApiError as error:
                gone = error.code == 404 and backend.storage.get(target.key) is None
                if target.subresource or not gone:
                    raise
        document = await turns.compute(partial(change, {}))
        try:
            return await create(backend, target, document, options), True
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
    raise target.conflict()
