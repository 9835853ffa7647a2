"""A Lease that is put back as it was but for its time: what an agent sends every ten seconds.

Most writes of a large cluster are these. Since all else equals what is stored, which was valid when
it was stored, only the time needs a look; every other replacement takes the ordinary way, which
costs 20 % more of a PUT. Pure.
"""

from __future__ import annotations

import re

import orjson

from orch.server.objects.document import Document, decode
from orch.server.storage.base import Stored

# As agents write it, with real hours; other ways of writing a time are read the ordinary way.
_TIME = re.compile(
    r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])T([01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{6}Z", re.ASCII
)


def renewed(stored: Stored, body: bytes) -> tuple[Document, Document] | None:
    """The Lease as sent and as stored; None for anything that is not just a renewal."""
    try:
        sent = orjson.loads(body)
        time = sent["spec"]["renewTime"]
    except (orjson.JSONDecodeError, TypeError, KeyError):
        return None
    if type(time) is not str or not _TIME.fullmatch(time):
        return None
    old = decode(stored)
    spec = old.get("spec")
    if not isinstance(spec, dict) or "deletionTimestamp" in old["metadata"]:
        return None
    new = {**old, "spec": {**spec, "renewTime": time}}
    if sent != new or spec.get("renewTime") in (None, time):
        return None
    if not _numbers_agree(sent["spec"], spec):
        return None
    return new, old


def _numbers_agree(sent: Document, stored: Document) -> bool:
    """To a dict 40, 40.0 and (for 1) true are the same; to a record they are not."""
    return all(type(value) is type(stored.get(name)) for name, value in sent.items())
