"""The service account that a new pod runs as: named by either of its fields, and there; pure.

As the reference's ServiceAccount plugin, but for `default`: a controller makes that one within a
second of the namespace, and a pod is not refused for having been quicker. Mirror pods are what they
are: the agent runs their static pods whatever is refused here.
"""

from __future__ import annotations

from collections.abc import Callable

from orch.server.objects.document import Document, ObjectTarget
from orch.wire import raw
from orch.wire.names import DEFAULT_SERVICE_ACCOUNT
from orch.wire.podrules.podspec import mirror_hash
from orch.wire.records.kinds import PODS, Resource

# Whether a namespace, which exists, has no account of a name.
IsMissing = Callable[[str, str], bool]


class ServiceAccounts:
    """The `Admission` of pods, which it completes."""

    def __init__(self, is_missing: IsMissing) -> None:
        self._is_missing = is_missing

    def judges(self, resource: Resource) -> bool:
        return resource is PODS

    def check(self, target: ObjectTarget, new: Document, old: Document | None) -> None:
        """ApiError 403 for an account that is not there."""
        if old is not None or mirror_hash(new) is not None:
            return
        spec = new["spec"]
        name = raw.text(spec, "serviceAccountName") or raw.text(spec, "serviceAccount")
        if not name:
            return
        spec["serviceAccountName"] = name  # the other is its older name
        if name != DEFAULT_SERVICE_ACCOUNT and self._is_missing(target.namespace, name):
            raise target.forbidden(
                new["metadata"].get("name", ""),
                f"error looking up service account {target.namespace}/{name}:"
                f' serviceaccount "{name}" not found',
            )
