"""Pages rendered once per sample, in a thread, for every reader and in every format."""

from __future__ import annotations

import asyncio
import gzip
import threading
import weakref
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
def stats_pages(sampler: Sampler) -> StatsPages:
    return StatsPages(sampler, node_name="node-a", max_age_s=3600)


async def test_the_summary_is_json(stats_pages: StatsPages) -> None:
    body = await stats_pages.summary()
    assert body.content_type == "application/json"
    summary = orjson.loads(body.data)
    assert summary["node"]["nodeName"] == "node-a" and "fs" in summary["node"]
    only = orjson.loads((await stats_pages.summary(only_cpu_and_memory=True)).data)
    assert "fs" not in only["node"]


async def test_metrics_come_in_the_requested_format(stats_pages: StatsPages) -> None:
    for page in (stats_pages.resource, stats_pages.containers):
        plain, modern = await page(), await page(accept=OPENMETRICS)
        assert "0.0.4" in plain.content_type and not plain.data.endswith(b"# EOF\n")
        assert "openmetrics" in modern.content_type and modern.data.endswith(b"# EOF\n")


async def test_the_compressed_page_is_the_same(stats_pages: StatsPages) -> None:
    plain = await stats_pages.containers()
    packed = await stats_pages.containers(accept_encoding="gzip, deflate")
    assert (plain.encoding, packed.encoding) == ("", "gzip")
    assert gzip.decompress(packed.data) == plain.data
    refused = await stats_pages.containers(accept_encoding="gzip;q=0, identity")
    assert (refused.encoding, refused.data) == ("", plain.data)


