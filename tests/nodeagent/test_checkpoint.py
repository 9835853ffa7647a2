"""A checkpoint from the request to the archive, with a fake runtime: what is made, and when.

Refusals are in test_checkpoint_refusals, the same with CRIU in test_checkpoint_real.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import tarfile
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from nodeagent import freezer
from nodeagent.archives import folder
from nodeagent.archives.manifest import Manifest, archive_name
from nodeagent.archives.store import CheckpointStore
from nodeagent.runtime import base
from orch.wire.errors import ApiError
from tests.fakes.checkpoints import NOON, Node, checkpointable_node, refusal


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr(freezer, "SETTLE_S", 0.001)
    monkeypatch.setattr(freezer, "RETRY_S", 0.001)
    return await checkpointable_node(tmp_path)


async def test_a_checkpoint_is_a_private_archive_with_the_documented_name(node: Node) -> None:
    path = await node.service().checkpoint("shop", "web", "app")

    assert path == str(node.store / "checkpoint-web_shop-app-2026-01-31T12:00:00Z.tar")
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
    assert stat.S_IMODE(node.store.stat().st_mode) == 0o700
    with tarfile.open(path) as archive:
        assert "checkpoint/inventory.img" in archive.getnames()
    assert node.files() == [Path(path).name]
    assert node.runtime.called("checkpoint_container") == [node.pods.running["app"]]


@pytest.mark.parametrize("container", ["app", "side", "init", "debug"])
async def test_containers_of_every_list_can_be_checkpointed(node: Node, container: str) -> None:
    path = await node.service().checkpoint("shop", "web", container)

    assert f"web_shop-{container}-" in path


@pytest.mark.parametrize(
    ("zone", "stamp"),
    [
        ("UTC", "2026-01-31T12:00:00Z"),
        ("Europe/Berlin", "2026-01-31T13:00:00+01:00"),
        ("America/St_Johns", "2026-01-31T08:30:00-03:30"),
    ],
)
def test_the_name_holds_the_local_time_to_the_second(
    monkeypatch: pytest.MonkeyPatch, zone: str, stamp: str
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()

    assert archive_name("shop", "web", "app", NOON) == f"checkpoint-web_shop-app-{stamp}.tar"


@pytest.mark.parametrize(
    ("timeout", "expected_s"),
    [("", 120), ("0", 120), ("1", 1), ("5", 5), ("+300", 300), (str(2**63 - 1), 86_400)],
)
async def test_a_request_may_say_how_many_seconds_to_wait(
    node: Node, monkeypatch: pytest.MonkeyPatch, timeout: str, expected_s: float
) -> None:
    given: list[float] = []
    checkpoint = node.runtime.checkpoint_container

    async def spy(container_id: str, *, location: str, timeout_s: float) -> None:
        given.append(timeout_s)
        await checkpoint(container_id, location=location, timeout_s=timeout_s)

    monkeypatch.setattr(node.runtime, "checkpoint_container", spy)
    await node.service().checkpoint("shop", "web", "app", timeout=timeout)

    assert given == [expected_s]


async def test_all_attempts_together_take_no_longer_than_was_asked_for(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float] = []

    async def too_busy(container_id: str, *, location: str, timeout_s: float) -> None:
        given.append(timeout_s)
        await asyncio.sleep(0.4)
        raise base.RuntimeCallError("CheckpointContainer", "unable to freeze")

    monkeypatch.setattr(node.runtime, "checkpoint_container", too_busy)
    assert (await refusal(node.service(), "shop", "web", "app", timeout="1"))[0] == 500
    assert len(given) <= 3
    assert all(left_s <= 1 - 0.4 * n for n, left_s in enumerate(given))


@pytest.mark.parametrize(("failures", "code"), [(1, None), (5, None), (6, 500)])
async def test_a_container_too_busy_to_be_frozen_is_retried(
    node: Node, failures: int, code: int | None
) -> None:
    told = "OCI runtime pause failed: unable to freeze"
    node.runtime.fail("checkpoint_container", told, times=failures)

    if code:
        assert (await refusal(node.service(), "shop", "web", "app"))[0] == code
    else:
        assert Path(await node.service().checkpoint("shop", "web", "app")).exists()
    assert len(node.runtime.called("checkpoint_container")) == min(failures + 1, 6)


def occupy_with_link(path: Path) -> None:
    path.symlink_to(path.parent.parent / "victim")


@pytest.mark.parametrize("occupy", [Path.touch, Path.mkdir, occupy_with_link])
async def test_when_the_name_exists_the_next_second_gives_another(
    node: Node, occupy: Callable[[Path], None]
) -> None:
    victim = node.root / "victim"
    victim.write_text("untouched")
    node.store.mkdir(mode=0o700)
    taken = node.store / "checkpoint-web_shop-app-2026-01-31T12:00:00Z.tar"
    occupy(taken)
    before = taken.lstat()
    node.moments += [NOON + timedelta(milliseconds=ms) for ms in (980, 981)]

    path = await node.service().checkpoint("shop", "web", "app")

    assert Path(path).name == "checkpoint-web_shop-app-2026-01-31T12:00:01Z.tar"
    assert taken.lstat() == before
    assert victim.read_text() == "untouched"
    assert len(node.runtime.called("checkpoint_container")) == 1


async def test_a_stopped_clock_ends_in_an_error(node: Node) -> None:
    await node.service().checkpoint("shop", "web", "app")

    code, _, message = await refusal(node.service(), "shop", "web", "app")

    assert code == 500
    assert "2026-01-31T12:00:00Z.tar exists already" in message
    assert len(node.files()) == 1


async def test_nothing_is_visible_under_the_final_name_before_the_end(node: Node) -> None:
    held = node.runtime.hold("checkpoint_container")
    under_way = asyncio.ensure_future(node.service().checkpoint("shop", "web", "app"))
    await held.reached.wait()

    assert [name for name in node.files() if not name.startswith(".")] == []
    held.release()
    await under_way


async def test_the_container_counts_as_frozen_until_its_checkpoint_is_over(node: Node) -> None:
    hold = node.runtime.hold("checkpoint_container")
    service, container_id = node.service(), node.pods.running["app"]
    going = asyncio.ensure_future(service.checkpoint("shop", "web", "app"))
    await hold.reached.wait()
    assert service.is_frozen(container_id) and not service.is_frozen("another")
    hold.release()
    await going
    assert not service.is_frozen(container_id)
    node.runtime.fail("checkpoint_container", "no")
    with pytest.raises(ApiError):
        await service.checkpoint("shop", "web", "app")
    assert not service.is_frozen(container_id)


async def test_a_cancelled_checkpoint_leaves_nothing_behind(node: Node) -> None:
    held = node.runtime.hold("checkpoint_container")
    under_way = asyncio.ensure_future(node.service().checkpoint("shop", "web", "app"))
    await held.reached.wait()
    node.runtime.paused.add(node.pods.running["app"])

    under_way.cancel()

    with pytest.raises(asyncio.CancelledError):
        await under_way
    assert node.files() == []
    assert node.runtime.paused == set()


async def test_a_stopping_agent_cancels_checkpoints_with_503(node: Node) -> None:
    service = node.service()
    held = node.runtime.hold("checkpoint_container")
    told = asyncio.ensure_future(refusal(service, "shop", "web", "app"))
    await held.reached.wait()
    node.runtime.paused.add(node.pods.running["app"])

    await service.close()

    assert node.files() == []
    assert node.runtime.paused == set()
    assert (await told)[0] == 503
    assert (await refusal(service, "shop", "web", "side"))[0] == 503


async def test_a_container_that_could_not_be_thawed_in_time_is_left_to_the_next_agent(
    node: Node,
) -> None:
    dumping = node.runtime.hold("checkpoint_container")
    under_way = asyncio.ensure_future(node.service().checkpoint("shop", "web", "app"))
    await dumping.reached.wait()
    node.runtime.paused.add(node.pods.running["app"])
    resuming = node.runtime.hold("resume_container")
    under_way.cancel()
    await resuming.reached.wait()
    under_way.cancel()  # the loop ends
    with pytest.raises(asyncio.CancelledError):
        await under_way
    assert node.runtime.paused != set()

    await node.service().recover()

    assert node.runtime.paused == set()
    assert node.files() == []


async def test_a_container_of_unreadable_state_is_left_to_the_next_agent(
    node: Node,
) -> None:
    container_id = node.pods.running["app"]
    freezer_state = node.root / "cgroup" / "freezer" / container_id / "freezer.state"
    freezer_state.mkdir(parents=True)  # cannot be read
    service = node.service()
    node.runtime.fail("checkpoint_container", "criu says no", times=1)

    assert (await refusal(service, "shop", "web", "app"))[0] == 500
    assert [name for name in node.files() if container_id in name] == node.files() != []

    assert Path(await service.checkpoint("shop", "web", "app")).exists()
    assert not [name for name in node.files() if name.startswith(".")]


async def test_the_next_agent_thaws_the_containers_of_a_killed_one(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    container_id = node.pods.running["app"]
    killed = CheckpointStore(str(node.root))
    known = Manifest("", namespace="shop", pod="web", uid="u1", container="app")
    Path(killed.begin(container_id, known)).write_bytes(b"half")
    node.runtime.paused.add(container_id)
    service = node.service()

    await service.recover()

    assert node.runtime.paused == set()
    assert node.files() == []
    assert f"exited while checkpointing container {container_id} (shop/web/app)" in caplog.text
    assert (node.reports.counts.thawed, node.events.reasons) == (1, ["ContainerThawed"])
    assert Path(await service.checkpoint("shop", "web", "app")).exists()


async def test_a_container_being_recovered_is_not_checkpointed(node: Node) -> None:
    CheckpointStore(str(node.root)).begin(node.pods.running["app"])
    service = node.service()
    held = node.runtime.hold("resume_container")
    recovery = asyncio.ensure_future(service.recover())
    await held.reached.wait()

    assert (await refusal(service, "shop", "web", "app"))[0] == 409
    assert Path(await service.checkpoint("shop", "web", "side")).exists()
    held.release()
    await recovery


async def test_a_defect_in_thawing_is_logged_and_thawing_retried(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    ids = {node.pods.running[name] for name in ("app", "side")}
    for container_id in ids:
        CheckpointStore(str(node.root)).begin(container_id)
    node.runtime.paused |= ids
    node.runtime.fail("resume_container", ValueError("a defect"), times=1)
    service = node.service()

    await service.recover()

    (logged,) = [record for record in caplog.records if record.exc_info]
    assert "failed unexpectedly" in logged.getMessage() and "a defect" in caplog.text
    assert len(node.runtime.paused) == len(node.files()) == 1
    for name in ("app", "side"):
        assert not service.is_busy(node.pods.running[name])
        assert Path(await service.checkpoint("shop", "web", name)).exists()
    assert node.runtime.paused == set()


async def test_a_defect_in_the_search_for_interrupted_checkpoints_is_logged(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_store: CheckpointStore) -> None:
        raise ValueError("a defect")

    monkeypatch.setattr(CheckpointStore, "prepare", fail)

    await node.service().recover()

    (logged,) = caplog.records
    assert logged.exc_info and "failed unexpectedly" in logged.getMessage()


async def test_a_thawed_container_can_be_checkpointed_though_its_marker_remains(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    CheckpointStore(str(node.root)).begin(node.pods.running["app"])
    service = node.service()
    held = node.runtime.hold("resume_container")
    recovery = asyncio.ensure_future(service.recover())
    await held.reached.wait()
    aside = node.store.rename(node.root / "aside")
    node.store.touch()  # nothing can be removed from what is no directory
    held.release()
    await recovery
    assert "remain until the next start" in caplog.text

    node.store.unlink()
    aside.rename(node.store)

    assert Path(await service.checkpoint("shop", "web", "app")).exists()


@pytest.mark.parametrize("works", [True, False])
async def test_a_failed_cleanup_does_not_change_the_answer(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, works: bool
) -> None:
    remove = folder.remove

    def keep_markers(directory: int, name: str) -> None:
        if name.endswith(".pending") and (node.store / name).exists():
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        remove(directory, name)

    monkeypatch.setattr(folder, "remove", keep_markers)
    if works:
        path = await node.service().checkpoint("shop", "web", "app")
        assert Path(path).exists() and node.events.reasons == ["Checkpointed"]
    else:
        node.runtime.fail("checkpoint_container", "criu says no")
        code, _, message = await refusal(node.service(), "shop", "web", "app")
        assert code == 500 and "criu says no" in message
    assert "remain until the next start: [Errno 5] Input/output error" in caplog.text


async def test_an_unusable_store_is_logged_at_the_start(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node.store.touch()

    await node.service().recover()

    assert "checkpoints cannot be stored" in caplog.text


async def test_no_call_blocks_the_loop(node: Node, no_blocking: object) -> None:
    service = node.service()
    await service.recover()

    await service.checkpoint("shop", "web", "app")

    node.runtime.fail("checkpoint_container", base.RuntimeTimeout("CheckpointContainer", "late"))
    await refusal(service, "shop", "web", "side")
