"""Numbers → a small SVG line with the area below it; pure. NaN leaves a gap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isnan, nan
from xml.etree.ElementTree import Element, SubElement

HEIGHT = 24


def chart(values: Sequence[float], top: float, label: str, *, is_filled: bool = True) -> Element:
    """One unit across for each value; `top` is what reaches the upper edge."""
    width = max(1, len(values) - 1)
    found = Element(
        "svg",
        {"viewBox": f"0 0 {width} {HEIGHT}", "preserveAspectRatio": "none", "role": "img"},
    )
    SubElement(found, "title").text = label
    lines, areas = "", ""
    for start, heights in _runs(values, top):
        steps = "".join(f"L{start + at} {heights[at]}" for at in _turns(heights))
        lines += f"M{start} {heights[0]}{steps or 'h.5'}"
        areas += f"M{start} {HEIGHT}V{heights[0]}{steps}V{HEIGHT}z" if is_filled else ""
    if areas:
        SubElement(found, "path", {"class": "area", "d": areas})
    if lines:
        SubElement(found, "path", {"d": lines})
    return found


def thinned(values: Sequence[float]) -> list[float]:
    """The higher of each two: half as many."""
    pairs = (values[at : at + 2] for at in range(0, len(values), 2))
    return [max((value for value in pair if not isnan(value)), default=nan) for pair in pairs]


def _turns(heights: Sequence[int]) -> Iterator[int]:
    """The points after the first without which the line would be another."""
    for at in range(1, len(heights)):
        if at == len(heights) - 1 or not heights[at - 1] == heights[at] == heights[at + 1]:
            yield at


def _runs(values: Sequence[float], top: float) -> Iterator[tuple[int, list[int]]]:
    """Where each run of known values begins, and its heights from above."""
    run: list[int] = []
    for at, value in enumerate(values):
        if not isnan(value):
            share = min(1.0, max(0.0, value / top)) if top > 0 else 0.0
            run.append(HEIGHT - 1 - round(share * (HEIGHT - 2)))
        if run and (isnan(value) or at == len(values) - 1):
            yield at - len(run) + (not isnan(value)), run
            run = []
