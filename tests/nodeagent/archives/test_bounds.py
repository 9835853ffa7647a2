"""The archives to remove, by table for every bound and by law for all of them together."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.archives import bounds
from nodeagent.archives.bounds import Archive, Bounds, Space
from nodeagent.archives.manifest import Manifest, archive_name
from nodeagent.config.types import CheckpointPolicy
from nodeagent.node.rules.pressure import Amount
from orch.wire import times

DAY_S = 24 * 3600.0
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
ROOMY = Space(free_bytes=10**12, capacity_bytes=10**13)


def archive(
    age_s: int,
    owner: str = "shop/web/app",
    *,
    size: int = 100,
    pinned: bool = False,
    gone_s: int = -1,
) -> Archive:
    namespace, pod, container = owner.split("/")
    created = NOW - timedelta(seconds=age_s)
    name = archive_name(namespace, pod, container, created)
    gone = times.format_time(NOW - timedelta(seconds=gone_s)) if gone_s >= 0 else ""
    manifest = Manifest(
        name, namespace=namespace, pod=pod, container=container, pod_gone_since=gone
    )
    return Archive(name, size, created, pinned, manifest)


def ages(
    archives: list[Archive],
    limits: Bounds,
    space: Space = ROOMY,
    *,
    need: int = 0,
    protected: Collection[str] = (),
) -> dict[int, str]:
    """Age of each archive that has to go → the bound."""
    chosen = bounds.select_removals(
        archives, limits, space, NOW, need_bytes=need, protected=protected
    )
    return {int((NOW - one.archive.created).total_seconds()): one.reason for one in chosen}


THREE = [archive(10), archive(20), archive(30)]
TABLE = [
    (THREE, Bounds(), {}),
    (THREE, Bounds(per_container=3), {}),
    (THREE, Bounds(per_container=1), {30: "perContainer", 20: "perContainer"}),
    ([archive(10), archive(20), archive(30, pinned=True)], Bounds(per_container=1),
     {20: "perContainer", 10: "perContainer"}),
    ([archive(10, "shop/web/app"), archive(20, "shop/web/side")], Bounds(per_container=1), {}),
    ([archive(10, "shop/web/app"), archive(20, "shop/web/side")], Bounds(per_pod=1),
     {20: "perPod"}),
    ([archive(10, "shop/web/app"), archive(20, "shop/api/app")], Bounds(per_pod=1), {}),
    ([archive(10, "shop/web/app"), archive(20, "shop/api/app")], Bounds(per_namespace=1),
     {20: "perNamespace"}),
    ([archive(10, "shop/web/app"), archive(20, "bank/web/app")], Bounds(per_namespace=1), {}),
    (THREE, Bounds(total=Amount(250)), {30: "totalBytes"}),
    (THREE, Bounds(age_s=20), {30: "age"}),
    ([archive(10, gone_s=5), archive(20, gone_s=7)], Bounds(pod_gone_s=6), {20: "podGone"}),
    ([archive(10, gone_s=0)], Bounds(pod_gone_s=0.0), {10: "podGone"}),
    ([archive(10, gone_s=999)], Bounds(pod_gone_s=None), {}),
]  # fmt: skip


@pytest.mark.parametrize(("archives", "limits", "gone"), TABLE)
def test_the_oldest_unpinned_archives_go_until_the_bound_holds(
    archives: list[Archive], limits: Bounds, gone: dict[int, str]
) -> None:
    assert ages(archives, limits) == gone


@pytest.mark.parametrize(
    ("free", "need", "gone"),
    [
        (1000, 0, []),
        (999, 0, [30]),
        (850, 0, [30, 20]),
        (1000, 150, [30, 20]),
        (0, 0, [30, 20, 10]),
    ],
)
def test_archives_go_when_the_file_system_runs_full(free: int, need: int, gone: list[int]) -> None:
    limits = Bounds(min_free=Amount(percent=10.0))

    assert list(ages(THREE, limits, Space(free, 10_000), need=need)) == gone


def test_removals_by_one_limit_count_for_the_next() -> None:
    limits = Bounds(age_s=25, per_container=2, total=Amount(200), min_free=Amount(1000))

    assert ages(THREE, limits, Space(900, 10_000)) == {30: "age"}


def test_the_newest_stays_when_only_pinned_ones_are_left_beside_it() -> None:
    archives = [archive(0), archive(20, pinned=True), archive(30, pinned=True)]

    assert ages(archives, Bounds(per_container=1), protected={archives[0].name}) == {}


def test_an_archive_without_manifest_counts_to_its_container_alone() -> None:
    known, unknown = archive(10), replace(archive(20), manifest=None)

    assert ages([known, unknown], Bounds(per_container=1)) == {20: "perContainer"}
    assert ages([known, unknown], Bounds(per_pod=1, per_namespace=1, pod_gone_s=0.0)) == {}


REFUSALS = [
    (Bounds(), [archive(1, pinned=True)], ROOMY, ""),
    (Bounds(per_container=1), [archive(1)], ROOMY, ""),
    (Bounds(per_container=1), [archive(1, pinned=True)], ROOMY, "checkpoint.maxPerContainer"),
    (Bounds(per_pod=1), [archive(1, "shop/web/side", pinned=True)], ROOMY, "maxPerPod"),
    (Bounds(per_namespace=1), [archive(1, "shop/x/y", pinned=True)], ROOMY, "maxPerNamespace"),
    (Bounds(per_namespace=1), [archive(1, "bank/x/y", pinned=True)], ROOMY, ""),
    (Bounds(total=Amount(150)), [archive(1, pinned=True)], ROOMY, "50 more than fit"),
    (Bounds(total=Amount(150)), [archive(1)], ROOMY, ""),
    (Bounds(min_free=Amount(1000)), [], Space(1100, 9999), ""),
    (Bounds(min_free=Amount(1000)), [], Space(1070, 9999), "30 more are needed to leave 1000"),
]


@pytest.mark.parametrize(("limits", "archives", "space", "told"), REFUSALS)
def test_an_archive_without_room_is_refused(
    limits: Bounds, archives: list[Archive], space: Space, told: str
) -> None:
    new = archive(0)

    refused = bounds.refusal(archives, limits, space, new, need_bytes=new.size_bytes)

    assert told in refused
    assert bool(told) == bool(refused)


@pytest.mark.parametrize(
    ("limits", "free", "excess"),
    [
        (Bounds(), 0, 0),
        (Bounds(total=Amount(300)), 0, 0),
        (Bounds(total=Amount(250)), 0, 50),
        (Bounds(min_free=Amount(1000)), 990, 10),
        (Bounds(min_free=Amount(1000)), 0, 300),  # no more than what the store itself holds
    ],
)
def test_pressure_is_what_the_store_holds_beyond_its_bounds(
    limits: Bounds, free: int, excess: int
) -> None:
    assert bounds.excess_bytes(THREE, limits, Space(free, 10_000)) == excess


ARCHIVES = st.lists(
    st.builds(
        archive,
        st.integers(0, 1000),
        st.sampled_from(["a/p/c", "a/p/d", "a/q/c", "b/p/c"]),
        size=st.integers(1, 500),
        pinned=st.booleans(),
        gone_s=st.integers(-1, 50),
    ),
    max_size=12,
    unique_by=lambda one: one.name,
)
LIMITS = st.builds(
    Bounds,
    per_container=st.integers(0, 3),
    per_pod=st.integers(0, 4),
    per_namespace=st.integers(0, 5),
    total=st.builds(Amount, st.integers(0, 2000)),
    age_s=st.sampled_from([0.0, 500.0]),
    pod_gone_s=st.sampled_from([None, 0.0, 20.0]),
    min_free=st.builds(Amount, st.integers(0, 2000)),
)


@given(ARCHIVES, LIMITS, st.integers(0, 3000))
def test_pinned_archives_stay_and_the_rest_is_within_bounds(
    archives: list[Archive], limits: Bounds, free: int
) -> None:
    gone = {r.archive for r in bounds.select_removals(archives, limits, Space(free, 5000), NOW)}
    left = [one for one in archives if one not in gone]
    after = Space(free + sum(one.size_bytes for one in gone), 5000)

    assert not any(one.pinned for one in gone)
    assert bounds.select_removals(left, limits, after, NOW) == ()
    if any(not one.pinned for one in left):
        for limit, key in (
            (limits.per_container, Archive.container_key),
            (limits.per_pod, Archive.pod_key),
            (limits.per_namespace, Archive.namespace_key),
        ):
            for group in {key(one) for one in left if not one.pinned}:
                members = [one for one in left if key(one) == group]
                assert not limit or len(members) <= limit
        assert bounds.excess_bytes(left, limits, after) == 0


def test_the_defaults_limit_everything() -> None:
    assert bounds.bounds_of(CheckpointPolicy()) == Bounds(
        per_container=10,
        per_pod=20,
        per_namespace=100,
        total=Amount(percent=20.0),
        age_s=7 * DAY_S,
        pod_gone_s=DAY_S,
        min_free=Amount(percent=12.0),
    )


@pytest.mark.parametrize(("word", "gone_s"), [("Keep", None), ("Expire", 60.0), ("Delete", 0.0)])
def test_archives_of_deleted_pods_stay_expire_or_are_deleted(
    word: str, gone_s: float | None
) -> None:
    chosen = CheckpointPolicy.model_validate({"deletedPods": word, "deletedPodsMaxAge": "1m"})

    assert bounds.bounds_of(chosen).pod_gone_s == gone_s


def test_bytes_may_be_a_quantity_and_zero_is_unlimited() -> None:
    chosen = CheckpointPolicy.model_validate({"maxTotal": "10Gi", "minFree": "0", "maxAge": "0s"})

    found = bounds.bounds_of(chosen)

    assert (found.total, found.min_free, found.age_s) == (Amount(10 * 2**30), Amount(0), 0.0)
