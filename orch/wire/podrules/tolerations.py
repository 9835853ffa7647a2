"""Which taints a pod tolerates (core/v1 Toleration.ToleratesTaint), and what it says by default."""

from __future__ import annotations

from collections.abc import Iterable

from orch.wire import names
from orch.wire.records.core import Taint
from orch.wire.records.pods import Toleration

NO_SCHEDULE, PREFER_NO_SCHEDULE, NO_EXECUTE = EFFECTS = (
    "NoSchedule", "PreferNoSchedule", "NoExecute"
)  # fmt: skip
# How long a pod that says nothing of them stays on a node with one of these taints.
DEFAULT_TOLERATION_S = 300
TOLERATED_BY_DEFAULT = (names.TAINT_NOT_READY, names.TAINT_UNREACHABLE)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """An empty effect and an empty key match every one."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    if toleration.operator not in (None, "", "Equal") or not toleration.key:
        return False
    return (toleration.value or "") == (taint.value or "")


def is_tolerated(taint: Taint, tolerations: Iterable[Toleration] | None) -> bool:
    return any(tolerates(toleration, taint) for toleration in tolerations or ())
