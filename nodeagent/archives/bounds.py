"""What the store may hold, and what has to go when it holds more; pure.

The oldest unpinned archives go first, bound by bound: age, pods that are gone, number per
container, per pod and per namespace, bytes in all, and last the free space of the file system.
Pinned archives count but never go. An archive whose owner is not known (no manifest) is counted
where its name tells enough.

The configuration's `checkpoint` section as the store's bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from datetime import datetime

from nodeagent.archives import encryption
from nodeagent.archives import manifest as archives_manifest
from nodeagent.archives.encryption import Encryption
from nodeagent.archives.manifest import Manifest
from nodeagent.config.types import CheckpointPolicy
from nodeagent.node.rules.pressure import Amount, parse_amount

AGE, POD_GONE = "age", "podGone"
PER_CONTAINER, PER_POD, PER_NAMESPACE = "perContainer", "perPod", "perNamespace"
TOTAL_BYTES, FREE_SPACE = "totalBytes", "freeSpace"
NO_BOUND = Amount()
REASONS = (AGE, POD_GONE, PER_CONTAINER, PER_POD, PER_NAMESPACE, TOTAL_BYTES, FREE_SPACE)


@dataclass(frozen=True, slots=True)
class Archive:
    """A file of the store; `manifest` is None when there is none that can be read."""

    name: str
    size_bytes: int
    created: datetime
    pinned: bool = False
    manifest: Manifest | None = None

    def container_key(self) -> Hashable:
        return archives_manifest.owner_of(self.name)

    def pod_key(self) -> Hashable:
        """None when not known."""
        m = self.manifest
        return (m.namespace, m.pod) if m and m.pod and m.namespace else None

    def namespace_key(self) -> Hashable:
        """None when not known."""
        return (self.manifest.namespace or None) if self.manifest else None


@dataclass(frozen=True, slots=True)
class Bounds:
    """0 (and `NO_BOUND`) means "no bound"; `pod_gone_s` None: archives outlive their pods."""

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


def removals(
    archives: Collection[Archive],
    bounds: Bounds,
    space: Space,
    now: datetime,
    *,
    kept: Collection[str] = (),
    need_bytes: int = 0,
) -> tuple[Removal, ...]:
    """The archives that have to go, in the order in which they were chosen, and why.

    `kept` names those that stay whatever happens: the newest, just made. `need_bytes` are to be
    written to the file system soon.
    """
    chosen = _Choice(archives, kept)
    chosen.take(AGE, lambda a: _too_old(a, bounds, now))
    chosen.take(POD_GONE, lambda a: _pod_gone(a, bounds, now))
    chosen.count(PER_CONTAINER, bounds.per_container, "container", Archive.container_key)
    chosen.count(PER_POD, bounds.per_pod, "pod", Archive.pod_key)
    chosen.count(PER_NAMESPACE, bounds.per_namespace, "namespace", Archive.namespace_key)
    limit = bounds.total.of(space.capacity_bytes)
    if limit:
        over = chosen.left_bytes - limit
        chosen.free(TOTAL_BYTES, over, f"all archives together may take {limit} bytes")
    floor = bounds.min_free.of(space.capacity_bytes)
    short = floor + need_bytes - space.free_bytes - chosen.removed_bytes
    chosen.free(FREE_SPACE, short, f"{floor} bytes of the file system have to stay free")
    return tuple(chosen.removals)


def after(
    archives: Collection[Archive], space: Space, removed: Collection[Removal]
) -> tuple[list[Archive], Space]:
    """What is left, and the space there is, once these are removed."""
    gone = {removal.archive.name for removal in removed}
    freed_bytes = sum(removal.archive.size_bytes for removal in removed)
    left = [archive for archive in archives if archive.name not in gone]
    return left, Space(space.free_bytes + freed_bytes, space.capacity_bytes)


def refusal(
    archives: Collection[Archive],
    bounds: Bounds,
    space: Space,
    new: Archive,
    *,
    need_bytes: int,
) -> str:
    """Why there is no room for an archive like `new` (its size is a guess); "" when there is.

    Asked of what is left after what can go is gone. `need_bytes` are written to make it.
    """
    pinned = [archive for archive in archives if archive.pinned]
    for limit, field, key in (
        (bounds.per_container, "maxPerContainer", Archive.container_key),
        (bounds.per_pod, "maxPerPod", Archive.pod_key),
        (bounds.per_namespace, "maxPerNamespace", Archive.namespace_key),
    ):
        same = sum(1 for archive in pinned if key(archive) == key(new))
        whose = field.removeprefix("maxPer").lower()
        if limit and same >= limit:
            return (
                f"{same} archives of the {whose} are pinned, as many as there may be "
                f"(checkpoint.{field}); unpin one"
            )
    limit = bounds.total.of(space.capacity_bytes)
    over = sum(archive.size_bytes for archive in pinned) + new.size_bytes - limit
    if limit and over > 0:
        return (
            f"the archive may take {new.size_bytes} bytes, {over} more than the store has room "
            f"for beside what is pinned (checkpoint.maxTotal is {limit})"
        )
    missing = missing_bytes(bounds, space, need_bytes)
    if missing:
        floor = bounds.min_free.of(space.capacity_bytes)
        return (
            f"making the archive may take {need_bytes} bytes and {space.free_bytes} are free; "
            f"{missing} more are needed to leave {floor} free (checkpoint.minFree)"
        )
    return ""


def missing_bytes(bounds: Bounds, space: Space, need_bytes: int) -> int:
    """How many bytes are missing for `need_bytes` more above the floor; 0 when none."""
    floor = bounds.min_free.of(space.capacity_bytes)
    return max(0, floor + need_bytes - space.free_bytes)


def excess_bytes(archives: Collection[Archive], bounds: Bounds, space: Space) -> int:
    """By how much the store is too large for its file system; what the node's pressure shows."""
    used = sum(archive.size_bytes for archive in archives)
    limit = bounds.total.of(space.capacity_bytes)
    short = min(used, missing_bytes(bounds, space, 0))
    return max(0, used - limit if limit else 0, short)


