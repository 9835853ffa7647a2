from collections.abc import Iterable

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from orch.component.metrics import Registry


def page(registry: Registry, accept: str = "") -> str:
    return registry.render(accept)[0].decode()


def test_help_texts_begin_with_the_stability() -> None:
    registry = Registry()
    registry.counter("nodeagent_things_total", "Things.", ("kind",)).labels("a").inc(2)
    registry.gauge("nodeagent_level", "Level.", stability="STABLE").set(3)
    assert page(registry) == (
        "# HELP nodeagent_things_total [ALPHA] Things.\n"
        "# TYPE nodeagent_things_total counter\n"
        'nodeagent_things_total{kind="a"} 2.0\n'
        "# HELP nodeagent_level [STABLE] Level.\n"
        "# TYPE nodeagent_level gauge\n"
        "nodeagent_level 3.0\n"
    )


def test_a_histogram_has_the_given_bounds_and_no_created_series() -> None:
    registry = Registry()
    registry.histogram("x_seconds", "X.", buckets=(0.1, 1)).observe(0.5)
    assert page(registry) == (
        "# HELP x_seconds [ALPHA] X.\n"
        "# TYPE x_seconds histogram\n"
        'x_seconds_bucket{le="0.1"} 0.0\n'
        'x_seconds_bucket{le="1.0"} 1.0\n'
        'x_seconds_bucket{le="+Inf"} 1.0\n'
        "x_seconds_count 1.0\n"
        "x_seconds_sum 0.5\n"
    )


def test_the_format_follows_the_accept_header() -> None:
    registry = Registry()
    registry.counter("x_total", "X.").inc()
    plain, plain_type = registry.render("text/plain;version=0.0.4")
    assert plain_type == "text/plain; version=0.0.4; charset=utf-8"
    assert b"# EOF" not in plain
    body, content_type = registry.render("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    assert body.endswith(b"# EOF\n")


def test_registries_are_separate() -> None:
    for _ in range(2):
        Registry().gauge("same_name", "X.")


def test_a_collector_computes_when_asked() -> None:
    class Age(Collector):
        value = 0

        def collect(self) -> Iterable[Metric]:
            self.value += 1
            yield GaugeMetricFamily("age", "Age.", value=self.value)

    registry = Registry()
    registry.register(Age())
    assert "age 2.0" in page(registry)  # the first reading named it at registration
    assert "age 3.0" in page(registry)


def test_process_metrics_are_there_when_added() -> None:
    registry = Registry()
    assert page(registry) == ""
    registry.add_process_metrics()
    assert "process_resident_memory_bytes" in page(registry)
    assert "python_gc_collections_total" in page(registry)
