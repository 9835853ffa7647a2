"""Which pods of a node a drain may move: the rules of `kubectl drain`; pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from orch.wire import raw
from orch.wire.names import ANNOTATION_CONFIG_MIRROR

_ENDED = ("Succeeded", "Failed")


class Verdict(enum.Enum):
    EVICT = "evict"
    LEAVE = "leave"
    REFUSE = "refuse"


class Judgement(NamedTuple):
    """`why` is what to warn of, or why nothing is done."""

    verdict: Verdict
    why: str = ""


@dataclass(frozen=True, slots=True)
class Permits:
    """What the operator has allowed."""

    daemon_sets: bool = False
    empty_dirs: bool = False
    unmanaged: bool = False


def judge(pod: Mapping[str, Any], permits: Permits) -> Judgement:
    """What to do with a pod."""
    if ANNOTATION_CONFIG_MIRROR in raw.mapping(pod, "metadata", "annotations"):
        return Judgement(Verdict.LEAVE)
    if raw.text(pod, "status", "phase") in _ENDED:
        return Judgement(Verdict.EVICT)
    controller = _controller(pod)
    if controller == "DaemonSet":
        if permits.daemon_sets:
            return Judgement(Verdict.LEAVE, "stays: a daemon set would bring it back at once")
        return Judgement(Verdict.REFUSE, "is of a daemon set: --ignore-daemonsets leaves it")
    if not controller and not permits.unmanaged:
        return Judgement(Verdict.REFUSE, "has no controller: --force deletes it for good")
    if _has_empty_dir(pod) and not permits.empty_dirs:
        return Judgement(
            Verdict.REFUSE, "has emptyDir volumes: --delete-emptydir-data gives up their data"
        )
    return Judgement(Verdict.EVICT, "" if controller else "has no controller: it is gone for good")


def _controller(pod: Mapping[str, Any]) -> str:
    """The kind of the object that would make the pod anew; "" when there is none."""
    for owner in raw.records(pod, "metadata", "ownerReferences"):
        if owner.get("controller") is True:
            return raw.text(owner, "kind")
    return ""


def _has_empty_dir(pod: Mapping[str, Any]) -> bool:
    return any("emptyDir" in volume for volume in raw.records(pod, "spec", "volumes"))