async def test_a_page_is_rendered_once_for_many_readers_of_a_sample(
    stats_pages: StatsPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    render = containerstats.render_container_metrics

    def counting(sample: Sample | None, **more: Any) -> bytes:
        calls.append(sample)
        return render(sample, **more)

    monkeypatch.setattr(containerstats, "render_container_metrics", counting)
    bodies = await asyncio.gather(*(stats_pages.containers() for _ in range(20)))
    assert len(calls) == 1
    assert all(body.data is bodies[0].data for body in bodies)


async def test_a_new_sample_yields_a_new_page(stats_pages: StatsPages) -> None:
    first = await stats_pages.summary()
    await stats_pages.step()
    assert await shown(stats_pages.summary, lambda body: body.data is not first.data)


async def test_a_cancelled_reader_does_not_cancel_the_page_of_another(
    stats_pages: StatsPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    renderer = HeldRenderer(monkeypatch)
    renderer.free.clear()
    leaving = asyncio.ensure_future(stats_pages.containers())
    await until(renderer.begun.is_set)
    staying = asyncio.ensure_future(stats_pages.containers())
    leaving.cancel()
    renderer.free.set()
    assert b"container_cpu" in (await staying).data
    assert len(renderer.paused) == 1


async def test_without_statistics_the_metrics_report_an_error_and_the_summary_fails(
    stats_pages: StatsPages, sampler: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> Sample:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(sampler.reader, "read", fails)
    assert b"\nresource_scrape_error 1\n" in (await stats_pages.resource()).data
    assert b"\ncontainer_scrape_error 1\n" in (await stats_pages.containers()).data
    with pytest.raises(OSError, match="Input/output"):
        await stats_pages.summary()


async def test_a_page_that_cannot_be_rendered_reports_an_error_and_is_logged_once(
    stats_pages: StatsPages, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    render = pages.resource.render_resource_metrics

    def fails(sample: Sample | None, **more: Any) -> bytes:
        if sample is not None:
            raise ValueError("a bug")
        return render(sample, **more)

    monkeypatch.setattr(pages.resource, "render_resource_metrics", fails)
    for _ in range(3):
        assert b"\nresource_scrape_error 1\n" in (await stats_pages.resource()).data
    assert caplog.messages == ["the resource page shows no statistics: a bug"]
    assert caplog.records[0].exc_info


async def test_a_first_reading_that_hangs_is_reported_without_a_trace_in_the_log(
    sampler: Sampler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fresh(_max_age_s: float) -> Sample:
        raise NoSampleYetError("the first reading of statistics takes more than 5 s")

    monkeypatch.setattr(sampler, "fresh", fresh)
    stats_pages = StatsPages(sampler, node_name="node-a")
    with pytest.raises(ApiError, match="the first reading of statistics takes more than 5 s"):
        await stats_pages.summary()
    assert b"\nresource_scrape_error 1\n" in (await stats_pages.resource()).data
    assert [record.exc_info for record in caplog.records] == [None]


async def until(done: Any) -> None:
    async with asyncio.timeout(20):
        while not done():
            await asyncio.sleep(0.005)


async def shown(page: Any, is_it: Any) -> bool:
    """Request the page until it is the expected one."""
    async with asyncio.timeout(20):
        while not is_it(await page()):
            await asyncio.sleep(0.005)
    return True


class HeldRenderer:
    """Renders container metrics; while not `free`, only reports that it has begun."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._render = containerstats.render_container_metrics
        self.free = threading.Event()
        self.begun = threading.Event()
        self.paused: list[bool] = []
        self.of: list[Sample | None] = []
        self.free.set()
        monkeypatch.setattr(containerstats, "render_container_metrics", self)

    def __call__(self, sample: Sample | None, *, pause: Any, **more: Any) -> bytearray:
        self.begun.set()
        self.free.wait(20)
        self.paused.append(pause is not pages.no_pause)
        self.of.append(sample)
        return self._render(sample, pause=pause, **more)


@pytest.fixture
def renderer(monkeypatch: pytest.MonkeyPatch) -> HeldRenderer:
    return HeldRenderer(monkeypatch)


class LaterLoop:
    """The pages' clock, which a test sets forward."""

    def __init__(self) -> None:
        self.by_s = 0.0

    def __call__(self) -> float:
        return asyncio.get_running_loop().time() + self.by_s


@pytest.fixture
def later() -> LaterLoop:
    return LaterLoop()


@pytest.fixture
def minute(sampler: Sampler, later: LaterLoop) -> StatsPages:
    """Pages that are young for a minute."""
    return StatsPages(sampler, node_name="node-a", max_age_s=60, now_s=later)


async def test_readers_that_keep_coming_never_wait_for_a_reading(
    minute: StatsPages, sampler: Sampler, renderer: HeldRenderer, later: LaterLoop
) -> None:
    first = await minute.containers()
    later.by_s = 30
    await minute.containers()
    assert sampler.readings == 1, "a young sample is not renewed"
    later.by_s = 40  # near its end, not beyond it
    assert (await minute.containers()).data is first.data, "served at once, from the old one"
    await until(lambda: len(renderer.of) == 2)
    assert sampler.readings == 2
    assert renderer.of[1] is sampler.latest, "the page is ready before the next reader asks"


async def test_rendering_ahead_waits_for_responses_in_flight(
    minute: StatsPages, sampler: Sampler, later: LaterLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "MAX_PAUSE_S", 3600)
    first = await minute.containers()
    later.by_s = 40
    with minute.sending:
        await minute.containers()
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert sampler.readings == 1
    await until(lambda: sampler.readings == 2)
    assert await shown(minute.containers, lambda body: body.data is not first.data)


async def test_until_the_next_page_is_rendered_readers_get_the_current_one(
    minute: StatsPages, renderer: HeldRenderer
) -> None:
    first = await minute.containers()
    renderer.free.clear()
    renderer.begun.clear()
    await minute.step()
    async with asyncio.timeout(20):
        assert (await minute.containers()).data is first.data, "before it is begun"
        await until(renderer.begun.is_set)
        assert (await minute.containers()).data is first.data, "while it is made"
    renderer.free.set()
    assert await shown(minute.containers, lambda body: body.data is not first.data)
    assert renderer.paused == [False, True]


async def test_a_reader_waits_for_the_next_page_when_the_last_is_too_old(
    minute: StatsPages, renderer: HeldRenderer, later: LaterLoop
) -> None:
    first = await minute.containers()
    renderer.free.clear()
    renderer.begun.clear()
    later.by_s = 59
    await minute.step()
    await until(renderer.begun.is_set)
    later.by_s = 61
    reader = asyncio.ensure_future(minute.containers())
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert not reader.done()
    renderer.free.set()
    assert (await reader).data is not first.data
    assert len(renderer.paused) == 2, "the page is rendered once"


@pytest.mark.parametrize(("later_s", "readings"), [(45.0, 1), (55.0, 2)])
async def test_a_page_is_young_as_long_as_its_sample(
    minute: StatsPages,
    sampler: Sampler,
    later: LaterLoop,
    monkeypatch: pytest.MonkeyPatch,
    later_s: float,
    readings: int,
) -> None:
    await sampler.step()
    monkeypatch.setattr(pages, "RENEW_AT", 9.0)  # nothing is rendered ahead
    monkeypatch.setattr(sampler, "age_s", lambda: 10.0 + later.by_s)
    await minute.containers()
    later.by_s = later_s
    await minute.containers()
    assert sampler.readings == readings


@pytest.mark.parametrize(("later_s", "rendered"), [(0, 2), (130, 1)])
async def test_the_loop_renders_the_pages_that_are_in_demand(
    minute: StatsPages,
    sampler: Sampler,
    renderer: HeldRenderer,
    later: LaterLoop,
    later_s: float,
    rendered: int,
) -> None:
    await minute.step()
    assert not renderer.of, "nobody asked yet"
    await minute.containers()
    later.by_s = later_s
    await minute.step()
    await until(lambda: len(renderer.of) == rendered)
    assert renderer.of[-1] is sampler.latest or rendered == 1
    assert sampler.readings == 2


@pytest.mark.parametrize(("age_s", "readings"), [(11.0, 1), (13.0, 2)])
async def test_the_resource_page_shows_the_loop_s_last_reading(
    sampler: Sampler, monkeypatch: pytest.MonkeyPatch, age_s: float, readings: int
) -> None:
    stats_pages = StatsPages(sampler, node_name="node-a")
    await sampler.step()
    monkeypatch.setattr(sampler, "age_s", lambda: age_s)
    assert b"resource_scrape_error 0" in (await stats_pages.resource()).data
    await until(lambda: sampler.readings == readings)


async def test_a_renewal_that_fails_is_retried_by_the_next_reader(
    minute: StatsPages, sampler: Sampler, later: LaterLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    await minute.resource()
    later.by_s = 40
    tried = threading.Event()

    def fail(*_: Any) -> Sample:
        tried.set()
        raise OSError("gone")

    monkeypatch.setattr(sampler.reader, "read", fail)
    assert b"resource_scrape_error 0" in (await minute.resource()).data
    await until(tried.is_set)
    assert b"resource_scrape_error 0" in (await minute.resource()).data
    later.by_s = 61
    monkeypatch.setattr(sampler, "age_s", lambda: 61.0)
    assert b"resource_scrape_error 1" in (await minute.resource()).data


async def test_pages_no_longer_in_demand_are_dropped_at_the_loop_s_next_sample(
    minute: StatsPages, later: LaterLoop
) -> None:
    class Page(bytearray):
        """Can be referred to weakly."""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(containerstats, "render_container_metrics", lambda *_, **__: Page(b"x"))
        page = weakref.ref((await minute.containers()).data)
    assert page() == b"x"
    later.by_s = 130
    await minute.step()
    await until(lambda: page() is None)
