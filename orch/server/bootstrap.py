"""What must exist before the first request: the namespaces every cluster has."""

from __future__ import annotations

import logging

from orch.server.resources.backend import Backend, Target
from orch.server.resources.create import create
from orch.server.resources.options import WriteOptions
from orch.server.strategy import namespaces
from orch.wire.errors import ApiError
from orch.wire.identity import Identity
from orch.wire.names import GROUP_MASTERS, USER_APISERVER

log = logging.getLogger(__name__)

SELF = Identity(USER_APISERVER, (GROUP_MASTERS,))


async def make_namespaces(backend: Backend) -> None:
    """Create those of the first namespaces that are missing."""
    for name in namespaces.AT_START:
        target = Target(namespaces.STRATEGY, SELF, name=name)
        if backend.storage.get(target.key) is not None:
            continue
        try:
            await create(backend, target, {"metadata": {"name": name}}, WriteOptions())
        except ApiError as error:
            if error.code != 409:
                raise
            continue  # another server on the same storage starts too
        log.info("created the namespace %s", name)
