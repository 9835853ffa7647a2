"""The store is kept within its bounds before and after a checkpoint and from time to time."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pyrage
import pytest

from nodeagent.archives import folder
from nodeagent.archives.archive_index import ArchiveIndex
from nodeagent.archives.bounds import Bounds, Space
from nodeagent.archives.encryption import Encryption
from nodeagent.node.rules.pressure import Amount
from orch.component.process import loops
from tests.fakes.checkpoints import NOON, Node, checkpointable_node, refusal


@pytest.fixture
async def node(tmp_path: Path) -> Node:
    return await checkpointable_node(tmp_path)


async def make(node: Node, container: str = "app", *, hours: int = 0) -> str:
    """A checkpoint made some hours after noon; the archive's name."""
    node.moments[:] = [NOON + timedelta(hours=hours)]
    return Path(await node.service().checkpoint("shop", "web", container)).name


def at(node: Node, moment: datetime) -> None:
    node.today = moment


async def test_the_oldest_is_removed_after_a_new_one_was_created(node: Node) -> None:
    node.bounds = Bounds(per_container=2)
    names = [await make(node, hours=hour) for hour in range(3)]
    await node.pruner().step()

    assert node.files() == names[1:]
    assert node.events.reasons == ["Checkpointed"] * 3 + ["CheckpointRemoved"]
    assert "the container has 3 archives and may have 2" in node.events.recorded[-1][2]
    assert node.reports.counts.removed == {"perContainer": 1}
    state = node.reports.counts.store
    assert state and (state.archives, state.pinned) == (2, 0)
    assert state.used_bytes == sum((node.store / name).stat().st_size for name in names[1:])


async def test_the_answer_does_not_wait_for_removals(node: Node) -> None:
    node.bounds = Bounds(per_container=1)
    names, pruner = [await make(node)], node.pruner()
    running = loops.spawn(pruner.run(), name="checkpoint store")
    async with asyncio.timeout(30):
        while pruner.excess_bytes() is None:
            await asyncio.sleep(0.01)
    node.moments[:] = [NOON + timedelta(hours=1)]

    names.append(Path(await node.service(pruner=pruner).checkpoint("shop", "web", "app")).name)

    assert node.files() == names
    async with asyncio.timeout(30):  # a minute is how long it would take unasked
        while node.files() != names[1:]:
            await asyncio.sleep(0.01)
    await loops.cancel(running)


async def test_a_new_archive_stays_for_one_step_whatever_it_exceeds(node: Node) -> None:
    pruner = node.pruner()
    name = Path(await node.service(pruner=pruner).checkpoint("shop", "web", "app")).name
    pruner = node.pruner(Bounds(total=Amount(1)))
    pruner.archive_created(name)

    await pruner.step()
    assert node.files() == [name]
    await pruner.step()
    assert node.files() == []


async def test_a_failed_checkpoint_removes_no_archive(node: Node) -> None:
    node.bounds = Bounds(per_container=1)
    name = await make(node)
    node.runtime.fail("checkpoint_container", "broken")

    assert (await refusal(node.service(), "shop", "web", "app"))[0] == 500
    assert node.files() == [name]
    assert node.events.reasons[-1] == "CheckpointFailed"


async def test_pinned_archives_stay_and_leave_no_room(node: Node) -> None:
    node.bounds = Bounds(per_container=1)
    name = await make(node)
    node.index.pin(node.index.find(name))
    node.runtime.calls.clear()

    code, _, message = await refusal(node.service(), "shop", "web", "app")

    assert code == 500
    assert "1 archives of the container are pinned, the limit of checkpoint.maxPer" in message
    assert node.runtime.calls == []
    assert node.files() == [name, f"{name}.keep"]


