"""The store's limits (configuration section `checkpoint`) and which archives exceed them; pure.

The oldest unpinned archives are removed first, limit by limit: age, deleted pods, number per
container, pod and namespace, total bytes, and last the free space of the file system. Pinned
archives count but are never removed. Archives without a manifest count where their name suffices.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from datetime import datetime

from nodeagent.archives.manifest import Manifest, owner_of
from nodeagent.config.types import CheckpointPolicy
from nodeagent.node.rules.pressure import Amount, parse_amount

AGE, POD_GONE = "age", "podGone"
PER_CONTAINER, PER_POD, PER_NAMESPACE = "perContainer", "perPod", "perNamespace"
TOTAL_BYTES, FREE_SPACE = "totalBytes", "freeSpace"
NO_BOUND = Amount()
REASONS = (AGE, POD_GONE, PER_CONTAINER, PER_POD, PER_NAMESPACE, TOTAL_BYTES, FREE_SPACE)


@dataclass(frozen=True, slots=True)
class Archive:
    """A file of the store; `manifest` is None when it is missing or unreadable."""

    name: str
    size_bytes: int
    created: datetime
    pinned: bool = False
    manifest: Manifest | None = None

    def container_key(self) -> Hashable:
        return owner_of(self.name)

    def pod_key(self) -> Hashable:
        """None when not known."""
        m = self.manifest
        return (m.namespace, m.pod) if m and m.pod and m.namespace else None

    def namespace_key(self) -> Hashable:
        """None when not known."""
        return (self.manifest.namespace or None) if self.manifest else None


@dataclass(frozen=True, slots=True)
class Bounds:
    """0 (and `NO_BOUND`) means unlimited; `pod_gone_s` None: archives outlive their pods."""

    per_container: int = 0
    per_pod: int = 0
    per_namespace: int = 0
    total: Amount = NO_BOUND
    age_s: float = 0.0
    pod_gone_s: float | None = None
    min_free: Amount = NO_BOUND


@dataclass(frozen=True, slots=True)
class Space:
    """Of the file system that holds the store."""

    free_bytes: int
    capacity_bytes: int


@dataclass(frozen=True, slots=True)
class Removal:
    archive: Archive
    reason: str  # one of REASONS
    why: str  # for people


def select_removals(
    archives: Collection[Archive],
    bounds: Bounds,
    space: Space,
    now: datetime,
    *,
    protected: Collection[str] = (),
    need_bytes: int = 0,
) -> tuple[Removal, ...]:
    """The archives to remove, in order, and why.

    `protected` names archives that are never removed: those just created. `need_bytes` are about
    to be written to the file system.
    """
    selection = _Selection(archives, protected)
    selection.add_expired(AGE, lambda a: _too_old(a, bounds, now))
    selection.add_expired(POD_GONE, lambda a: _pod_gone(a, bounds, now))
    for reason, limit, owner, key in (
        (PER_CONTAINER, bounds.per_container, "container", Archive.container_key),
        (PER_POD, bounds.per_pod, "pod", Archive.pod_key),
        (PER_NAMESPACE, bounds.per_namespace, "namespace", Archive.namespace_key),
    ):
        selection.add_surplus(reason, limit, owner, key)
    if limit := bounds.total.of(space.capacity_bytes):
        excess = selection.left_bytes - limit
        selection.add_oldest(TOTAL_BYTES, excess, f"all archives together may take {limit} bytes")
    floor = bounds.min_free.of(space.capacity_bytes)
    missing = floor + need_bytes - space.free_bytes - selection.removed_bytes
    selection.add_oldest(FREE_SPACE, missing, f"{floor} bytes of the file system must stay free")
    return tuple(selection.removals)


def apply_removals(
    archives: Collection[Archive], space: Space, removed: Collection[Removal]
) -> tuple[list[Archive], Space]:
    """The archives and the space that remain after the removals."""
    gone = {removal.archive.name for removal in removed}
    freed_bytes = sum(removal.archive.size_bytes for removal in removed)
    left = [archive for archive in archives if archive.name not in gone]
    return left, Space(space.free_bytes + freed_bytes, space.capacity_bytes)


def refusal(
    archives: Collection[Archive], bounds: Bounds, space: Space, new: Archive, *, need_bytes: int
) -> str:
    """Why there is no room for an archive like `new`, of estimated size; "" when there is.

    `archives` and `space` are those after removals. Creating the archive writes `need_bytes`.
    """
    pinned = [archive for archive in archives if archive.pinned]
    for limit, field, key in (
        (bounds.per_container, "maxPerContainer", Archive.container_key),
        (bounds.per_pod, "maxPerPod", Archive.pod_key),
        (bounds.per_namespace, "maxPerNamespace", Archive.namespace_key),
    ):
        same = sum(1 for archive in pinned if key(archive) == key(new))
        owner = field.removeprefix("maxPer").lower()
        if limit and same >= limit:
            return (
                f"{same} archives of the {owner} are pinned, the limit of checkpoint.{field}; "
                "unpin one"
            )
    limit = bounds.total.of(space.capacity_bytes)
    over = sum(archive.size_bytes for archive in pinned) + new.size_bytes - limit
    if limit and over > 0:
        return (
            f"the archive may take {new.size_bytes} bytes, {over} more than fit beside the pinned "
            f"archives (checkpoint.maxTotal is {limit})"
        )
    missing = missing_bytes(bounds, space, need_bytes)
    if missing:
        floor = bounds.min_free.of(space.capacity_bytes)
        return (
            f"creating the archive may take {need_bytes} bytes and {space.free_bytes} are free; "
            f"{missing} more are needed to leave {floor} free (checkpoint.minFree)"
        )
    return ""


def missing_bytes(bounds: Bounds, space: Space, need_bytes: int) -> int:
    """How many bytes must be freed before `need_bytes` fit above the floor."""
    floor = bounds.min_free.of(space.capacity_bytes)
    return max(0, floor + need_bytes - space.free_bytes)


def excess_bytes(archives: Collection[Archive], bounds: Bounds, space: Space) -> int:
    """By how much the store exceeds its limits; above 0 the node reports disk pressure."""
    used = sum(archive.size_bytes for archive in archives)
    limit = bounds.total.of(space.capacity_bytes)
    short = min(used, missing_bytes(bounds, space, 0))
    return max(0, used - limit if limit else 0, short)


class _Selection:
    """The archives left, oldest first, and those selected for removal."""

    def __init__(self, archives: Collection[Archive], protected: Collection[str]) -> None:
        self._left = sorted(archives, key=lambda archive: (archive.created, archive.name))
        self._protected = protected
        self.removals: list[Removal] = []

    @property
    def left_bytes(self) -> int:
        return sum(archive.size_bytes for archive in self._left)

    @property
    def removed_bytes(self) -> int:
        return sum(removal.archive.size_bytes for removal in self.removals)

    def add_expired(self, reason: str, why: Callable[[Archive], str]) -> None:
        """Select every archive for which `why` returns a text."""
        for archive in self._removable(self._left):
            if text := why(archive):
                self._add(archive, reason, text)

    def add_surplus(
        self, reason: str, limit: int, owner: str, key: Callable[[Archive], Hashable]
    ) -> None:
        """Select the oldest of every owner with more than `limit`; unknown owners are skipped."""
        groups: dict[Hashable, list[Archive]] = {}
        for archive in self._left:
            if limit and (owned_by := key(archive)):
                groups.setdefault(owned_by, []).append(archive)
        for members in groups.values():
            why = f"the {owner} has {len(members)} archives and may have {limit}"
            for archive in self._removable(members)[: max(0, len(members) - limit)]:
                self._add(archive, reason, why)

    def add_oldest(self, reason: str, excess_bytes: int, why: str) -> None:
        """Select the oldest archives until `excess_bytes` are freed."""
        for archive in self._removable(self._left):
            if excess_bytes <= 0:
                return
            self._add(archive, reason, why)
            excess_bytes -= archive.size_bytes

    def _removable(self, archives: Sequence[Archive]) -> list[Archive]:
        return [a for a in archives if not a.pinned and a.name not in self._protected]

    def _add(self, archive: Archive, reason: str, why: str) -> None:
        self._left.remove(archive)
        self.removals.append(Removal(archive, reason, why))


def _too_old(archive: Archive, bounds: Bounds, now: datetime) -> str:
    age_s = (now - archive.created).total_seconds()
    if not bounds.age_s or age_s <= bounds.age_s:
        return ""
    return f"it is {age_s:.0f} s old and may be {bounds.age_s:.0f} s"


def _pod_gone(archive: Archive, bounds: Bounds, now: datetime) -> str:
    since = archive.manifest.gone_since if archive.manifest else None
    if since is None or bounds.pod_gone_s is None:
        return ""
    gone_s = (now - since).total_seconds()
    if gone_s < bounds.pod_gone_s:
        return ""
    return (
        f"its pod has been gone for {gone_s:.0f} s; archives are kept for {bounds.pod_gone_s:.0f} s"
    )


def bounds_of(policy: CheckpointPolicy) -> Bounds:
    return Bounds(
        per_container=policy.maxPerContainer,
        per_pod=policy.maxPerPod,
        per_namespace=policy.maxPerNamespace,
        total=parse_amount(policy.maxTotal),
        age_s=policy.maxAge,
        pod_gone_s=_pod_gone_s(policy),
        min_free=parse_amount(policy.minFree),
    )


def _pod_gone_s(policy: CheckpointPolicy) -> float | None:
    """None: archives of deleted pods are kept like any other."""
    return {"Keep": None, "Expire": policy.deletedPodsMaxAge, "Delete": 0.0}[policy.deletedPods]