class _Choice:
    """The archives left, oldest first, and those chosen to go."""

    def __init__(self, archives: Collection[Archive], kept: Collection[str]) -> None:
        self._left = sorted(archives, key=lambda archive: (archive.created, archive.name))
        self._kept = kept
        self.removals: list[Removal] = []

    @property
    def left_bytes(self) -> int:
        return sum(archive.size_bytes for archive in self._left)

    @property
    def removed_bytes(self) -> int:
        return sum(removal.archive.size_bytes for removal in self.removals)

    def take(self, reason: str, why: Callable[[Archive], str]) -> None:
        """Take every archive for which `why` has an answer."""
        for archive in self._removable(self._left):
            if text := why(archive):
                self._remove(archive, reason, text)

    def count(
        self, reason: str, limit: int, whose: str, key: Callable[[Archive], Hashable]
    ) -> None:
        """Take the oldest of every group that has more than `limit` members; None is no group."""
        groups: dict[Hashable, list[Archive]] = {}
        for archive in self._left:
            groups.setdefault(key(archive), []).append(archive)
        groups.pop(None, None)
        groups.pop("", None)
        for members in groups.values() if limit else ():
            why = f"the {whose} has {len(members)} archives and may have {limit}"
            for archive in self._removable(members)[: max(0, len(members) - limit)]:
                self._remove(archive, reason, why)

    def free(self, reason: str, over_bytes: int, why: str) -> None:
        """Take the oldest until `over_bytes` are gone."""
        for archive in self._removable(self._left):
            if over_bytes <= 0:
                return
            self._remove(archive, reason, why)
            over_bytes -= archive.size_bytes

    def _removable(self, archives: Sequence[Archive]) -> list[Archive]:
        return [a for a in archives if not a.pinned and a.name not in self._kept]

    def _remove(self, archive: Archive, reason: str, why: str) -> None:
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
    return f"its pod has been gone for {gone_s:.0f} s; archives stay {bounds.pod_gone_s:.0f} s"


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


def encryption_of(policy: CheckpointPolicy) -> Encryption | None:
    """EncryptionError names what is wrong with the recipients."""
    wanted = policy.encryption
    return encryption.configured(wanted.recipients, wanted.recipientsFile)


def _pod_gone_s(policy: CheckpointPolicy) -> float | None:
    """None: archives of deleted pods stay like any other."""
    return {"Keep": None, "Expire": policy.deletedPodsMaxAge, "Delete": 0.0}[policy.deletedPods]