async def test_too_little_free_space_is_reported_with_the_missing_bytes(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.bounds, node.memory_bytes = Bounds(min_free=Amount(1000)), 500
    monkeypatch.setattr(ArchiveIndex, "space", lambda _self: Space(2200, 10_000))

    code, _, message = await refusal(node.service(), "shop", "web", "app")

    assert code == 500
    assert "may take 1500 bytes and 2200 are free; 300 more are needed to leave 1000" in message
    assert node.runtime.called("checkpoint_container") == []


async def test_nothing_is_removed_for_a_checkpoint_that_cannot_fit(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await make(node)
    node.bounds, node.memory_bytes = Bounds(min_free=Amount(1000)), 50_000
    monkeypatch.setattr(ArchiveIndex, "space", lambda _self: Space(1200, 100_000))

    code, _, message = await refusal(node.service(), "shop", "web", "app")

    assert (code, "more are needed" in message) == (500, True)
    assert node.files() == [first]


async def test_an_encrypted_archive_needs_more_room_during_creation(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = str(pyrage.x25519.Identity.generate().to_public())
    node.bounds, node.memory_bytes = Bounds(min_free=Amount(1000)), 500
    monkeypatch.setattr(ArchiveIndex, "space", lambda _self: Space(2999, 10_000))
    node.index.pin(node.index.find(await make(node)))
    node.encryption = Encryption([key])

    _, _, message = await refusal(node.service(), "shop", "web", "app")

    assert "may take 2000 bytes and 2999 are free; 1 more are needed" in message


async def test_older_archives_make_room_on_a_disk_that_runs_full(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await make(node)
    size = (node.store / first).stat().st_size
    node.bounds, node.memory_bytes = Bounds(min_free=Amount(1000)), 500

    def space(index: ArchiveIndex) -> Space:
        there = sum(archive.size_bytes for archive in index.archives())
        return Space(1500 + size - there, 100_000)

    monkeypatch.setattr(ArchiveIndex, "space", space)
    second = await make(node, hours=1)
    await node.pruner().step()

    assert node.files() == [second]
    assert node.reports.counts.removed == {"freeSpace": 1}


async def test_archives_of_a_deleted_pod_expire(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.bounds = Bounds(pod_gone_s=3600)
    name = await make(node)
    pruner = node.pruner()
    live: set[str] | None = {"u1"}
    monkeypatch.setattr(node.pods, "live_uids", lambda: live)

    at(node, NOON + timedelta(days=9))
    await pruner.step()
    live = set()
    await pruner.step()  # noticed
    at(node, node.today + timedelta(minutes=59))
    await pruner.step()
    assert node.files() == [name]
    live = None  # an agent that has just started does not know its pods yet
    at(node, node.today + timedelta(minutes=2))
    await pruner.step()
    assert node.files() == []


async def test_a_pod_that_is_back_keeps_its_archives(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.bounds = Bounds(pod_gone_s=3600)
    name = await make(node)
    live: set[str] = set()
    monkeypatch.setattr(node.pods, "live_uids", lambda: live)
    await node.pruner().step()
    live = {"u1"}
    await node.pruner().step()
    at(node, NOON + timedelta(days=1))
    await node.pruner().step()

    assert node.files() == [name]


def failing(number: int) -> Callable[..., None]:
    def fail(*_args: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


async def test_on_a_full_disk_archives_of_deleted_pods_are_removed_anyway(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node.bounds = Bounds(per_container=1, pod_gone_s=3600)
    names = [await make(node, hours=hour) for hour in range(2)]
    monkeypatch.setattr(node.pods, "live_uids", set)
    monkeypatch.setattr(os, "fsync", failing(errno.ENOSPC))
    pruner = node.pruner()

    await pruner.step()
    assert node.files() == names[1:]
    await node.pruner(Bounds(pod_gone_s=0.0)).step()
    assert node.files() == []

    assert "cannot record that a pod is gone or back: No space left on device" in caplog.text
    assert node.reports.counts.removed == {"perContainer": 1, "podGone": 1}


async def test_a_failed_removal_does_not_stop_the_others(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    names = [await make(node, hours=hour) for hour in range(3)]
    node.bounds = Bounds(per_container=1)
    remove = folder.remove

    def remove_others(directory: int, name: str) -> None:
        if name == names[0]:
            failing(errno.EPERM)()
        remove(directory, name)

    monkeypatch.setattr(folder, "remove", remove_others)
    pruner = node.pruner()
    await pruner.step()
    await pruner.step()

    assert node.files() == [names[0], names[2]]
    said = f"cannot remove {names[0]}: Operation not permitted"
    assert caplog.text.count(said) == 1
    assert node.reports.counts.removed == {"perContainer": 1}, "what did go was told"
    assert said in (await refusal(node.service(pruner=pruner), "shop", "web", "app"))[2]


async def test_an_excess_of_pinned_archives_is_logged_once_and_counted(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    name = await make(node)
    node.index.pin(node.index.find(name))
    node.bounds = Bounds(total=Amount(1))
    pruner = node.pruner()

    await pruner.step()
    await pruner.step()

    state = node.reports.counts.store
    assert state and state.excess_bytes == (node.store / name).stat().st_size - 1
    assert caplog.text.count("the node reports disk pressure") == 1


async def test_an_unusable_store_is_logged_once_and_retried(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node.store.touch()
    pruner = node.pruner()

    await pruner.step()
    await pruner.step()

    assert caplog.text.count("cannot keep the checkpoint store within its limits") == 1
    node.store.unlink()
    await pruner.step()
    assert node.reports.counts.store
    node.store.touch()
    await pruner.step()
    assert caplog.text.count("cannot keep the checkpoint store within its limits") == 2
