"""Which images go, by rows after the reference's image_gc_manager tests, and that they do."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from nodeagent.pods.images import garbage_collection
from nodeagent.pods.images.garbage_collection import Disk, ImageBounds, ImageCollection, Known
from nodeagent.runtime.base import Image, SandboxSpec
from orch.component.process import loops
from tests.conftest_runtime import provisioned
from tests.fakes.pods import container_data, pod
from tests.fakes.podworld import PodWorld
from tests.fakes.realpods import IMAGE, Agent, manifest
from tests.fakes.runtime_images import fake_image

T = TypeVar("T")

FULL, ROOMY = Disk(1000, 100), Disk(1000, 500)
IMAGES = [Image(name, (f"localhost/{name}:1",), size_bytes=100) for name in "abc"]
KNOWN = {"a": Known(0, 300), "b": Known(0, 100), "c": Known(0, 200)}
NOW_S = 1000.0

CASES: list[tuple[str, Disk | None, ImageBounds, set[str], list[tuple[str, str]]]] = [
    ("room enough", ROOMY, ImageBounds(), set(), []),
    ("no disk known", None, ImageBounds(), set(), []),
    ("the longest unused goes", FULL, ImageBounds(), set(), [("b", "space")]),
    ("two must go", FULL, ImageBounds(low_percent=70), set(), [("b", "space"), ("c", "space")]),
    ("a used one stays", FULL, ImageBounds(), {"localhost/b:1"}, [("c", "space")]),
    ("used by its id", FULL, ImageBounds(), {"b", "c"}, [("a", "space")]),
    ("too young", FULL, ImageBounds(min_age_s=2000), set(), []),
    (
        "old ones go without need",
        ROOMY,
        ImageBounds(max_age_s=750),
        set(),
        [("b", "age"), ("c", "age")],
    ),
    ("exactly at the threshold", Disk(1000, 150), ImageBounds(), set(), [("b", "space")]),
    ("just below", Disk(1000, 151), ImageBounds(), set(), []),
]


@pytest.mark.parametrize(("disk", "bounds", "used", "expected"), [c[1:] for c in CASES])
def test_what_goes_and_in_which_order(
    disk: Disk | None, bounds: ImageBounds, used: set[str], expected: list[tuple[str, str]]
) -> None:
    found = garbage_collection.removable(IMAGES, KNOWN, frozenset(used), disk, bounds, NOW_S)
    assert [(one.image.id, one.reason) for one in found] == expected


def test_what_the_runtime_needs_itself_is_never_touched() -> None:
    pinned = [Image("p", ("pause",), size_bytes=100, pinned=True)]
    known = {"p": Known(0, 0)}
    bounds = ImageBounds(max_age_s=1)
    assert garbage_collection.removable(pinned, known, frozenset(), FULL, bounds, NOW_S) == []


async def at_once(work: Callable[[], T], *, name: str) -> T:
    """As `run_in_thread`, without a thread that the loop's clock would run away from."""
    return work()


