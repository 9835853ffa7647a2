"""The dashboards of deploy/mixin by Grafana's own schema, as it publishes it for programs.

No package of Debian, npm or Python has Grafana itself. `@grafana/schema` has the types that it
generates from the schema of dashboards; the TypeScript compiler refuses what they do not know.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.test_mixin import DASHBOARDS, panels

pytestmark = [pytest.mark.real, pytest.mark.slow]

MODULES = Path(f"{sys.prefix}-clients", "node_modules")
SCHEMA = MODULES / "@grafana" / "schema"
COMPILER = MODULES / "typescript" / "bin" / "tsc"
SETTINGS = {
    "compilerOptions": {
        "strict": True, "noEmit": True, "module": "nodenext", "moduleResolution": "nodenext",
        "skipLibCheck": True, "target": "es2022", "types": [],
    },
    "include": ["*.ts"],
}  # fmt: skip


def complaints(directory: Path, dashboards: dict[str, dict[str, Any]]) -> list[str]:
    """What Grafana's types have against dashboards, by name; `dashboards` are as in their files."""
    node = shutil.which("node")
    if node is None or not (SCHEMA.exists() and COMPILER.exists()):
        pytest.skip("Grafana's schema is not installed; `tools/setup test` does, with npm")
    (directory / "node_modules").symlink_to(MODULES)
    (directory / "tsconfig.json").write_text(json.dumps(SETTINGS))
    for name, dashboard in dashboards.items():
        (directory / f"{name}.ts").write_text(_program(dashboard))
    checked = subprocess.run(
        [node, str(COMPILER), "-p", str(directory), "--pretty", "false"],
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    return [line for line in checked.stdout.splitlines() if ": error " in line]


def _program(dashboard: dict[str, Any]) -> str:
    """Assigns the dashboard to Grafana's type, which takes no field that it does not know."""
    return (
        "import type { Dashboard } from '@grafana/schema';\n"
        f"export const dashboard: Dashboard = {json.dumps(dashboard)};\n"
    )


def test_grafana_knows_every_field_of_every_dashboard(tmp_path: Path) -> None:
    dashboards = {path.stem: json.loads(path.read_text()) for path in DASHBOARDS}
    assert complaints(tmp_path, dashboards) == []


def test_grafana_has_every_kind_of_panel() -> None:
    if not SCHEMA.exists():
        pytest.skip("Grafana's schema is not installed; `tools/setup test` does, with npm")
    known = {path.name for path in (SCHEMA / "dist" / "types" / "raw" / "composable").iterdir()}
    listed = [json.loads(path.read_text()) for path in DASHBOARDS]
    assert {panel["type"] for dashboard in listed for panel in panels(dashboard)} <= known


def _misnamed(dashboard: dict[str, Any]) -> None:
    dashboard["panels"][1]["titel"] = "x"


def _mistyped(dashboard: dict[str, Any]) -> None:
    dashboard["schemaVersion"] = "36"


def _misplaced(dashboard: dict[str, Any]) -> None:
    del dashboard["panels"][1]["gridPos"]["w"]


@pytest.mark.parametrize("mistake", [_misnamed, _mistyped, _misplaced])
def test_a_mistake_is_found(tmp_path: Path, mistake: Callable[[dict[str, Any]], None]) -> None:
    dashboard = json.loads(DASHBOARDS[0].read_text())
    mistake(dashboard)
    assert complaints(tmp_path, {"wrong": dashboard})
