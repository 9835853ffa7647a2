from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml

from orch.ctl.failures import WrongUsage
from orch.ctl.output import printing
from orch.ctl.output.printing import TableOptions
from orch.wire.tables.tables import table_of

NOW = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)


def _lines(table: dict[str, Any], **options: Any) -> list[str]:
    return printing.columns(printing.table_rows(table, TableOptions(**options)))


def test_columns_are_aligned_three_apart() -> None:
    assert printing.columns([("A", "LONG", "C"), ("value", "x", ""), ("", "", "z")]) == [
        "A       LONG   C",
        "value   x",
        "               z",
    ]


def test_a_table_without_rows_is_only_its_header() -> None:
    assert printing.columns([("A", "B")]) == ["A     B"]


def test_cells_cannot_steer_the_terminal_and_stay_on_one_line() -> None:
    event = {"metadata": {"name": "e"}, "message": "first\nsecond", "reason": "\x1b[31mred"}
    lines = _lines(table_of("Event", [event], NOW))
    assert len(lines) == 2
    assert "first..." in lines[1]
    assert "\\x1b[31mred" in lines[1]


def test_only_the_wide_form_has_every_column() -> None:
    table = table_of("Node", [{"metadata": {"name": "n1"}}], NOW)
    assert _lines(table)[0].split() == ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]
    assert "INTERNAL-IP" in _lines(table, wide=True)[0]


def test_namespaces_and_prefixes_are_added_on_demand() -> None:
    table = table_of("Pod", [{"metadata": {"name": "web", "namespace": "d"}}], NOW)
    header, row = _lines(table, namespaces=True, prefix="pod/")
    assert header.split()[:2] == ["NAMESPACE", "NAME"]
    assert row.split()[:2] == ["d", "pod/web"]


def test_cells_the_server_left_out_are_shown_as_none() -> None:
    table = {"columnDefinitions": [{"name": "A"}, {"name": "B"}], "rows": [{"cells": [None]}]}
    assert _lines(table)[1].split() == ["<none>", "<none>"]


def test_labels_are_columns_on_demand() -> None:
    labels = {"app": "x", "orch.io/tier": "front"}
    table = table_of("Namespace", [{"metadata": {"name": "n", "labels": labels}}, {}], NOW)
    header, row, bare = _lines(table, label_columns=("orch.io/tier",), labels=True)
    assert header.split()[-2:] == ["TIER", "LABELS"]
    assert row.split()[-2:] == ["front", "app=x,orch.io/tier=front"]
    assert bare.split()[-1] == "<none>"
    assert len(_lines(table, headers=False)) == 2


def test_rows_that_come_later_stay_aligned() -> None:
    widths: list[int] = []
    assert printing.columns([("A", "B")], widths) == ["A     B"]
    assert printing.columns([("longer", "x")], widths) == ["longer   x"]
    assert printing.columns([("s", "y")], widths) == ["s        y"]


def test_yaml_and_json_read_back() -> None:
    value = {"b": ["1", 1, None, "é", "long " * 40], "a": {"on": "yes"}}
    assert yaml.safe_load(printing.as_yaml(value)) == value
    assert json.loads(printing.as_json(value)) == value
    assert printing.as_json(value).startswith('{\n    "a": {\n        "on": "yes"')


def test_json_and_yaml_hold_nothing_that_a_terminal_obeys() -> None:
    value = {
        "\x9b2J": "\x1b[2J\x9b2J\x7f\x85\u202e\u2066\u200f\u061c",
        "lines": "one\n\u202etwo\n",
        "plain": "é\\u009b\U0001f600",
    }
    for write, read in ((printing.as_json, json.loads), (printing.as_yaml, yaml.safe_load)):
        text = write(value)
        assert all(line.isprintable() for line in text.split("\n"))
        assert read(text) == value
    assert "é" in printing.as_json(value)
    assert printing.as_yaml({"plain": "é"}) == "plain: é"


def test_the_bookkeeping_of_writers_is_left_out() -> None:
    record = {"metadata": {"name": "a", "managedFields": [1]}, "spec": {}}
    asked = argparse.Namespace(show_managed_fields=False)
    assert printing.shown(record, asked) == {"metadata": {"name": "a"}, "spec": {}}
    assert printing.shown({"spec": {}}, asked) == {"spec": {}}
    assert printing.shown(record, argparse.Namespace(show_managed_fields=True)) == record


@pytest.mark.parametrize(
    ("values", "ordered"),
    [
        ([3, 1, 2], [1, 2, 3]),
        (["b", "a"], ["a", "b"]),
        (["1Gi", "500Mi", "2k"], ["2k", "500Mi", "1Gi"]),
        (["10", "9"], ["9", "10"]),
        (["2026-02-01T00:00:00Z", "2025-01-01T00:00:00Z"],
         ["2025-01-01T00:00:00Z", "2026-02-01T00:00:00Z"]),
        ([[2], [1], "x"], ["x", [1], [2]]),
    ],
)  # fmt: skip
def test_values_are_ordered_by_their_meaning(values: list[Any], ordered: list[Any]) -> None:
    records = [{"a": {"b": value}} for value in values]
    for path in (".a.b", "{.a.b}", "a.b"):
        found = printing.sort_by_path(records, path, record_of=lambda record: record)
        assert [record["a"]["b"] for record in found] == ordered


def test_what_has_no_value_comes_first_and_equals_keep_their_order() -> None:
    records = [{"n": 1, "x": 1}, {"n": 2}, {"n": 3, "x": 1}, {"n": 4, "x": None}]
    found = printing.sort_by_path(records, ".x", record_of=lambda record: record)
    assert [record["n"] for record in found] == [2, 4, 1, 3]


def test_a_path_that_cannot_be_read_is_a_usage_error() -> None:
    with pytest.raises(WrongUsage, match="--sort-by: the JSONPath"):
        printing.sort_by_path([], "{.a", record_of=lambda record: record)
