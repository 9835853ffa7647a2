from __future__ import annotations

import json
from typing import Any

import pytest

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


async def test_health_has_no_other_format(orchctl: Orchctl) -> None:
    assert (await orchctl("node", "healthz", "n1", "-o", "json")).code == 2


@pytest.mark.parametrize(("page", "kind"), [("statusz", "Statusz"), ("flagz", "Flagz")])
async def test_pages_for_people_are_records_on_demand(
    orchctl: Orchctl, api: HttpApi, page: str, kind: str
) -> None:
    path = f"/api/v1/nodes/n1/proxy/{page}"
    api.answers["GET", path] = Answer("nodeagent\nup: 3 s\x1b[1m")
    assert (await orchctl("node", page, "n1")).out == "nodeagent\nup: 3 s\\x1b[1m\n"
    api.answers["GET", path] = Answer({"kind": kind})
    assert json.loads((await orchctl("node", page, "n1", "-o", "json")).out) == {"kind": kind}
    accept = api.requests[-1].headers["Accept"]
    assert accept == f"application/json;v=v1alpha1;g=config.orch.io;as={kind}"


async def test_the_agent_s_configuration_is_shown_without_its_wrapper(
    orchctl: Orchctl, api: HttpApi
) -> None:
    config = {"kind": "NodeAgentConfiguration", "featureGates": {"A": True}}
    api.answers["GET", "/api/v1/nodes/n1/proxy/configz"] = Answer({"nodeagentconfig": config})
    assert (await orchctl("node", "configz", "n1")).lines[0] == "featureGates:"
    result = await orchctl("node", "configz", "node/n1", "-o", "jsonpath={.featureGates.A}")
    assert result.out == "true"


async def test_an_agent_without_the_page_says_so(orchctl: Orchctl, api: HttpApi) -> None:
    api.answers["GET", "/api/v1/nodes/n1/proxy/statusz"] = Answer("404: Not Found", 404)
    result = await orchctl("node", "statusz", "n1")
    assert (result.code, result.err) == (
        1,
        "error: the agent of n1 does not serve statusz: its feature gate ComponentStatusz is off "
        "by default\n",
    )
