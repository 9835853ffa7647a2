from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from orch.server.storage.base import Compacted
from orch.server.storage.compaction import KEY, Compactor


@dataclass
class Entry:
    version: int


class FakeEtcd:
    """One key with its version, and the revisions it was compacted to."""

    def __init__(self) -> None:
        self.version = 0
        self.compacted: list[int] = []

    async def put_if_version(self, key: bytes, value: bytes, version: int) -> tuple[int, Any]:
        assert key == KEY
        if version != self.version:
            return 0, Entry(self.version) if self.version else None
        self.version += 1
        return 1000, None

    async def compact(self, revision: int) -> None:
        if self.compacted and revision <= self.compacted[-1]:
            raise Compacted(revision, self.compacted[-1])
        self.compacted.append(revision)


async def test_a_round_compacts_to_what_was_the_newest_a_round_ago() -> None:
    etcd = FakeEtcd()
    compactor = Compactor(etcd)
    for newest in (10, 20, 30):
        await compactor.round(newest)
    assert etcd.compacted == [10, 20]


async def test_of_several_servers_one_compacts_each_round() -> None:
    etcd = FakeEtcd()
    servers = [Compactor(etcd) for _ in range(3)]
    for newest in range(10, 100, 10):
        for number, server in enumerate(servers):
            await server.round(newest + number)
    assert etcd.compacted == sorted(set(etcd.compacted))
    assert 7 <= len(etcd.compacted) <= 8
    assert etcd.version == 9


async def test_another_takes_over_when_the_one_is_gone() -> None:
    etcd = FakeEtcd()
    one, other = Compactor(etcd), Compactor(etcd)
    for newest in (10, 20):
        await one.round(newest)
        await other.round(newest + 1)
    for newest in (30, 40):
        await other.round(newest)
    assert etcd.compacted[-1] == 30


async def test_what_was_compacted_already_is_no_failure() -> None:
    etcd = FakeEtcd()
    etcd.compacted = [1000]
    compactor = Compactor(etcd)
    await compactor.round(10)
    await compactor.round(20)
    assert etcd.compacted == [1000]
