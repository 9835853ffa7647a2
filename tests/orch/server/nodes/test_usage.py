from __future__ import annotations

from datetime import UTC, datetime

import pytest

from orch.server.nodes import usage
from orch.server.nodes.usage import NODE, Amount, Reading

PAGE = """# HELP node_cpu_usage_seconds_total [STABLE] CPU
# TYPE node_cpu_usage_seconds_total counter
node_cpu_usage_seconds_total 100.5 1767268800000
node_memory_working_set_bytes 2.097152e+06 1767268800000
container_cpu_usage_seconds_total{container="c",namespace="shop",pod="web"} 1.25 1767268799000
container_memory_working_set_bytes{container="c",namespace="shop",pod="web"} 4096 1767268799000
container_memory_working_set_bytes{container="odd\\"name",namespace="x",pod="y"} 1 1767268799000
resource_scrape_error 0
garbage {{{ 1 2
node_cpu_usage_seconds_total NaN 1767268800000
"""
C = ("shop", "web", "c")
NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


def test_a_page_is_read() -> None:
    reading = usage.parse_page(PAGE)
    assert reading.cpu == {NODE: Amount(100.5, 1767268800000), C: Amount(1.25, 1767268799000)}
    assert reading.memory_bytes[NODE] == 2097152
    assert reading.memory_bytes[C] == 4096


@pytest.mark.parametrize(
    ("before", "now", "cores"),
    [
        (Amount(10, 0), Amount(25, 10_000), 1.5),
        (Amount(10, 0), Amount(10, 10_000), 0.0),
        (Amount(10, 0), Amount(3, 10_000), None),  # began anew
        (Amount(10, 10_000), Amount(10, 10_000), None),  # the same sample twice
        (None, Amount(3, 10_000), None),
    ],
)
def test_a_rate_takes_two_readings_of_one_counter(
    before: Amount | None, now: Amount, cores: float | None
) -> None:
    first = Reading({C: before} if before else {}, {})
    found = usage.usages(first, Reading({C: now}, {C: 1}))
    assert (found[C].cpu_cores if C in found else None) == cores


def test_without_memory_nothing_is_told() -> None:
    assert usage.usages(Reading({C: Amount(0, 0)}), Reading({C: Amount(1, 1000)})) == {}


def test_records_have_the_shape_that_top_reads() -> None:
    before = Reading({C: Amount(1, 0)}, {})
    used = usage.usages(before, Reading({C: Amount(1.25, 15_000)}, {C: 5000}))[C]
    pod = {"metadata": {"name": "web", "namespace": "shop", "labels": {"a": "b"}, "uid": "u"}}
    assert usage.pod_record(pod, {"c": used}, NOW) == {
        "kind": "PodMetrics",
        "apiVersion": "metrics.k8s.io/v1beta1",
        "metadata": {
            "name": "web",
            "namespace": "shop",
            "labels": {"a": "b"},
            "creationTimestamp": "2026-01-01T12:00:00Z",
        },
        "timestamp": "1970-01-01T00:00:15Z",
        "window": "15.000s",
        "containers": [{"name": "c", "usage": {"cpu": "16666667n", "memory": "4Ki"}}],
    }
    assert usage.pod_record(pod, {}, NOW) is None
    assert usage.node_record(pod, used, NOW)["usage"]["memory"] == "4Ki"