@pytest.mark.looptime
async def test_a_nearly_full_disk_is_freed_of_what_nobody_uses(
    world: PodWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    statvfs = os.statvfs_result((1, 1, 100_000, 5_000, 5_000, 0, 0, 0, 0, 255))
    monkeypatch.setattr(garbage_collection.os, "statvfs", lambda _path: statvfs)
    monkeypatch.setattr(garbage_collection, "run_in_thread", at_once)
    for name in ("localhost/old:1", "localhost/wanted:1", "localhost/files:1"):
        world.runtime.images_known[name] = fake_image(name)
    volume = {"name": "files", "image": {"reference": "localhost/files:1"}}
    later = container_data("later", image="localhost/wanted:1")
    await world.start(pod("here", later, volumes=[volume]))
    await world.until(lambda: "here" in world.running())
    collection = ImageCollection(world.runtime, world.registry, world.counts, ImageBounds())
    await collection.step()
    assert not world.runtime.called("remove_image"), "none before it is known for two minutes"
    await asyncio.sleep(130)
    await collection.step()
    gone = {fake_image(name).id for name in ("localhost/old:1", "localhost/pause:1")}
    assert set(world.runtime.called("remove_image")) <= gone
    assert fake_image("localhost/old:1").id in world.runtime.called("remove_image")
    assert world.counts.images_removed["space"] >= 1


@pytest.mark.looptime
async def test_an_image_that_cannot_be_removed_keeps_no_other(
    world: PodWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    statvfs = os.statvfs_result((1, 1, 100_000, 50_000, 50_000, 0, 0, 0, 0, 255))
    monkeypatch.setattr(garbage_collection.os, "statvfs", lambda _path: statvfs)
    monkeypatch.setattr(garbage_collection, "run_in_thread", at_once)
    names = ["localhost/one:1", "localhost/two:1", "localhost/three:1"]
    for name in names:
        world.runtime.images_known[name] = fake_image(name)
    collection = ImageCollection(
        world.runtime, world.registry, world.counts, ImageBounds(max_age_s=60)
    )
    await collection.step()
    await asyncio.sleep(130)
    world.runtime.fail("remove_image", "image is in use elsewhere", times=1)
    await collection.step()

    ids = {fake_image(name).id for name in names}
    assert ids <= set(world.runtime.called("remove_image"))
    assert "cannot be removed: image is in use elsewhere" in caplog.text
    assert world.counts.images_removed["age"] >= len(names) - 1


@pytest.mark.looptime
async def test_an_image_older_than_allowed_goes_at_the_first_collection_and_none_before_it(
    world: PodWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its age counts from the start, or it would stay for one interval more."""
    statvfs = os.statvfs_result((1, 1, 100_000, 50_000, 50_000, 0, 0, 0, 0, 255))
    monkeypatch.setattr(garbage_collection.os, "statvfs", lambda _path: statvfs)
    monkeypatch.setattr(garbage_collection, "run_in_thread", at_once)
    world.runtime.images_known["localhost/old:1"] = fake_image("localhost/old:1")
    bounds = ImageBounds(min_age_s=1, max_age_s=60)
    collection = ImageCollection(world.runtime, world.registry, world.counts, bounds)
    running = loops.spawn(collection.run(), name="images")
    await asyncio.sleep(garbage_collection.INTERVAL_S - 1)
    assert not world.runtime.called("remove_image")
    await asyncio.sleep(2)
    await loops.cancel(running)
    assert fake_image("localhost/old:1").id in world.runtime.called("remove_image")


@pytest.mark.looptime
async def test_a_runtime_that_does_not_answer_is_said_once(
    world: PodWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world.runtime.fail("images", "not now")
    collection = ImageCollection(world.runtime, world.registry, world.counts, ImageBounds())
    await collection.step()
    await collection.step()
    assert caplog.text.count("cannot collect unused images: not now") == 1


async def test_a_disk_that_does_not_answer_is_said(
    world: PodWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def hangs(_work: object, *, name: str) -> None:
        raise TimeoutError

    monkeypatch.setattr(garbage_collection, "run_in_thread", hangs)
    await ImageCollection(world.runtime, world.registry, world.counts, ImageBounds()).step()
    assert "cannot collect unused images: their disk does not answer" in caplog.text


@pytest.mark.real
async def test_a_real_image_goes_when_its_last_pod_is_gone_and_the_runtimes_own_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = os.statvfs_result((1, 1, 100_000, 5_000, 5_000, 0, 0, 0, 0, 255))
    monkeypatch.setattr(garbage_collection.os, "statvfs", lambda _path: full)
    (tmp_path / "agent").mkdir()
    with provisioned(tmp_path / "rt", share=tmp_path) as real:
        agent = Agent(tmp_path / "agent", real.endpoint)
        try:
            await image_goes_with_its_pod(agent)
        finally:
            await agent.close()


async def image_goes_with_its_pod(agent: Agent) -> None:
    collection = ImageCollection(
        agent.runtime, agent.registry, agent.counts, ImageBounds(min_age_s=0)
    )
    path = agent.put(manifest("web", {"name": "app"}))
    agent.start()
    await agent.runs("web")

    await collection.step()
    assert await agent.runtime.image(IMAGE) is not None, "a container runs from it"
    path.unlink()
    async with asyncio.timeout(60):
        while await agent.traces():
            await asyncio.sleep(0.2)
    await collection.step()

    assert await agent.runtime.image(IMAGE) is None
    assert agent.counts.images_removed == {"space": 1}
    made = await agent.runtime.run_sandbox(SandboxSpec("p", "n", "u", host_network=True))
    await agent.runtime.remove_sandbox(made)
