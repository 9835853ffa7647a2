"""The view → the overview page: HTML of at most 80 kB, without scripts and foreign parts; pure.

Everything is put into elements of ElementTree, which escapes what it writes: a name or reason of a
pod stays text. What does not fit is left out from the end of the list of pods, and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from math import isnan
from xml.etree.ElementTree import Element, SubElement, tostring

from nodeagent.overview.chart import chart, thinned
from nodeagent.overview.style import STYLE
from nodeagent.overview.view import ArchiveView, CauseView, Course, PodView, StoreView, View
from nodeagent.pressure.causes.cause import percent, size

MAX_BYTES = 80_000
REFRESH_S = 10
_MAX_NAME, _MAX_TEXT = 80, 240
_MAX_CONTAINERS = 4
MAX_ARCHIVES = 10
_RESOURCES = {"cpu": "CPU", "memory": "memory", "io": "disks", "process": "processes"}
_LEAST_TOP = 0.1  # of a chart of stalls: a tenth of the time


def render(view: View, *, refreshes: bool) -> bytes:
    """The page; `refreshes` makes it load itself anew every ten seconds."""
    head = f"<!doctype html>{_written(_head(view, refreshes))}"
    above = _written(_header(view, refreshes), _machine(view), _causes(view.causes))
    below = _written(*([_store(view.store)] if view.store else []), _health(view))
    room = MAX_BYTES - len((head + above + below).encode()) - 1000
    body = f"<body>{above}<main>{_pods(view.pods, room)}</main>{below}</body>"
    return f"{head.replace('</html>', '')}{body}</html>".encode()


def _written(*elements: Element) -> str:
    return "".join(tostring(element, "unicode", "html") for element in elements)


def _head(view: View, refreshes: bool) -> Element:
    html = Element("html", {"lang": "en"})
    head = SubElement(html, "head")
    SubElement(head, "meta", {"charset": "utf-8"})
    SubElement(head, "meta", {"name": "viewport", "content": "width=device-width"})
    if refreshes:
        SubElement(head, "meta", {"http-equiv": "refresh", "content": f"{REFRESH_S}"})
    SubElement(head, "title").text = f"{shown(view.node_name)} overview"
    SubElement(head, "style").text = STYLE
    return html


def _header(view: View, refreshes: bool) -> Element:
    header = Element("header")
    _add(header, "h1", view.node_name)
    _add(header, "span", f"{_time(view.time_ns)}, nodeagent {view.version}", "dim")
    link = _add(header, "a", "pause" if refreshes else f"refresh every {REFRESH_S} s")
    link.set("href", "?refresh=0" if refreshes else "?")
    return header


def _machine(view: View) -> Element:
    section = _section("The last ten minutes")
    tiles = SubElement(section, "div", {"class": "tiles"})
    cpus, memory = view.cpus, view.memory_bytes
    used, share = view.cores, view.used_bytes.now / memory if memory else 0.0
    _tile(tiles, "CPU in use", f"of {cpus} cores", used, cpus, _cores)
    note = f"of {size(memory)}, {percent(share)}" if memory and not isnan(share) else ""
    _tile(tiles, "Memory in use", note, view.used_bytes, memory, _size)
    for resource, course in view.stalls.items():
        top = max([_LEAST_TOP, *[value for value in course.values if not isnan(value)]])
        _tile(tiles, f"Waiting for {_RESOURCES[resource]}", "of the time", course, top, _percent)
    if not view.stalls:
        _add(section, "p", "This kernel does not report pressure stalls.", "dim")
    return section


def _tile(
    tiles: Element, title: str, note: str, course: Course, top: float, tell: Callable[[float], str]
) -> None:
    tile = SubElement(tiles, "div", {"class": "tile"})
    _add(tile, "div", title, "dim")
    _add(tile, "b", tell(course.now))
    _add(tile, "span", f" {note}", "dim")
    known = [value for value in course.values if not isnan(value)]
    highest = f"at most {tell(max(known))}" if known else "no readings yet"
    tile.append(chart(course.values, top, f"{title}: {tell(course.now)} now, {highest}"))
    _add(tile, "small", highest)


def _causes(causes: Sequence[CauseView]) -> Element:
    section = _section("Who causes pressure")
    if not causes:
        _add(section, "p", "Nobody: nothing waits long for processors, memory or disks.", "dim")
    for cause in causes:
        card = SubElement(section, "div", {"class": "card"})
        text = SubElement(card, "p")
        _add(text, "b", f"{_RESOURCES.get(cause.resource, cause.resource)}: ")
        _add(text, "span", f"{cause.culprit} {cause.does}", limit=2 * _MAX_TEXT)
        if cause.since_ns:
            _add(text, "span", f" since {_time(cause.since_ns)}", "dim")
        if cause.suffers:
            _add(card, "p", f"Suffers: {', '.join(cause.suffers)}", limit=2 * _MAX_TEXT)
        _add(card, "p", f"Next: {cause.next_step}.", "dim", limit=_MAX_TEXT)
    return section


def _pods(pods: Sequence[PodView], room: int) -> str:
    """The list, as long as `room` bytes allow."""
    section = _section(f"Pods ({len(pods)})")
    table = SubElement(section, "table")
    heads = SubElement(SubElement(table, "thead"), "tr")
    for title in ("Pod", "CPU", "Memory", "Waiting now"):
        _add(heads, "th", title).set("scope", "col")
    SubElement(table, "tbody")
    frame, rows = _written(section), list[str]()
    room -= len(frame.encode())
    for pod in pods:
        row = _written(_pod(pod))
        room -= len(row.encode())
        if room < 0:
            break
        rows.append(row)
    left = len(pods) - len(rows)
    more = f"<p>{left} more are not shown; orchctl node top lists all.</p>" if left else ""
    return frame.replace("</tbody>", f"{''.join(rows)}</tbody>") + more


def _pod(pod: PodView) -> Element:
    row = Element("tr")
    cell = SubElement(row, "td")
    _add(cell, "span", f"{shown(pod.namespace)}/{shown(pod.name)}", limit=2 * _MAX_NAME + 1)
    ready = f" {pod.status}, {pod.ready}/{len(pod.containers)} ready"
    restarts = f", restarted {pod.restarts} times" if pod.restarts else ""
    _add(cell, "small", f"{ready}{restarts}", "" if pod.is_well else "bad")
    for container in pod.containers[:_MAX_CONTAINERS]:
        names = " ".join(map(shown, (container.name, container.image, container.state)))
        _add(cell, "small", names, limit=3 * _MAX_NAME)
    if len(pod.containers) > _MAX_CONTAINERS:
        _add(cell, "small", f"and {len(pod.containers) - _MAX_CONTAINERS} more")
    for title, course, tell in (("CPU", pod.cores, _cores), ("Memory", pod.memory_bytes, _size)):
        cell = _cell(row, title, tell(course.now))
        known = [value for value in course.values if not isnan(value)]
        if known:
            thin = thinned(course.values)
            cell.append(chart(thin, max(known), f"at most {tell(max(known))}", is_filled=False))
    stalls = [f"{_RESOURCES[name]} {percent(s)}" for name, s in pod.stalls.items() if s >= 0.01]
    _cell(row, "Waiting", ", ".join(stalls) or "no").attrib["class"] = "w"
    return row


def _cell(row: Element, title: str, text: str) -> Element:
    cell = SubElement(row, "td", {"class": "n", "data-of": title})
    _add(cell, "span", text)
    return cell


def _store(store: StoreView) -> Element:
    section = _section("Checkpoints")
    told = f"{store.total} archives, {size(store.used_bytes)}; since the agent began"
    _add(section, "p", f"{told} {store.succeeded} were made and {store.failed} failed.")
    if store.problem:
        _add(section, "p", store.problem, "bad", limit=_MAX_TEXT)
    listed = SubElement(section, "ul")
    for archive in store.archives[:MAX_ARCHIVES]:
        _archive(listed, archive)
    return section


def _archive(listed: Element, archive: ArchiveView) -> None:
    note = f", {archive.note}" if archive.note else ""
    text = f"{shown(archive.container, 2 * _MAX_NAME)}: {size(archive.size_bytes)}{note}, "
    _add(listed, "li", text + _time(archive.created_ns), limit=_MAX_TEXT)


def _health(view: View) -> Element:
    section = _section("Health")
    listed = SubElement(section, "ul", {"class": "checks"})
    for check in view.checks:
        _add(listed, "li", f"{check.name} {'ok' if check.ok else 'fails: see the log'}",
             "good" if check.ok else "bad")  # fmt: skip
    if not view.checks:
        _add(section, "p", "No round of checks has ended yet.", "dim")
    return section


def _section(title: str) -> Element:
    section = Element("section")
    _add(section, "h2", title)
    return section


def _add(
    parent: Element, tag: str, text: str, kind: str = "", *, limit: int = _MAX_TEXT
) -> Element:
    found = SubElement(parent, tag, {"class": kind} if kind else {})
    found.text = shown(text, limit)
    return found


def shown(text: str, limit: int = _MAX_NAME) -> str:
    """Text that neither turns the page's direction nor fills it; what is cut ends in `…`."""
    if len(text) > limit:
        text = f"{text[: limit - 1]}…"
    return text if text.isprintable() else "".join(c if c.isprintable() else "�" for c in text)


def in_order(pods: Iterable[PodView]) -> list[PodView]:
    """Those that are not well first, then those that wait or use most."""

    def weight(pod: PodView) -> tuple[bool, float, str, str]:
        cores = 0.0 if isnan(pod.cores.now) else pod.cores.now
        return pod.is_well, -max(pod.stalls.values(), default=0.0) - cores, pod.namespace, pod.name

    return sorted(pods, key=weight)


def _time(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns // 10**9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _cores(cores: float) -> str:
    return "not known" if isnan(cores) else f"{cores:.2f}"


def _size(size_bytes: float) -> str:
    return "not known" if isnan(size_bytes) else size(size_bytes)


def _percent(share: float) -> str:
    return "not known" if isnan(share) else percent(share)
