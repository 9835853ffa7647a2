"""The API as a source of pods, on an API in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from nodeagent.pods.sources.source import ApiSource
from orch.component.process import loops
from orch.wire.records.pods import Pod
from tests.fakes.api import FakeApi
from tests.fakes.pods import container_data, pod

pytestmark = pytest.mark.looptime

MIRROR = {"orch.io/config.mirror": "abc"}


def bound(name: str, node: str = "n1", **metadata: object) -> Pod:
    return pod(metadata={"name": name, "uid": f"uid-{name}", **metadata}, nodeName=node)


class Source:
    def __init__(self) -> None:
        self.api = FakeApi()
        self.source = ApiSource(self.api, "n1")  # type: ignore[arg-type]
        self.changes = 0
        self.task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """In the test, whose clock jumps."""
        self.task = loops.spawn(self.source.run(self._changed), name="source")
        await asyncio.sleep(1)

    def _changed(self) -> None:
        self.changes += 1

    def names(self) -> list[str]:
        return sorted(one.metadata.name for one in self.source.pods())


@pytest_asyncio.fixture
async def made() -> AsyncIterator[Source]:
    made = Source()
    yield made
    if made.task:
        await loops.cancel(made.task)


async def test_it_is_ready_once_it_was_read(made: Source) -> None:
    assert not made.source.ready
    assert made.source.pods() == []
    await made.start()
    assert made.source.ready
    assert not made.source.incomplete
    assert made.source.name == "api"


async def test_the_pods_bound_to_this_node_are_its_own_and_say_where_they_come_from(
    made: Source,
) -> None:
    await made.api.create(bound("mine", annotations={"a": "b"}))
    await made.api.create(bound("theirs", node="n2"))
    await made.start()
    [mine] = made.source.pods()
    assert mine.metadata.name == "mine"
    assert mine.metadata.annotations == {"a": "b", "orch.io/config.source": "api"}
    stored = made.source.stored("default", "mine")
    assert stored and stored.metadata.annotations == {"a": "b"}  # the API's own is left as it is
    assert made.source.stored("default", "theirs") is None


@pytest.mark.parametrize("odd", ["../../etc", "..", "", "a/b", "a\0b"])
@pytest.mark.parametrize("place", ["uid", "container", "volume"])
async def test_a_server_gone_wrong_names_no_path_of_the_node(
    made: Source, odd: str, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    await made.api.create(bound("good"))
    named = {"uid": "", "container": "app", "volume": "v", place: odd}
    if place == "uid":
        made.api.store.new_uid = lambda: odd  # type: ignore[method-assign]
    meta = {"name": "bad"}
    volumes = [{"name": named["volume"], "emptyDir": {}}]
    container = container_data(named["container"])
    await made.api.create(pod(container, metadata=meta, nodeName="n1", volumes=volumes))
    await made.start()
    assert made.names() == ["good"] == made.names()
    assert caplog.text.count("cannot be part of a path") == 1


async def test_mirrors_of_static_pods_are_no_pods_to_run(made: Source) -> None:
    await made.api.create(bound("real"))
    await made.api.create(bound("mirror", annotations=MIRROR))
    await made.start()
    assert made.names() == ["real"]
    [mirror] = made.source.mirrors()
    assert mirror.metadata.name == "mirror"


async def test_every_change_is_told_to_all_that_listen(made: Source) -> None:
    others: list[int] = []
    await made.start()
    made.source.on_change(lambda: others.append(1))
    before = made.changes
    await made.api.create(bound("new"))
    await asyncio.sleep(1)
    assert made.changes == before + len(others) > before
    assert made.names() == ["new"]
    await made.api.delete(Pod, "new", "default", grace_period_s=0)
    await asyncio.sleep(1)
    assert made.names() == []


async def test_a_pod_that_did_not_change_stays_the_same_object(made: Source) -> None:
    await made.api.create(bound("a"))
    await made.start()
    [before] = made.source.pods()
    await made.api.create(bound("b"))
    await asyncio.sleep(1)
    assert any(one is before for one in made.source.pods())
    await made.api.patch(Pod, "a", {"metadata": {"labels": {"x": "y"}}}, namespace="default")
    await asyncio.sleep(1)
    [after] = [one for one in made.source.pods() if one.metadata.name == "a"]
    assert after is not before and after.metadata.label("x") == "y"
