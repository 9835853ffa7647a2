"""How new what a request reads must be, where several servers share one storage.

Without a resourceVersion a request sees every write answered before it; with one, at least that;
with "0" whatever is there. And what a client is told when storage fails.
"""

from __future__ import annotations

from collections.abc import Mapping

from orch.server.requestinfo import RequestInfo
from orch.server.storage.base import (
    ObjectTooLarge,
    OutcomeUnknown,
    Storage,
    StorageFailed,
    StorageUnavailable,
)
from orch.wire.errors import ApiError

_READS = ("get", "list", "watch")
_MAX_DIGITS = 19  # of a revision; what is longer is refused later


async def catch_up(storage: Storage, info: RequestInfo, query: Mapping[str, str]) -> None:
    """Make reads new enough for the request; StorageFailed when that cannot be had."""
    version = query.get("resourceVersion", "")
    if info.verb not in _READS or not version:
        await storage.settle()
    elif version != "0" and version.isascii() and version.isdigit() and len(version) <= _MAX_DIGITS:
        await storage.reach(int(version))  # if it is not reached, the handler says so


def answer_to(error: StorageFailed) -> ApiError:
    """The refusal a client gets; only what is certain to have had no effect invites a retry."""
    match error:
        case ObjectTooLarge():
            return ApiError(413, "RequestEntityTooLarge", str(error))
        case OutcomeUnknown():
            return ApiError(504, "Timeout", f"whether it was done is not known: {error}")
        case StorageUnavailable():
            return ApiError(503, "ServiceUnavailable", str(error), retry_after_s=1)
    return ApiError(500, "InternalError", f"Internal error occurred: {error}")
