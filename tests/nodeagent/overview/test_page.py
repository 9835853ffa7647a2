"""The text of the overview page, in which the choices of pods and tenants stay text."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from nodeagent.overview import page
from nodeagent.overview.view import Course
from tests.nodeagent.overview import views

OURS = {
    "html", "head", "meta", "title", "style", "body", "header", "h1", "span", "a", "section", "h2",
    "div", "b", "svg", "path", "small", "p", "main", "table", "thead", "tbody", "tr", "th", "td",
    "ul", "li",
}  # fmt: skip
VOID = {"meta"}


class Parsed(HTMLParser):
    """The elements of a page, with their attributes, and its text; every one must be closed."""

    def __init__(self, text: bytes) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text.decode())
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.text += data + "\n"


def test_it_shows_the_machine_its_pods_checkpoints_and_health() -> None:
    text = Parsed(page.render(views.view(), refreshes=True)).text
    for expected in (
        "worker-1", "of 4 cores", "of 16 GB", "Waiting for disks", "pod shop/thief (app) uses 1.6",
        "Suffers: pod shop/web-3 (app)", "Next: give it a cpu limit", "Pods (12)", "shop/broken",
        "CrashLoopBackOff, 0/1 ready, restarted 7 times", "app registry.example/shop/web:1.4.2",
        "shop/db-0/main: 48 MB, encrypted", "ping ok", "runtime fails: see the log",
    ):  # fmt: skip
        assert expected in text


def test_a_quiet_machine_is_said_to_be_quiet() -> None:
    quiet = views.view()._replace(causes=[], pods=[], store=None, checks=[])
    text = Parsed(page.render(quiet, refreshes=True)).text
    assert "Nobody: nothing waits long" in text
    assert "Pods (0)" in text
    assert "Checkpoints" not in text
    assert "No round of checks has ended yet." in text


def test_what_is_not_known_is_not_called_zero() -> None:
    unknown = Course(float("nan"), [float("nan")] * 60)
    machine = views.view()._replace(
        cores=unknown, used_bytes=unknown, memory_bytes=0, stalls={},
        pods=[views.pod(1, cores=unknown, memory_bytes=unknown, stalls={})],
    )  # fmt: skip
    text = Parsed(page.render(machine, refreshes=True)).text
    assert text.count("not known") == 6  # each tile says it twice: also to who cannot see it
    assert "no readings yet" in text
    assert "This kernel does not report pressure stalls." in text
    assert "nan" not in text


@pytest.mark.parametrize("refreshes", [True, False])
def test_it_loads_itself_anew_unless_it_is_paused(refreshes: bool) -> None:
    parsed = Parsed(page.render(views.view(), refreshes=refreshes))
    metas = [attrs.get("http-equiv") for tag, attrs in parsed.tags if tag == "meta"]
    assert ("refresh" in metas) is refreshes
    (link,) = [attrs["href"] for tag, attrs in parsed.tags if tag == "a"]
    assert link == ("?refresh=0" if refreshes else "?")


def test_nothing_that_others_chose_becomes_an_element_or_attribute() -> None:
    parsed = Parsed(page.render(views.hostile(), refreshes=False))
    usual = Parsed(page.render(views.view(), refreshes=False))
    assert {tag for tag, _ in parsed.tags} <= OURS
    names = {name for _, attrs in usual.tags for name in attrs}
    assert {name for _, attrs in parsed.tags for name in attrs} == names
    for value in ("class", "style", "href", "content"):
        wanted = {a[value] for _, a in usual.tags if value in a}
        assert {a[value] for _, a in parsed.tags if value in a} - {"bad"} <= wanted
    for attack in ("<script>document.title='hacked'</script>", "<plaintext>", "&lt;b&gt;"):
        assert attack in parsed.text  # as text
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x00\x1b\x85\u2028]", parsed.text)


@pytest.mark.parametrize("pods", [0, 110, 600])
def test_it_has_80_kb_at_most_and_says_how_many_pods_are_left_out(pods: int) -> None:
    for view in (views.view(pods or 1), views.hostile(pods)):
        body = page.render(view, refreshes=True)
        assert len(body) <= page.MAX_BYTES
        rows = body.count(b"<tr><td>")
        left = len(view.pods) - rows
        assert (f"{left} more are not shown" in body.decode()) is (left > 0)
    assert page.render(views.view(90), refreshes=True).count(b"<tr><td>") == 90


def test_pods_that_are_not_well_come_first_then_those_that_wait_or_use_most() -> None:
    idle = {"cores": Course(0.0, [0.0]), "stalls": {}}
    pods = [
        views.pod(1, name="idle", **idle),
        views.pod(2, name="busy", cores=Course(3.0, [3.0]), stalls={}),
        views.pod(3, name="stalled", cores=Course(0.0, [0.0]), stalls={"io": 0.9}),
        views.pod(4, name="broken", is_well=False, **idle),
        views.pod(5, name="unknown", cores=Course(float("nan"), [float("nan")]), stalls={}),
    ]
    names = [pod.name for pod in page.in_order(pods)]
    assert names == ["broken", "busy", "stalled", "idle", "unknown"]
