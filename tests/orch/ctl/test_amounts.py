from __future__ import annotations

from typing import Any

import pytest

from orch.ctl import amounts


@pytest.mark.parametrize(
    ("quantity", "text"),
    [
        ("0.5", "500m"), (1, "1"), (0.25, "250m"), ("1500", "1500"), ("2000", "2k"), ("1n", "1n"),
        ("2048Ki", "2Mi"), ("0.5Gi", "512Mi"), ("1.5Ki", "1536"), ("0.1Gi", "107374182400m"),
        ("512", "512"), ("0.25Ki", "256"), ("1e3", "1e3"), ("12E4", "120e3"), ("2e0", "2"),
        ("1E", "1E"), ("0Mi", "0"), ("8135356Ki", "8135356Ki"), ("many", "many"),
    ],
)  # fmt: skip
def test_a_quantity_is_written_in_its_canonical_form(quantity: Any, text: str) -> None:
    assert amounts.canonical(quantity) == text


@pytest.mark.parametrize(
    ("one", "other", "total"),
    [("1Gi", "1G", "2073741824"), ("1G", "1Gi", "2073741824"), ("0", "1Gi", "1Gi"),
     ("500m", "0.5", "1"), ("1Mi", "1023Mi", "1Gi")],
)  # fmt: skip
def test_a_sum_has_the_form_of_what_is_first_not_zero(one: str, other: str, total: str) -> None:
    assert str(amounts.read(one) + amounts.read(other)) == total


def _container(cpu: str, **members: str) -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}, **members}


def _cpu(pod: dict[str, Any], part: amounts.Part = "requests") -> str:
    return str(amounts.of_pod({"spec": pod}, part).get("cpu"))


def test_a_pod_asks_for_its_containers_or_for_its_largest_init_container() -> None:
    two = [_container("1"), _container("500m")]
    assert _cpu({"containers": two}) == "1500m"
    assert (
        _cpu({"containers": two, "initContainers": [_container("1"), _container("1")]}) == "1500m"
    )
    assert _cpu({"containers": two, "initContainers": [_container("2")]}) == "2"


def test_an_init_container_that_goes_on_counts_beside_the_others() -> None:
    sidecar = _container("1", restartPolicy="Always")
    pod = {"containers": [_container("1")], "initContainers": [sidecar, _container("3"), sidecar]}
    assert _cpu(pod) == "4"
    assert _cpu({**pod, "initContainers": [_container("3"), sidecar]}) == "3"


def test_overhead_is_added_to_what_is_bounded() -> None:
    pod = {"containers": [_container("1")], "overhead": {"cpu": "250m", "memory": "1Mi"}}
    requests, limits = (amounts.of_pod({"spec": pod}, part) for part in ("requests", "limits"))
    assert {name: str(amount) for name, amount in requests.items()} == {
        "cpu": "1250m", "memory": "1Mi",
    }  # fmt: skip
    assert {name: str(amount) for name, amount in limits.items()} == {"cpu": "1250m"}


def test_pods_are_added_up_and_what_is_no_quantity_is_left_out() -> None:
    pods = [{"spec": {"containers": [_container(cpu)]}} for cpu in ("1", "2", "many")]
    assert {n: str(a) for n, a in amounts.of_pods(pods, "limits").items()} == {"cpu": "3"}
