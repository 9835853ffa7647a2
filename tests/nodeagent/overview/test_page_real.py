"""The overview page in a real browser: phone and desk, light and dark, and under attack."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from nodeagent.overview import overview, page
from nodeagent.overview.view import View
from tests.fakes.browser import Browser, browser
from tests.nodeagent.overview import views

pytestmark = [pytest.mark.real, pytest.mark.slow]

PHONE, DESK = (360, 740), (1280, 800)
_CONTRAST = """(() => {
  const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number).map(v => v / 255)
    .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b; };
  const ground = e => { const c = getComputedStyle(e).backgroundColor;
    return c === 'rgba(0, 0, 0, 0)' ? ground(e.parentElement) : c; };
  return Math.min(...[...document.querySelectorAll('h1,h2,p,b,span,small,li,td,th,a')].map(e => {
    const [a, b] = [light(getComputedStyle(e).color), light(ground(e))].sort((x, y) => y - x);
    return (a + .05) / (b + .05); }));
})()"""


class Site:
    """Serves a view as the agent does, on an origin of its own; counts what else is asked for."""

    def __init__(self) -> None:
        self.view: View = views.view()
        self.asked: list[str] = []
        self.url = ""
        self._changed = asyncio.Event()

    async def wait_for(self, path: str, *, times: int) -> None:
        async with asyncio.timeout(60):
            while self.asked.count(path) < times:
                self._changed.clear()
                await self._changed.wait()

    async def handle(self, request: web.Request) -> web.Response:
        self.asked.append(request.path_qs)
        self._changed.set()
        refreshes = request.query.get("refresh") != "0"
        body = page.render(self.view, refreshes=refreshes)
        return web.Response(body=body, headers=overview.HEADERS)


@pytest_asyncio.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", site.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    listener = web.TCPSite(runner, "127.0.0.1", 0)
    await listener.start()
    address: Any = runner.addresses[0]
    site.url = f"http://127.0.0.1:{address[1]}/overview"
    yield site
    await runner.cleanup()


@pytest_asyncio.fixture
async def tab(tmp_path: Path) -> AsyncIterator[Browser]:
    async with browser(tmp_path / "profile") as tab:
        yield tab


async def _complaints(tab: Browser) -> list[str]:
    """What the browser's log and console say of the page, and errors of scripts."""
    await tab.value("1")  # after what the load still had to say
    logged = [entry["entry"]["text"] for entry in tab.named("Log.entryAdded")]
    return logged + [str(thrown) for thrown in tab.named("Runtime.exceptionThrown")]


@pytest.mark.parametrize(("width", "height"), [PHONE, DESK])
async def test_it_fits_and_is_readable_in_both_schemes(
    site: Site, tab: Browser, width: int, height: int
) -> None:
    grounds = set()
    for view in (views.view(40), views.hostile(40)):
        site.view = view
        for scheme in ("light", "dark"):
            await tab.open(f"{site.url}?refresh=0", width=width, height=height, scheme=scheme)
            assert await tab.value("document.documentElement.scrollWidth") <= width
            assert await tab.value(_CONTRAST) >= 4.5
            grounds.add(await tab.value("getComputedStyle(document.body).backgroundColor"))
            assert await tab.value("document.querySelectorAll('tbody tr').length") > 10
            assert await tab.value("document.querySelector('svg').clientHeight") > 20
    assert len(grounds) == 2, "light and dark"


async def test_the_browser_has_nothing_to_complain_of(site: Site, tab: Browser) -> None:
    """The style is the one that the policy allows: else the log would tell, and no rule hold."""
    await tab.open(f"{site.url}?refresh=0", width=1280, height=800)
    assert await _complaints(tab) == []
    assert await tab.value("getComputedStyle(document.querySelector('.tiles')).display") == "grid"
    assert await tab.value("document.compatMode") == "CSS1Compat"


async def test_what_others_chose_runs_nothing_loads_nothing_and_stays_text(
    site: Site, tab: Browser
) -> None:
    site.view = views.hostile()
    await tab.open(f"{site.url}?refresh=0", width=1280, height=800)
    assert await tab.value("document.title") == f"{views.ATTACKS[0]} overview"
    assert await tab.value("document.querySelectorAll('script,img,base,iframe,form').length") == 0
    assert await tab.value("document.querySelectorAll('[onerror],[onload],[style]').length") == 0
    assert await _complaints(tab) == []
    assert tab.named("Page.javascriptDialogOpening") == []
    assert set(site.asked) <= {"/overview?refresh=0", "/favicon.ico"}


async def test_even_markup_that_came_through_would_do_nothing(site: Site, tab: Browser) -> None:
    """The second line of defence, tried by putting elements into the page that are not escaped."""
    await tab.open(f"{site.url}?refresh=0", width=1280, height=800)
    planted = "<img src=/stolen onerror=\"document.title='x'\"><b style='position:fixed'>b</b>"
    await tab.value(f"document.body.insertAdjacentHTML('beforeend', {planted!r})")
    await tab.value("const s=document.createElement('script');s.textContent='document.title=1';"
                    "document.body.append(s)")  # fmt: skip
    complaints = " ".join(await _complaints(tab))
    assert await tab.value("document.title") == "worker-1 overview"
    assert "script" in complaints
    assert "/stolen" not in site.asked
    assert await tab.value("getComputedStyle(document.body.querySelector('b[style]')).position") \
        == "static"  # fmt: skip


async def test_it_loads_itself_anew(
    site: Site, tab: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "REFRESH_S", 1)
    await tab.open(site.url, width=360, height=740)
    await site.wait_for("/overview", times=3)


async def test_it_can_be_paused(site: Site, tab: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "REFRESH_S", 3600)
    await tab.open(site.url, width=360, height=740)
    await tab.value("document.querySelector('a').click()")
    await site.wait_for("/overview?refresh=0", times=1)
