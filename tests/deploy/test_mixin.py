"""Alerts, recording rules and dashboards of deploy/mixin, checked without a cluster.

What they ask is asked of a real Prometheus in tests/e2e/test_prometheus.py.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools import metrics_page

ROOT = Path(__file__).resolve().parents[2]
MIXIN = ROOT / "deploy" / "mixin"
RULES = {
    name: yaml.load((MIXIN / f"{name}.yaml").read_bytes(), yaml.CSafeLoader)
    for name in ("alerts", "rules")
}
ALERTS = [rule for group in RULES["alerts"]["groups"] for rule in group["rules"]]
RECORDED = [rule for group in RULES["rules"]["groups"] for rule in group["rules"]]
CASES = yaml.load((Path(__file__).parent / "alert_cases.yaml").read_bytes(), yaml.CSafeLoader)
DASHBOARDS = sorted((MIXIN / "dashboards").glob("*.json"))
OF_PROMETHEUS = {"up", "ALERTS"}


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed (Debian package prometheus)")
    words = [program, *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=60)


def case_of(alert: str, fires: bool) -> dict[str, Any]:
    """A test of promtool: whether the alert fires after 40 minutes of these series."""
    return {
        "interval": "1m",
        "input_series": CASES[alert]["fires" if fires else "silent"],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{alert}", alertstate="firing"}})',
                "eval_time": "40m",
                "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
            }
        ],
    }


def panels(dashboard: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return (panel for panel in dashboard["panels"] if panel["type"] != "row")


def queries() -> Iterator[tuple[str, str]]:
    """(where, expression) of everything that is asked."""
    yield from ((rule["alert"], rule["expr"]) for rule in ALERTS)
    yield from ((rule["record"], rule["expr"]) for rule in RECORDED)
    for path in DASHBOARDS:
        for panel in panels(json.loads(path.read_text())):
            for target in panel["targets"]:
                yield f"{path.stem}: {panel['title']}", target["expr"]


def names_in(expression: str) -> set[str]:
    """The names of series; labels, functions and texts left out."""
    bare = re.sub(r'"[^"]*"|\$\w+|\{[^}]*\}|\[[^]]*\]', " ", expression)
    bare = re.sub(r"\b(by|on|without|ignoring|group_left|group_right)\s*\([^)]*\)", " ", bare)
    words = re.findall(r"[a-zA-Z_][\w:]*(?!\w*\s*\()", bare)
    return {word for word in words if "_" in word or ":" in word or word in OF_PROMETHEUS}


def test_the_rules_are_valid() -> None:
    done = promtool("check", "rules", MIXIN / "alerts.yaml", MIXIN / "rules.yaml")
    assert done.returncode == 0, done.stderr
    done = promtool("check", "config", "--syntax-only", ROOT / "deploy" / "prometheus.yml")
    assert done.returncode == 0, done.stderr


def test_every_alert_fires_and_keeps_silent_in_time(tmp_path: Path) -> None:
    assert CASES.keys() == {alert["alert"] for alert in ALERTS}
    (tmp_path / "alerts.yaml").write_text((MIXIN / "alerts.yaml").read_text())
    tests = [case_of(alert, fires) for alert in CASES for fires in (True, False)]
    file = tmp_path / "tests.yaml"
    file.write_text(
        yaml.safe_dump({"rule_files": ["alerts.yaml"], "evaluation_interval": "1m", "tests": tests})
    )
    done = promtool("test", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_every_alert_has_a_page_to_open(alert: dict[str, Any]) -> None:
    page, _, anchor = alert["annotations"]["runbook"].partition("#")
    headings = re.findall(r"^### (\w+)$", (ROOT / page).read_text(), re.MULTILINE)
    assert anchor == alert["alert"].lower()
    assert alert["alert"] in headings
    assert alert["labels"]["severity"] in {"critical", "warning"}


def test_only_exported_metrics_are_asked_for() -> None:
    tables = metrics_page.documented(metrics_page.PAGE.read_text())
    exported = {name for table in tables.values() for name in table} | OF_PROMETHEUS
    exported |= {rule["record"] for rule in RECORDED}
    asked = {where: names_in(expression) for where, expression in queries()}
    for where, names in asked.items():
        plain = {re.sub(r"_(bucket|sum|count)$", "", name) for name in names}
        assert names, where
        assert {name for name in names | plain if name in exported} >= plain & exported
        unknown = {
            n
            for n in names
            if n not in exported and re.sub(r"_(bucket|sum|count)$", "", n) not in exported
        }
        assert unknown == set(), where


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_is_whole(path: Path) -> None:
    dashboard = json.loads(path.read_text())
    assert dashboard["uid"] == f"nodeagent-{path.stem}"
    assert dashboard["title"]
    assert "nodeagent" in dashboard["tags"]
    assert dashboard["schemaVersion"] >= 36
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert not cells & taken, panel["title"]
        taken |= cells
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    for panel in panels(dashboard):
        assert panel["datasource"] == {"type": "prometheus", "uid": "$datasource"}
        assert panel["fieldConfig"]["defaults"]["unit"]
        used = {
            name for target in panel["targets"] for name in re.findall(r"\$(\w+)", target["expr"])
        }
        assert used <= variables | {"__rate_interval"}
