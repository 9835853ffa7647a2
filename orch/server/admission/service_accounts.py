"""The service account that a new pod runs as: named by either of its fields, and there; pure.

A pod without pull secrets of its own gets the account's.

As the reference's ServiceAccount plugin, but for `default`: a controller makes that one within a
second of the namespace, and a pod is not refused for having been quicker. Mirror pods are what they
are: the agent runs their static pods whatever is refused here.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from orch.server.objects.document import Document, ObjectTarget
from orch.wire import raw
from orch.wire.names import DEFAULT_SERVICE_ACCOUNT
from orch.wire.podrules.podspec import mirror_hash
from orch.wire.podrules.references import PULL_SECRETS
from orch.wire.records.kinds import PODS, Resource

# The account of a namespace and name, not to be changed; None: there is none.
Find = Callable[[str, str], Document | None]


class ServiceAccounts:
    """The `Admission` of pods, which it completes."""

    def __init__(self, find: Find) -> None:
        self._find = find

    def judges(self, resource: Resource) -> bool:
        return resource is PODS

    def check(self, target: ObjectTarget, new: Document, old: Document | None) -> None:
        """ApiError 403 for an account that is not there."""
        if old is not None or mirror_hash(new) is not None:
            return
        spec = new["spec"]
        named = raw.text(spec, "serviceAccountName") or raw.text(spec, "serviceAccount")
        if named:
            spec["serviceAccountName"] = named  # the other is its older name
        name = named or DEFAULT_SERVICE_ACCOUNT
        account = self._find(target.namespace, name)
        if account is None and name != DEFAULT_SERVICE_ACCOUNT:
            raise target.forbidden(
                new["metadata"].get("name", ""),
                f"error looking up service account {target.namespace}/{name}:"
                f' serviceaccount "{name}" not found',
            )
        if not spec.get("imagePullSecrets"):
            _give_pull_secrets(spec, account or {})


def _give_pull_secrets(spec: Document, account: Document) -> None:
    secrets = raw.records(account, "imagePullSecrets")
    given = [{"name": raw.text(secret, "name")} for secret in islice(secrets, PULL_SECRETS)]
    if given:
        spec["imagePullSecrets"] = given
