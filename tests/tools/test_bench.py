"""The verdicts of benchmarks on their figures: which limits are met, and the exit code."""

from __future__ import annotations

import os
import re
import types
from pathlib import Path

import pytest

from tools.bench import __main__ as bench
from tools.bench import heartbeats, heartbeats_plot, yardstick
from tools.bench.client import percentile
from tools.bench.table import Table


def test_a_figure_is_judged_by_its_limit() -> None:
    table = Table()
    table.row("cheap", 0.5, at_most=0.5)
    table.row("dear", 0.51, at_most=0.5)
    table.row("times better", 9.9, at_least=10, unit=" x")
    table.row("shown only", 7)
    table.note("peer", "not installed")
    assert table.missed == 2
    assert table.markdown().splitlines()[2:] == [
        "| cheap | <= 0.5 | 0.5 | met |",
        "| dear | <= 0.5 | 0.51 | **missed** |",
        "| times better | >= 10 x | 9.9 x | **missed** |",
        "| shown only |  | 7 |  |",
        "| peer |  | not installed |  |",
    ]


@pytest.fixture
def no_yardstick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yardstick, "main", lambda: None)


@pytest.mark.usefixtures("no_yardstick")
@pytest.mark.parametrize(("missed", "code"), [(None, 0), (0, 0), (3, 1)])
def test_a_missed_limit_is_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, missed: int | None, code: int
) -> None:
    module = types.SimpleNamespace(main=lambda: missed)
    monkeypatch.setattr(bench.importlib, "import_module", lambda name: module)
    assert bench.main(["idle"]) == code


@pytest.mark.usefixtures("no_yardstick")
def test_flags_reach_the_one_benchmark_that_takes_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given: list[list[str]] = []
    module = types.SimpleNamespace(main=given.append)
    monkeypatch.setattr(bench.importlib, "import_module", lambda name: module)
    assert bench.main(["heartbeats", "--minutes", "1"]) == 0
    assert given == [["--minutes", "1"]]
    for words in (["idle", "--minutes", "1"], ["idle", "heartbeats", "--etcd"], ["--etcd"]):
        assert bench.main(words) == 2
    assert "flags belong after the one name" in capsys.readouterr().out


def test_the_course_of_heartbeats_is_drawn(tmp_path: Path) -> None:
    course = heartbeats_plot.Course(found_s=[47.0, 52.5])
    for at_s in (5.0, 10.0):
        course.add(at_s, {"late_p50_s": 0.004, "late_p99_s": 0.02})
    heartbeats_plot.draw(course, "two nodes", tmp_path / "course.svg")
    assert "</svg>" in (tmp_path / "course.svg").read_text()


def test_the_plot_has_a_default_path() -> None:
    places = [heartbeats.scale_of(words).plot for words in ([], ["--plot", "course.png"])]
    assert [str(place) for place in places] == ["build/heartbeats-sqlite.svg", "course.png"]


def test_an_unknown_benchmark_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["speed"]) == 2
    assert "no benchmark speed" in capsys.readouterr().out


def test_percentiles_are_of_the_nearest_rank() -> None:
    values = [float(number) for number in range(1, 1001)]
    assert [percentile(values, rank) for rank in (500, 990, 999, 1000)] == [501, 991, 1000, 1000]
    assert percentile([4.0], 990) == 4.0


def test_the_yardstick_measures_a_real_server(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(yardstick, "SECONDS", 0.2)
    cores = os.sched_getaffinity(0)
    yardstick.main()
    seen = capsys.readouterr().out
    used_usec, times = (float(word) for word in re.findall(r"[\d.]+(?= µs| times)", seen))
    assert used_usec > 10
    assert times == pytest.approx(used_usec / yardstick.REFERENCE_USEC, abs=0.1)
    assert os.sched_getaffinity(0) == cores
