from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch.ctl.nodes import usage
from orch.ctl.nodes.usage import History


def psi(now: float) -> dict[str, Any]:
    return {kind: {"avg10": now, "avg60": 2.0, "avg300": 1.0} for kind in ("some", "full")}


def summary(now: float = 3.0) -> dict[str, Any]:
    used = {"cpu": {"usageNanoCores": 500_000_000, "psi": psi(now)},
            "memory": {"workingSetBytes": 2**20}}  # fmt: skip
    return {
        "node": {"nodeName": "n1", **used},
        "pods": [
            {"podRef": {"namespace": "d", "name": "web"}, **used,
             "containers": [{"name": "b"}, {"name": "a", **used}]},
            {"podRef": {"namespace": "d", "name": "db"}, "containers": []},
        ],
    }  # fmt: skip


def test_a_summary_is_rows_of_node_pods_and_containers() -> None:
    rows = usage.rows("n1", summary(), {"cpu": "2", "memory": "4Mi"})
    assert [(row.depth, row.key[-1]) for row in rows] == [
        (0, "n1"), (1, "d/db"), (1, "d/web"), (2, "a"), (2, "b"),
    ]  # fmt: skip
    assert (rows[0].cpu_percent, rows[0].memory_percent) == (25.0, 25.0)
    assert (rows[1].cpu_nano, rows[1].cpu_percent, rows[1].pressure) == (None, None, {})
    assert rows[0].pressure["cpu", "some"] == (1.0, 2.0, 3.0)
    assert rows[0].stalled() == 3.0


def test_a_node_of_unknown_size_has_no_percentages() -> None:
    (node, *_) = usage.rows("n1", summary(), {})
    assert (node.cpu_percent, node.memory_percent) == (None, None)


def test_history_begins_with_the_averages_and_grows_by_one_each_look() -> None:
    history = History()
    for now in (3.0, 4.0, 5.0):
        rows = usage.rows("n1", summary(now), {})
        history.add(rows)
    assert history.of(rows[0], "cpu", "some") == (1.0, 2.0, 3.0, 4.0, 5.0)
    assert history.of(rows[0], "io", "some") == ()
    history.add([])
    assert history.of(rows[0], "cpu", "some") == ()


@pytest.mark.parametrize(
    ("values", "bars"),
    [((), ""), ((0.0,), "▁"), ((0.1, 8.0), "▂▃"), ((25.0, 49.9, 50.0, 100.0), "▅███")],
)
def test_a_sparkline_has_one_scale(values: tuple[float, ...], bars: str) -> None:
    assert usage.sparkline(values) == bars


@given(st.lists(st.floats(0, 100)))
def test_higher_values_never_have_lower_bars(values: list[float]) -> None:
    bars = usage.sparkline(sorted(values))
    assert len(bars) == len(values)
    assert list(bars) == sorted(bars)


@pytest.mark.parametrize(
    ("size", "text"), [(None, "-"), (0, "0.0Mi"), (2**20, "1.0Mi"), (3 * 2**29, "1.5Gi")]
)
def test_sizes_are_short(size: int | None, text: str) -> None:
    assert usage.size_text(size) == text
