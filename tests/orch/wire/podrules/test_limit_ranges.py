"""pkg/apis/core/validation, plugin/pkg/admission/limitranger/admission_test.go."""

from __future__ import annotations

from typing import Any

import pytest

from orch.wire.podrules import limit_ranges as rules


def a_range(*items: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"limits": list(items)}}


def container(**amounts: Any) -> dict[str, Any]:
    return {"type": "Container", **amounts}


@pytest.mark.parametrize(
    ("items", "fields"),
    [
        ([container(max={"cpu": "2"}, min={"cpu": 1}), {"type": "Pod", "max": {"cpu": "4"}}], []),
        ([container(max={"cpu": "1"}, min={"cpu": "2"})], ["min[cpu]"]),
        ([container(min={"cpu": "2"}, defaultRequest={"cpu": "1"})], ["defaultRequest[cpu]"]),
        ([container(max={"cpu": "1"}, default={"cpu": "2"})], ["default[cpu]"]),
        ([container(default={"cpu": "1"}, defaultRequest={"cpu": "2"})], ["defaultRequest[cpu]"]),
        ([container(maxLimitRequestRatio={"cpu": "0.5"})], ["maxLimitRequestRatio[cpu]"]),
        ([container(min={"cpu": "1"}, max={"cpu": "2"}, maxLimitRequestRatio={"cpu": "3"})],
         ["maxLimitRequestRatio[cpu]"]),
        ([container(max={"cpu": "many"})], ["max[cpu]"]),
        ([container(max={"a b": "1"})], ["max[a b]"]),
        ([container(max={f"example.com/r{n}": 1 for n in range(17)})], ["max"]),
        ([{"type": "Pod", "default": {"cpu": "1"}}], ["default"]),
        ([{"type": "Other"}], ["type"]),
        ([{"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}], []),
        ([{"type": "PersistentVolumeClaim"}], ["limits"]),
    ],
)  # fmt: skip
def test_a_range_must_not_contradict_itself(items: list[Any], fields: list[str]) -> None:
    found = [cause.field for cause in rules.range_causes(a_range(*items))]
    assert [field.removeprefix("spec.limits[0].") for field in found] == fields


def test_a_type_stands_once() -> None:
    causes = list(rules.range_causes(a_range(container(), container())))
    assert [cause.field for cause in causes] == ["spec.limits[1].type"]


def test_defaults_follow_from_bounds() -> None:
    """pkg/apis/core/v1/defaults.go SetDefaults_LimitRangeItem"""
    made = a_range(container(max={"cpu": "2", "memory": "1Gi"}, min={"cpu": "1", "gpu": "1"},
                             default={"memory": "512Mi"}))  # fmt: skip
    rules.complete(made)
    (item,) = made["spec"]["limits"]
    assert item["default"] == {"cpu": "2", "memory": "512Mi"}
    assert item["defaultRequest"] == {"cpu": "2", "gpu": "1", "memory": "512Mi"}
    pod = {"type": "Pod", "max": {"cpu": "2"}}
    whole = a_range(pod)
    rules.complete(whole)
    assert whole["spec"]["limits"] == [pod]


def test_containers_get_what_they_do_not_name() -> None:
    spec: dict[str, Any] = {
        "containers": [{"name": "a"}, {"name": "b", "resources": {"limits": {"cpu": "3"}}}],
        "initContainers": [{"name": "i"}],
    }
    first = a_range(container(default={"cpu": "1"}, defaultRequest={"cpu": "500m"}))
    second = a_range(container(default={"cpu": "9", "memory": "1Gi"}))
    told = rules.give_defaults(spec, [first, second])
    a, b = spec["containers"]
    assert a["resources"] == {
        "requests": {"cpu": "500m"}, "limits": {"cpu": "1", "memory": "1Gi"},
    }  # fmt: skip
    assert b["resources"]["limits"] == {"cpu": "3", "memory": "1Gi"}
    assert spec["initContainers"][0]["resources"]["requests"] == {"cpu": "500m"}
    assert told == (
        "LimitRanger plugin set: cpu request for container a; cpu, memory limit for container a;"
        " cpu request for container b; memory limit for container b; cpu request for init container"
        " i; cpu, memory limit for init container i"
    )
    assert rules.give_defaults(spec, [first, second]) == ""


@pytest.mark.parametrize(
    ("item", "requests", "limits", "said"),
    [
        ({"min": {"cpu": "1"}}, {"cpu": "1"}, {}, ""),
        ({"min": {"cpu": "1"}}, {}, {"cpu": "2"},
         "minimum cpu usage per Container is 1.  No request is specified"),
        ({"min": {"cpu": "1"}}, {"cpu": "999m"}, {},
         "minimum cpu usage per Container is 1, but request is 999m"),
        ({"max": {"memory": "1Gi"}}, {}, {"memory": "1Gi"}, ""),
        ({"max": {"memory": "1Gi"}}, {"memory": "1Gi"}, {},
         "maximum memory usage per Container is 1Gi.  No limit is specified"),
        ({"max": {"memory": "1Gi"}}, {}, {"memory": "1025Mi"},
         "maximum memory usage per Container is 1Gi, but limit is 1025Mi"),
        ({"maxLimitRequestRatio": {"cpu": 2}}, {"cpu": "1"}, {"cpu": "2"}, ""),
        ({"maxLimitRequestRatio": {"cpu": 2}}, {"cpu": "1"}, {"cpu": "3"},
         "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000"),
        ({"maxLimitRequestRatio": {"cpu": 2}}, {"cpu": 0}, {"cpu": "3"},
         "cpu max limit to request ratio per Container is 2,"
         " but no request is specified or request is 0"),
        ({"maxLimitRequestRatio": {"cpu": 2}}, {"cpu": 1}, {},
         "cpu max limit to request ratio per Container is 2,"
         " but no limit is specified or limit is 0"),
    ],
)  # fmt: skip
def test_sizes_stay_within_bounds(
    item: dict[str, Any], requests: dict[str, Any], limits: dict[str, Any], said: str
) -> None:
    assert list(rules.problems([item], "Container", requests, limits)) == ([said] if said else [])
