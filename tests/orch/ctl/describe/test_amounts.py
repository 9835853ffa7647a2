"""The canonical texts are those of apimachinery `api/resource/quantity_test.go`."""

from __future__ import annotations

from typing import Any

import pytest

from orch.ctl.describe import amounts
from orch.ctl.describe.amounts import Part


@pytest.mark.parametrize(
    ("quantity", "text"),
    [
        ("0.5", "500m"), (1, "1"), (0.25, "250m"), ("1500", "1500"), ("2000", "2k"),
        ("2048Ki", "2Mi"), ("0.5Gi", "512Mi"), ("100Gi", "100Gi"), ("512", "512"),
        ("0.25Ki", "256"), ("1e3", "1k"), ("0.1Gi", "107374182400m"), ("0", "0"), ("x", "x"),
    ],
)  # fmt: skip
def test_a_quantity_is_written_in_its_canonical_form(quantity: Any, text: str) -> None:
    assert amounts.canonical(quantity) == text


def _container(cpu: Any, **members: Any) -> dict[str, Any]:
    wanted = {"cpu": cpu, "memory": f"{cpu}Mi"}
    return {"resources": {"requests": wanted, "limits": {"cpu": cpu}}, **members}


def _sums(part: Part, *pods: dict[str, Any]) -> dict[str, str]:
    found = amounts.of_pods([{"spec": pod} for pod in pods], part)
    return {name: amounts.text(name, milli) for name, milli in found.items()}


def test_pods_request_the_sum_of_their_containers() -> None:
    pods = [{"containers": [_container(cpu), _container("1")]} for cpu in ("1", "2", "many")]
    assert _sums("requests", *pods) == {"cpu": "6", "memory": "6Mi"}
    assert _sums("limits", *pods) == {"cpu": "6"}


def test_a_large_init_container_counts_instead() -> None:
    pod = {"containers": [_container(2)], "initContainers": [_container(1), _container(4)]}
    assert _sums("requests", pod) == {"cpu": "4", "memory": "4Mi"}
    small = {"containers": [_container(2)], "initContainers": [_container(1)]}
    assert _sums("requests", small) == {"cpu": "2", "memory": "2Mi"}


def test_a_sidecar_counts_beside_the_others() -> None:
    always = _container(1, restartPolicy="Always")
    pod = {"containers": [_container(2)], "initContainers": [_container(4), always]}
    assert _sums("requests", pod)["cpu"] == "4"
    pod = {"containers": [_container(2)], "initContainers": [always, _container(4)]}
    assert _sums("requests", pod)["cpu"] == "5"
    pod = {"containers": [_container(2)], "initContainers": [always, always]}
    assert _sums("requests", pod)["cpu"] == "4"


def test_overhead_is_added_to_what_is_limited() -> None:
    pod = {"containers": [_container("1")], "overhead": {"cpu": "250m", "memory": "1Mi"}}
    assert _sums("requests", pod) == {"cpu": "1250m", "memory": "2Mi"}
    assert _sums("limits", pod) == {"cpu": "1250m"}
