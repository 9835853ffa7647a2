"""The pods of all sources → the pods that should run here; pure.

Two pods of one name cannot both run: the one that comes first wins, files before the API.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from orch.wire.pods import Pod


@dataclass(frozen=True, slots=True)
class Desired:
    """`refused` are sentences about pods that were left out."""

    pods: tuple[Pod, ...]
    refused: tuple[str, ...]


def merge(listed: Iterable[Pod]) -> Desired:
    """Keep the first pod of every name and of every uid."""
    kept: dict[str, Pod] = {}
    by_name: dict[str, Pod] = {}
    refused: list[str] = []
    for pod in listed:
        uid = pod.metadata.uid or ""
        rival = by_name.get(pod.key) or kept.get(uid)
        if rival is not None:
            what = "name" if rival.key == pod.key else "uid"
            refused.append(
                f"pod {pod.key} ({uid}) is not run: pod {rival.key} ({rival.metadata.uid}) "
                f"has the same {what}; give it another"
            )
            continue
        kept[uid] = by_name[pod.key] = pod
    return Desired(tuple(kept.values()), tuple(refused))
