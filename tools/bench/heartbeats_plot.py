"""The plot of the heartbeats benchmark: lateness over time, and when silent nodes were detected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(slots=True)
class Course:
    """Lateness of all renewals so far over time, and when silent nodes were detected; in s."""

    at_s: list[float] = field(default_factory=list)
    p50_s: list[float] = field(default_factory=list)
    p99_s: list[float] = field(default_factory=list)
    found_s: list[float] = field(default_factory=list)

    def add(self, at_s: float, figures: Mapping[str, float]) -> None:
        self.at_s.append(at_s)
        self.p50_s.append(figures["late_p50_s"])
        self.p99_s.append(figures["late_p99_s"])


def draw(course: Course, title: str, file: Path) -> None:
    """SVG, PNG or PDF by the file's ending; OSError when it cannot be written."""
    import matplotlib  # heavy, and for this alone

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4))
    minutes = [at_s / 60 for at_s in course.at_s]
    left.plot(minutes, course.p99_s, label="p99")
    left.plot(minutes, course.p50_s, label="p50")
    left.axhline(1.0, linestyle=":", color="grey", label="limit of p99")
    left.set(xlabel="minutes", ylabel="lateness of renewals so far, s", yscale="log")
    left.legend()
    found = range(1, len(course.found_s) + 1)
    right.step(course.found_s, found, where="post")
    right.axvline(60.0, linestyle=":", color="grey")
    right.set(xlabel="seconds after they fell silent", ylabel="nodes shown as Unknown")
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(file)
    pyplot.close(figure)
