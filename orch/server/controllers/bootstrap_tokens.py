"""Bootstrap tokens: the first one of a new cluster, and the end of those whose time is over.

Here, and not in the controller manager, because nobody else then needs a right on Secrets.
"""

from __future__ import annotations

import logging
from datetime import datetime
from pathlib import Path

from orch.component.process.daemon import SetupError
from orch.server.controllers.namespaces import SELF
from orch.server.objects.backend import Backend
from orch.server.objects.create import create
from orch.server.objects.delete import delete
from orch.server.objects.document import ObjectTarget, decode, place_of, prefix_of
from orch.server.objects.options import DeleteOptions
from orch.server.storage.base import StorageFailed
from orch.server.strategy.configuration import SECRET_STRATEGY
from orch.wire import times
from orch.wire.bootstrap_tokens import PREFIX, TYPE, is_past, secret_of, values_of
from orch.wire.errors import ApiError
from orch.wire.names import SYSTEM_NAMESPACE
from orch.wire.records.kinds import SECRETS

log = logging.getLogger(__name__)

INTERVAL_S = 60.0
_MAX_FILE_BYTES = 1024
_NONE = "none"


def read_first(path: Path) -> tuple[str, datetime] | None:
    """The token and its end, of a file as `orch-apiserver init` writes it; None where it says
    `none`, as the unit's default does; SetupError.
    """
    try:
        with path.open("rb") as stream:
            text = stream.read(_MAX_FILE_BYTES).decode("ascii")
        if text.strip() == _NONE:
            return None
        token, end = text.split()
        secret_of(token, None)
        return token, times.parse_time(end)
    except OSError as error:
        raise SetupError(f"cannot read the bootstrap token {path}: {error.strerror}") from error
    except ValueError:
        raise SetupError(
            f"--bootstrap-token-file={path}: has to be a token and the time of its end, as"
            " `orch-apiserver init` writes them"
        ) from None


async def make_first(backend: Backend, token: str, end: datetime) -> None:
    """Make its Secret, unless it is there or its time is over; ApiError, StorageFailed."""
    if end <= backend.now():
        return
    secret = secret_of(token, end, description="made by orch-apiserver init")
    target = ObjectTarget(SECRET_STRATEGY, SELF, namespace=SYSTEM_NAMESPACE)
    try:
        await create(backend, target, secret)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise


async def expire_tokens(backend: Backend) -> None:
    """Delete the tokens whose time is over; failed deletions are left to the next round."""
    prefix, now = prefix_of(SECRETS, SYSTEM_NAMESPACE), backend.now()
    for stored in backend.storage.list(prefix + PREFIX).items:
        secret = decode(stored)
        end = values_of(secret).get("expiration", "")
        if secret.get("type") != TYPE or not is_past(end, now):
            continue
        namespace, name = place_of(stored.key)
        try:
            target = ObjectTarget(SECRET_STRATEGY, SELF, namespace, name)
            await delete(backend, target, DeleteOptions(resource_version=str(stored.revision)))
        except (ApiError, StorageFailed) as error:
            log.debug("the expired bootstrap token %s is not deleted yet: %s", name, error)
        else:
            log.info("deleted the bootstrap token %s: its time was over", name[len(PREFIX) :])
