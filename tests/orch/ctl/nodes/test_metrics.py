"""`orchctl metrics`: the catalogue as columns and as data."""

import json

import pytest

from orch.ctl import main


def test_the_catalogue_is_shown_in_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["metrics", "--tier", "stable", "--owner", "orch-controller-manager"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["NAME", "TIER", "SERVED", "OWNER", "WHY", "NOT"]
    assert [row.split() for row in rows] == [
        ["node_collector_evictions_total", "STABLE", "yes", "orch-controller-manager"]
    ]


def test_what_is_not_exposed_has_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["metrics", "--owner", "orch-apiserver", "--tier", "alpha"]) == 0
    rows = {row.split()[0]: row for row in capsys.readouterr().out.splitlines()}
    assert rows["aggregator_*"].endswith("no other server is aggregated behind this one")
    assert rows["etcd_*"].split()[2:] == ["yes", "orch-apiserver"]


def test_what_no_program_exposes_can_be_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["metrics", "--served", "-o", "json"]) == 0
    records = json.loads(capsys.readouterr().out)
    assert records
    assert all(record["served"] for record in records)
    assert not [record for record in records if record["owner"].startswith("outside")]
