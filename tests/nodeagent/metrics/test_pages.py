"""Pages made once per sample, in a thread, whoever asks and however they want them."""

from __future__ import annotations

import asyncio
import gzip
import threading
from typing import Any

import orjson
import pytest

from nodeagent.metrics import containerstats, pages
from nodeagent.metrics.pages import StatsPages
from nodeagent.stats.sampler import NoSampleYetError, Sampler
from nodeagent.stats.samples import Sample
from orch.wire.errors import ApiError
from tests.fakes import hosts
from tests.fakes.hosts import POD, Clock

OPENMETRICS = "application/openmetrics-text;version=1.0.0"


@pytest.fixture
async def sampler() -> Any:
    sources = hosts.sources(hosts.TREES / "v2", wall_ns=Clock())
    sampler = Sampler(targets=lambda: [POD], sources=sources)
    yield sampler
    await sampler.close()


@pytest.fixture
def made(sampler: Sampler) -> StatsPages:
    return StatsPages(sampler, node_name="node-a", max_age_s=3600)


async def test_the_summary_is_json(made: StatsPages) -> None:
    body = await made.summary()
    assert body.content_type == "application/json"
    summary = orjson.loads(body.data)
    assert summary["node"]["nodeName"] == "node-a" and "fs" in summary["node"]
    only = orjson.loads((await made.summary(only_cpu_and_memory=True)).data)
    assert "fs" not in only["node"]


async def test_metrics_come_in_the_format_asked_for(made: StatsPages) -> None:
    for page in (made.resource, made.containers):
        plain, modern = await page(), await page(accept=OPENMETRICS)
        assert "0.0.4" in plain.content_type and not plain.data.endswith(b"# EOF\n")
        assert "openmetrics" in modern.content_type and modern.data.endswith(b"# EOF\n")


async def test_compressed_is_the_same_page(made: StatsPages) -> None:
    plain = await made.containers()
    packed = await made.containers(accept_encoding="gzip, deflate")
    assert (plain.encoding, packed.encoding) == ("", "gzip")
    assert gzip.decompress(packed.data) == plain.data
    refused = await made.containers(accept_encoding="gzip;q=0, identity")
    assert (refused.encoding, refused.data) == ("", plain.data)


