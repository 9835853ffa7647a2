"""The Status record of what went well; pure."""

from __future__ import annotations

from typing import Any

import orjson

from orch.server.resources.document import decode
from orch.server.storage.base import Stored
from orch.wire.kinds import Resource


def success_status(code: int | None = None, details: dict[str, Any] | None = None) -> bytes:
    status: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
    }
    if details:
        status["details"] = details
    if code is not None:
        status["code"] = code
    return orjson.dumps(status)


def deleted_status(resource: Resource, stored: Stored) -> bytes:
    """What was deleted; clients wait for the end of exactly this uid."""
    metadata = decode(stored)["metadata"]
    details = {"name": metadata["name"], "kind": resource.plural, "uid": metadata["uid"]}
    if resource.group:
        details["group"] = resource.group
    return success_status(details=details)
