from __future__ import annotations

import json
from typing import Any

from tests.fakes.http_api import Answer, HttpApi
from tests.orch.ctl.conftest import Orchctl

PSI = {kind: {"avg10": 1.5, "avg60": 0.25, "avg300": 0, "total": 7} for kind in ("some", "full")}
SUMMARY: dict[str, Any] = {
    "node": {
        "nodeName": "n1",
        "startTime": "2026-01-31T12:00:00Z",
        "cpu": {"usageNanoCores": 1_250_000_000, "psi": PSI},
        "memory": {"workingSetBytes": 2 * 2**30, "availableBytes": 512 * 2**20, "psi": PSI},
        "fs": {"usedBytes": 2**30, "availableBytes": 3 * 2**30, "capacityBytes": 4 * 2**30},
        "network": {"rxBytes": 2**20, "txBytes": 0},
    },
    "pods": [
        {
            "podRef": {"namespace": "d", "name": "web"},
            "containers": [{"name": "c"}],
            "cpu": {"usageNanoCores": 5_000_000, "psi": PSI},
            "memory": {"workingSetBytes": 2**20},
        },
        {"podRef": {"namespace": "d", "name": "db"}, "containers": []},
    ],
}


async def test_the_summary_is_shown_for_people(orchctl: Orchctl, api: HttpApi) -> None:
    api.answers["GET", "/api/v1/nodes/n1/proxy/stats/summary"] = Answer(SUMMARY)
    result = await orchctl("node", "summary", "n1")
    assert result.code == 0
    assert result.lines == [
        "Node              n1",
        "Up since          2026-01-31T12:00:00Z",
        "CPU               1.250 cores",
        "Memory            2.0Gi working set, 512.0Mi available",
        "Disk              1.0Gi used, 3.0Gi of 4.0Gi available",
        "Network           1.0Mi received, 0.0Mi sent",
        "Pressure cpu      some 1.50/0.25/0.00 %, full 1.50/0.25/0.00 %",
        "Pressure memory   some 1.50/0.25/0.00 %, full 1.50/0.25/0.00 %",
        "Pressure io       -",
        "",
        "NAMESPACE   POD   CONTAINERS   CPU     MEMORY   CPU PRESSURE   MEMORY PRESSURE   "
        "IO PRESSURE",
        "d           db    0            -       -        -              -                 -",
        "d           web   1            0.005   1.0Mi    1.50 %         -                 -",
    ]


async def test_the_summary_is_given_as_data(orchctl: Orchctl, api: HttpApi) -> None:
    api.answers["GET", "/api/v1/nodes/n1/proxy/stats/summary"] = Answer(SUMMARY)
    assert json.loads((await orchctl("node", "summary", "n1", "-o", "json")).out) == SUMMARY


async def test_health_is_the_agent_s_own_answer(orchctl: Orchctl, api: HttpApi) -> None:
    api.answers["GET", "/api/v1/nodes/n1/proxy/healthz"] = Answer("ok")
    assert (await orchctl("node", "healthz", "n1")).out == "ok\n"


async def test_an_unhealthy_agent_is_a_failure(orchctl: Orchctl, api: HttpApi) -> None:
    api.answers["GET", "/api/v1/nodes/n1/proxy/healthz"] = Answer(
        "[-]runtime failed: gone\nhealthz check failed", 500
    )
    result = await orchctl("node", "healthz", "n1")
    assert result.code == 1
    assert "[-]runtime failed: gone healthz check failed" in result.err


async def test_health_has_no_other_form(orchctl: Orchctl) -> None:
    assert (await orchctl("node", "healthz", "n1", "-o", "json")).code == 2
