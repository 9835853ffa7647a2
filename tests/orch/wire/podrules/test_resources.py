"""K:pkg/apis/core/validation TestValidateResourceRequirements and the tables about huge pages."""

from __future__ import annotations

from typing import Any

import pytest

from tests.orch.wire.podrules.podtable import AT, assert_refused, container, refusals

GPU, PAGES = "example.com/gpu", "hugepages-2Mi"


@pytest.mark.parametrize(
    ("limits", "requests", "found"),
    [
        ({}, {}, []),
        ({"cpu": "1", "memory": "1Gi"}, {"cpu": "1000m"}, []),
        ({"cpu": 0.5, "ephemeral-storage": 1}, {"cpu": "0"}, []),
        ({}, {"cpu": "2", "memory": "1e9"}, []),
        ({GPU: 1}, {GPU: "1"}, []),
        ({GPU: 1}, {}, []),
        ({"cpu": 1, PAGES: "4Mi"}, {PAGES: "4Mi"}, []),
        ({"kubernetes.io/x": "1500m"}, {"kubernetes.io/x": "1"}, []),
        ({"cpu": "lots"}, {"cpu": 2}, ['limits[cpu]: Invalid value: "lots"']),
        ({}, {"memory": "-1"}, ['requests[memory]: Invalid value: "-1": must be greater than or']),
        ({"gpu": 1}, {}, ['limits[gpu]: Invalid value: "gpu": must be a standard resource for']),
        ({"a/b/c": 1}, {}, ['limits[a/b/c]: Invalid value: "a/b/c": a qualified name must']),
        ({}, {"requests.a/b": 1}, ["limits: Required", "requests[requests.a/b]: Invalid value"]),
        ({GPU: "500m"}, {}, [f'limits[{GPU}]: Invalid value: "500m": must be an integer']),
        ({}, {GPU: 1}, ["limits: Required value: Limit must be set for non overcommitable"]),
        ({GPU: 2}, {GPU: 1}, [f"requests: Invalid value: 1: must be equal to {GPU} limit of 2"]),
        (
            {"memory": "1Gi"},
            {"memory": "2Gi"},
            ['requests: Invalid value: "2Gi": must be less than or equal to memory limit of 1Gi'],
        ),
        ({"cpu": 1, PAGES: "3Mi"}, {}, [f'limits[{PAGES}]: Invalid value: "3Mi": it is not pos']),
        ({"cpu": 1, "hugepages-x": 1}, {}, ["limits[hugepages-x]: Invalid value: 1: it is not"]),
        ({PAGES: "2Mi"}, {PAGES: "2Mi"}, [": Forbidden: HugePages require cpu or memory"]),
        (
            {"cpu": 1, PAGES: "4Mi"},
            {PAGES: "2Mi"},
            ['requests: Invalid value: "2Mi": must be equal to hugepages-2Mi limit of 4Mi'],
        ),
    ],
)
def test_amounts_fit_their_resource_and_one_another(
    limits: dict[str, Any], requests: dict[str, Any], found: list[str]
) -> None:
    texts = refusals(container(resources={"limits": limits, "requests": requests}))
    at = f"{AT}.resources"
    assert_refused(texts, *(at + text if text[0] == ":" else f"{at}.{text}" for text in found))


@pytest.mark.parametrize(
    ("claims", "found"),
    [
        ([{"name": "c"}], ['[0]: Not found: "c"']),
        ([{"name": ""}], ["[0]: Required value"]),
    ],
)
def test_a_container_s_claims_are_refused_since_pods_have_none(
    claims: list[dict[str, str]], found: list[str]
) -> None:
    document = container(resources={"claims": claims})
    assert_refused(refusals(document), *(f"{AT}.resources.claims{text}" for text in found))
