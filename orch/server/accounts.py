"""Give every namespace the service account `default`, which pods run as that name no other.

A round looks at the namespaces only; one that is being deleted gets none any more.
"""

from __future__ import annotations

import logging

from orch.server.bootstrap import SELF
from orch.server.resources.backend import Backend, Target
from orch.server.resources.create import create
from orch.server.resources.document import decode, prefix_of
from orch.server.resources.options import WriteOptions
from orch.server.storage.base import StorageFailed
from orch.server.strategy import namespaces, serviceaccounts
from orch.wire.errors import ApiError
from orch.wire.kinds import NAMESPACES
from orch.wire.names import DEFAULT_SERVICE_ACCOUNT

log = logging.getLogger(__name__)

INTERVAL_S = 1.0


async def make_default_accounts(backend: Backend) -> None:
    """One round; what cannot be made now is for the next."""
    for stored in backend.storage.list(prefix_of(NAMESPACES)).items:
        namespace = stored.key.rpartition("/")[2]
        target = Target(
            serviceaccounts.STRATEGY, SELF, namespace=namespace, name=DEFAULT_SERVICE_ACCOUNT
        )
        if backend.storage.get(target.key) or namespaces.is_terminating(decode(stored)):
            continue
        try:
            await create(backend, target, {}, WriteOptions())
        except StorageFailed as error:
            log.debug("namespace %s has no service account yet: %s", namespace, error)
        except ApiError as error:
            if error.reason == "AlreadyExists":
                continue  # another server of this cluster was quicker
            log.warning("namespace %s has no service account yet: %s", namespace, error)
