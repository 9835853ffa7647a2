"""The list of metrics in docs/metrics.md, as it is written and read."""

from __future__ import annotations

import re
from pathlib import Path

from orch.wire import names
from tools import metrics_page

CHANGELOG = Path(__file__).resolve().parents[2] / "CHANGELOG.md"
HEADING = "nodeagent `/metrics`"
EMPTY = f"# Metrics\n\nText that stays.\n\n## {HEADING}\n\nMore of it.\n"
OLD = """\
# HELP jobs_total [BETA] Jobs by kind, a|b.
# TYPE jobs_total counter
jobs_total{kind="a"} 1
# HELP waits_seconds [ALPHA] Waits.
# TYPE waits_seconds histogram
waits_seconds_bucket{le="+Inf",queue="q"} 1
waits_seconds_sum{queue="q"} 1
waits_seconds_count{queue="q"} 1
"""
NEW = """\
# HELP jobs_total [STABLE] Jobs by kind.
# TYPE jobs_total counter
# HELP up Whether it is up.
# TYPE up gauge
up 1
"""


def page(text: str, release: str, before: str = EMPTY) -> str:
    live = {HEADING: list(metrics_page.families(text))}
    return metrics_page.updated(before, live, release)


def test_a_page_is_written_as_a_table_and_read_back() -> None:
    written = page(OLD, "1.0.0")
    assert "Text that stays." in written
    assert "More of it." in written
    rows = metrics_page.documented(written)[HEADING]
    assert rows == {
        "jobs_total": metrics_page.Family(
            "jobs_total", "counter", "BETA", frozenset({"kind"}), "Jobs by kind, a\\|b.", "1.0.0"
        ),
        "waits_seconds": metrics_page.Family(
            "waits_seconds", "histogram", "ALPHA", frozenset({"queue"}), "Waits.", "1.0.0"
        ),
    }
    assert page(OLD, "2.0.0", written) == written


def test_a_later_page_changes_texts_and_keeps_labels_and_the_first_release() -> None:
    rows = metrics_page.documented(page(NEW, "2.0.0", page(OLD, "1.0.0")))[HEADING]
    assert [(row.name, row.tier, sorted(row.labels), row.since) for row in rows.values()] == [
        ("jobs_total", "STABLE", ["kind"], "1.0.0"),
        ("up", "", [], "2.0.0"),
        ("waits_seconds", "ALPHA", ["queue"], "1.0.0"),
    ]


def test_every_family_is_there_since_a_release_that_there_was() -> None:
    """Those with a heading in CHANGELOG.md, and the one that the programs call theirs."""
    known = set(re.findall(r"^## v?(\d\S*)", CHANGELOG.read_text(), re.MULTILINE))
    known.add(names.VERSION.removeprefix("v"))
    tables = metrics_page.documented(metrics_page.PAGE.read_text())
    assert {row.since for table in tables.values() for row in table.values()} <= known
    assert known.issuperset({metrics_page.RELEASE})
