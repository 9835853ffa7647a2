from __future__ import annotations

from typing import Any

import pytest

from orch.ctl import describe_environment, sheet

POD = {"metadata": {"name": "web", "namespace": "d", "labels": {"a": "b"}}}


def _lines(**container: Any) -> list[str]:
    return sheet.aligned(describe_environment.lines(POD, container)).splitlines()


def test_values_and_where_they_come_from() -> None:
    name, address = (
        {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}
        for path in ("metadata.name", "status.podIP")
    )
    mode = {"name": "c", "key": "m", "optional": True}
    env = [
        {"name": "A", "value": "1"},
        {"name": "LINES", "value": "one\ntwo"},
        {"name": "POD", "valueFrom": name},
        {"name": "IP", "valueFrom": address},
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        {"name": "MODE", "valueFrom": {"configMapKeyRef": mode}},
        {"name": "ODD", "valueFrom": {"fileKeyRef": {}}},
    ]
    assert _lines(env=env) == [
        "    Environment:",
        "      A:      1",
        "      LINES:  one",
        "              two",
        "      POD:    web (v1:metadata.name)",
        "      IP:      (v1:status.podIP)",
        "      KEY:    <set to the key 'k' in secret 's'>      Optional: false",
        "      MODE:   <set to the key 'm' of config map 'c'>  Optional: true",
    ]
    assert _lines() == ["    Environment:  <none>"]


def test_whole_objects_become_variables() -> None:
    sources = [{"configMapRef": {"name": "c"}},
               {"prefix": "P_", "secretRef": {"name": "s", "optional": True}}]  # fmt: skip
    assert _lines(envFrom=sources) == [
        "    Environment Variables from:",
        "      c           ConfigMap                Optional: false",
        "      s           Secret with prefix 'P_'  Optional: true",
        "    Environment:  <none>",
    ]


@pytest.mark.parametrize(
    ("resource", "divisor", "told"),
    [
        ("requests.cpu", None, "1"), ("requests.cpu", "1m", "250"), ("limits.memory", "1Mi", "129"),
        ("limits.cpu", None, "node allocatable"), ("requests.memory", "0", "0"),
        ("requests.hugepages-2Mi", "1Mi", "4"), ("requests.hugepages-2Mi", "1m", "4194304"),
        ("cpu", None, ""),
    ],
)  # fmt: skip
def test_an_amount_is_in_units_of_its_divisor_rounded_up(
    resource: str, divisor: str | None, told: str
) -> None:
    reference = {"resource": resource, **({"divisor": divisor} if divisor else {})}
    resources = {"requests": {"cpu": "250m", "hugepages-2Mi": "4Mi"},
                 "limits": {"memory": "128.5Mi"}}  # fmt: skip
    env = [{"name": "X", "valueFrom": {"resourceFieldRef": reference}}]
    assert _lines(env=env, resources=resources)[1] == f"      X:  {told} ({resource})"