async def test_many_readers_of_one_sample_pay_once(
    made: StatsPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    render = containerstats.render_container_metrics

    def counting(sample: Sample | None, **more: Any) -> bytes:
        calls.append(sample)
        return render(sample, **more)

    monkeypatch.setattr(containerstats, "render_container_metrics", counting)
    bodies = await asyncio.gather(*(made.containers() for _ in range(20)))
    assert len(calls) == 1
    assert all(body.data is bodies[0].data for body in bodies)


async def test_a_new_sample_makes_a_new_page(made: StatsPages, sampler: Sampler) -> None:
    first = await made.summary()
    await sampler.sample()
    assert (await made.summary()).data is not first.data


async def test_a_reader_that_leaves_does_not_spoil_the_page_of_another(made: StatsPages) -> None:
    leaving = asyncio.ensure_future(made.containers())
    while not made._made:
        await asyncio.sleep(0)
    staying = asyncio.ensure_future(made.containers())
    leaving.cancel()
    assert b"container_cpu" in (await staying).data


async def test_without_statistics_metrics_say_so_and_the_summary_fails(
    made: StatsPages, sampler: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> Sample:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(sampler.reader, "read", fails)
    assert b"\nresource_scrape_error 1\n" in (await made.resource()).data
    assert b"\ncontainer_scrape_error 1\n" in (await made.containers()).data
    with pytest.raises(OSError, match="Input/output"):
        await made.summary()


async def test_a_page_that_cannot_be_made_says_so_and_the_log_does_once(
    made: StatsPages, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    render = pages.resource.render_resource_metrics

    def fails(sample: Sample | None, **more: Any) -> bytes:
        if sample is not None:
            raise ValueError("a bug")
        return render(sample, **more)

    monkeypatch.setattr(pages.resource, "render_resource_metrics", fails)
    for _ in range(3):
        assert b"\nresource_scrape_error 1\n" in (await made.resource()).data
    assert caplog.messages == ["the resource page shows no statistics: a bug"]
    assert caplog.records[0].exc_info


async def test_a_first_reading_that_hangs_is_an_answer_and_no_trace_in_the_log(
    sampler: Sampler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fresh(_max_age_s: float) -> Sample:
        raise NoSampleYetError("the first reading of statistics takes more than 5 s")

    monkeypatch.setattr(sampler, "fresh", fresh)
    made = StatsPages(sampler, node_name="node-a")
    with pytest.raises(ApiError, match="the first reading of statistics takes more than 5 s"):
        await made.summary()
    assert b"\nresource_scrape_error 1\n" in (await made.resource()).data
    assert [record.exc_info for record in caplog.records] == [None]


async def until(done: Any) -> None:
    async with asyncio.timeout(20):
        while not done():
            await asyncio.sleep(0.005)


async def test_readers_that_keep_coming_never_wait_for_a_reading(
    sampler: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = StatsPages(sampler, node_name="node-a", max_age_s=60)
    first = await made.containers()
    assert sampler.beats == 1, "a young sample is not renewed"
    rendered: list[Sample | None] = []
    render = containerstats.render_container_metrics

    def noting(sample: Sample | None, **more: Any) -> bytes:
        rendered.append(sample)
        return render(sample, **more)

    monkeypatch.setattr(containerstats, "render_container_metrics", noting)
    monkeypatch.setattr(sampler, "age_s", lambda: 40.0)  # near its end, not beyond it
    assert (await made.containers()).data == first.data, "served at once, from the old one"
    await until(lambda: sampler.beats == 2 and rendered)
    assert rendered == [sampler.latest], "the page is ready before the next reader asks"


async def test_what_is_made_ahead_waits_for_answers_under_way(
    sampler: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "_GIVE_WAY_S", 3600)
    made = StatsPages(sampler, node_name="node-a", max_age_s=60)
    first = await made.containers()
    monkeypatch.setattr(sampler, "age_s", lambda: 40.0)
    with made.sending:
        await made.containers()
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert sampler.beats == 1
    await until(lambda: sampler.beats == 2)
    assert made._renewal
    await made._renewal
    monkeypatch.setattr(sampler, "age_s", lambda: 0.0)
    (latest,) = made._made.values()
    assert latest.task.done() and latest.task.result() is not first.data


class HeldRenderer:
    """Renders container metrics; while `held`, only as far as to say so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._render = containerstats.render_container_metrics
        self.free = threading.Event()
        self.begun = threading.Event()
        self.gave_way: list[bool] = []
        self.free.set()
        monkeypatch.setattr(containerstats, "render_container_metrics", self)

    def __call__(self, sample: Sample | None, *, give_way: Any, **more: Any) -> bytearray:
        self.begun.set()
        self.free.wait(20)
        self.gave_way.append(give_way is not pages._at_once)
        return self._render(sample, give_way=give_way, **more)


async def test_until_the_next_page_is_made_readers_get_the_young_one(
    sampler: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    renderer = HeldRenderer(monkeypatch)
    made = StatsPages(sampler, node_name="node-a", max_age_s=60)
    first = await made.containers()
    renderer.free.clear()
    renderer.begun.clear()
    await made.step()
    async with asyncio.timeout(20):
        assert (await made.containers()).data is first.data, "before it is begun"
        await until(renderer.begun.is_set)
        assert (await made.containers()).data is first.data, "while it is made"
    renderer.free.set()
    assert made._renewal
    await made._renewal
    assert (await made.containers()).data is not first.data
    assert renderer.gave_way == [False, True]
    assert [one.older for one in made._made.values()] == [None], "megabytes"


async def test_a_reader_waits_for_the_next_page_when_the_last_is_too_old(
    sampler: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    renderer = HeldRenderer(monkeypatch)
    made = StatsPages(sampler, node_name="node-a", max_age_s=60)
    first = await made.containers()
    renderer.free.clear()
    renderer.begun.clear()
    await made.step()
    await until(renderer.begun.is_set)
    (page,) = made._made.values()
    assert page.older
    monkeypatch.setattr(made, "_is_young", lambda one: one.begun_s > page.older.begun_s)
    reader = asyncio.ensure_future(made.containers())
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert not reader.done()
    renderer.free.set()
    assert (await reader).data is not first.data
    assert len(renderer.gave_way) == 2, "the page is made once"


async def test_a_page_is_young_as_long_as_its_sample(
    sampler: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = StatsPages(sampler, node_name="node-a", max_age_s=60)
    await sampler.step()
    now_s = asyncio.get_running_loop().time()
    monkeypatch.setattr(sampler, "age_s", lambda: 10.0)
    await made.containers()
    (page,) = made._made.values()
    for later_s, is_young in ((0.0, True), (45.0, True), (55.0, False)):
        monkeypatch.setattr(pages, "_loop_s", lambda later_s=later_s: now_s + later_s)
        assert made._is_young(page) is is_young


@pytest.mark.parametrize("asks_again", [True, False])
async def test_the_loops_reading_becomes_pages_for_those_who_keep_asking(
    sampler: Sampler, monkeypatch: pytest.MonkeyPatch, asks_again: bool
) -> None:
    made = StatsPages(sampler, node_name="node-a", max_age_s=60)
    await made.step()
    assert made._renewal
    await made._renewal
    assert not made._made, "nobody asked yet"
    await asyncio.gather(made.containers(), made.summary())
    if not asks_again:
        later_s = asyncio.get_running_loop().time() + 130.0
        monkeypatch.setattr(pages, "_loop_s", lambda: later_s)
    await made.step()
    await made._renewal
    of_latest = [one.sample is sampler.latest for one in made._made.values() if one.task.done()]
    assert sampler.beats == 2
    assert of_latest == [asks_again, asks_again]


@pytest.mark.parametrize(("age_s", "readings"), [(11.0, 1), (13.0, 2)])
async def test_the_page_for_autoscalers_shows_the_loops_reading_while_there_is_one(
    sampler: Sampler, monkeypatch: pytest.MonkeyPatch, age_s: float, readings: int
) -> None:
    made = StatsPages(sampler, node_name="node-a")
    await sampler.step()
    monkeypatch.setattr(sampler, "age_s", lambda: age_s)
    assert b"resource_scrape_error 0" in (await made.resource()).data
    if made._renewal:
        await made._renewal
    assert sampler.beats == readings


async def test_a_renewal_that_fails_is_left_to_the_next_reader(
    sampler: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = StatsPages(sampler, node_name="node-a", max_age_s=60)
    await made.resource()
    monkeypatch.setattr(sampler, "age_s", lambda: 40.0)

    def fail(*_: Any) -> Sample:
        raise OSError("gone")

    monkeypatch.setattr(sampler.reader, "read", fail)
    body = await made.resource()
    assert made._renewal
    await made._renewal
    assert b"resource_scrape_error 0" in body.data


async def test_pages_nobody_can_be_sent_any_more_are_not_kept(sampler: Sampler) -> None:
    made = StatsPages(sampler, node_name="node-a", max_age_s=0.05)
    asked = asyncio.gather(made.containers(), made.summary(), made.resource())
    kept: set[str] = set()

    def forgotten() -> bool:
        kept.update(name for name, *_ in made._made)
        return asked.done() and not made._made

    await until(forgotten)
    assert len(kept) == len(await asked) == 3
