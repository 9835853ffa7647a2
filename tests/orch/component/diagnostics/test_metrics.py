from collections.abc import Iterable

import pytest
from prometheus_client import Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from orch.component.diagnostics import metrics
from orch.component.diagnostics.metrics import Registry
from orch.component.flags.stability import Release, read_policy


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
    assert content_type == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert body.endswith(b"# EOF\n")


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("application/openmetrics-text;version=abc", "application/openmetrics-text"),
        ('application/openmetrics-text;version="1.0.0"', "application/openmetrics-text"),
        ("Application/OpenMetrics-Text;version=9.9.9", "application/openmetrics-text"),
        ("application/openmetrics-text;q=0.1,text/plain", "text/plain"),
        ("application/openmetrics-text;q=0", "text/plain"),
        ("text/plain;version=1.x.y", "text/plain"),
    ],
)
def test_the_format_is_one_of_two_for_any_accept_header(accept: str, kind: str) -> None:
    registry = Registry()
    registry.counter("x_y_total", "X.").inc()
    body, content_type = registry.render(accept)
    version = "1.0.0" if kind.startswith("application") else "0.0.4"
    assert content_type == f"{kind}; version={version}; charset=utf-8"
    assert b"\nx_y_total 1.0\n" in body


@pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text;version=1.0.0"])
def test_a_counter_with_a_name_of_its_own_keeps_it(accept: str) -> None:
    registry = Registry()
    registry.counter("x_attempts", "X.", ("a",)).labels("b").inc(2)
    page = registry.render(accept)[0].decode()
    assert '\nx_attempts{a="b"} 2.0\n' in page
    assert "_total" not in page


def test_registries_are_separate() -> None:
    first, second = Registry(), Registry()
    first.gauge("same_name", "X.").set(1)
    second.gauge("same_name", "X.").set(2)
    pages = [one.render("text/plain")[0] for one in (first, second)]
    assert [b"same_name 1.0" in page for page in pages] == [True, False]
    assert b"same_name 2.0" in pages[1]


def test_a_collector_computes_when_rendered() -> None:
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


def test_a_promised_name_has_the_tier_of_the_catalogue() -> None:
    registry = Registry()
    registry.counter("node_collector_evictions_total", "Evictions.")
    registry.gauge("orch_feature_enabled", "Features.")
    assert "# HELP node_collector_evictions_total [STABLE] Evictions." in page(registry)
    assert "# HELP orch_feature_enabled [BETA] Features." in page(registry)


class Computed(Collector):
    def collect(self) -> Iterable[Metric]:
        users = CounterMetricFamily("x_requests", "[BETA] Requests.", labels=["user"])
        for user, count in (("a", 1), ("b", 2), ("c", 3)):
            users.add_metric([user], count)
        yield users
        yield GaugeMetricFamily("x_age", "[ALPHA] Age.", value=7)


def test_the_page_counts_shown_hidden_and_disabled_metrics() -> None:
    policy = read_policy(disabled=["x_age", "x_off_total"], current=Release(1, 35))
    registry = Registry(policy)
    registry.register(Computed())
    registry.counter("x_off_total", "Off.").inc()
    registry.gauge("x_new", "New.", deprecated="1.36.0").set(1)
    registry.gauge("x_old", "Old.", deprecated="1.34.0").set(1)
    registry.histogram("x_long_seconds", "Long.", stability="STABLE", deprecated="1.33.0")
    text = page(registry)
    assert "x_age" not in text
    assert "x_off" not in text
    assert "x_old" not in text
    assert "# HELP x_new [ALPHA] (Deprecated since 1.36.0) New." in text
    assert "x_long_seconds_count" in text
    assert 'registered_metrics_total{deprecated_version="",stability_level="BETA"} 1.0' in text
    assert (
        'registered_metrics_total{deprecated_version="1.36.0",stability_level="ALPHA"} 1.0' in text
    )
    assert (
        'registered_metrics_total{deprecated_version="1.33.0",stability_level="STABLE"} 1.0' in text
    )
    assert "# HELP disabled_metrics_total [BETA]" in text
    assert "disabled_metrics_total 2.0" in text
    assert "hidden_metrics_total 1.0" in text
    assert page(registry) == text


def test_hidden_metrics_can_be_shown_for_one_more_release() -> None:
    registry = Registry(read_policy(show_hidden_for="1.34", current=Release(1, 35)))
    registry.gauge("x_old", "Old.", deprecated="1.34.0").set(1)
    assert "x_old 1.0" in page(registry)


@pytest.mark.parametrize("named", [True, False])
def test_a_label_value_outside_its_list_is_unexpected_and_counted(named: bool) -> None:
    registry = Registry(read_policy(allowed_labels={"x_total,user": "a,b", "y_seconds,k": "z"}))
    counter = registry.counter("x_total", "X.", ("verb", "user"))
    for user in ("a", "c", "d"):
        (counter.labels(verb="get", user=user) if named else counter.labels("get", user)).inc()
    registry.histogram("y_seconds", "Y.", ("k",)).labels("odd").observe(1)
    text = page(registry)
    assert 'x_total{user="a",verb="get"} 1.0' in text
    assert 'x_total{user="unexpected",verb="get"} 2.0' in text
    assert 'y_seconds_count{k="unexpected"} 1.0' in text
    assert "cardinality_enforcement_unexpected_categorizations_total 3.0" in text


def test_computed_series_that_become_one_are_added_up() -> None:
    registry = Registry(read_policy(allowed_labels={"x_requests_total,user": "a"}))
    registry.register(Computed())
    text = page(registry)
    assert 'x_requests_total{user="a"} 1.0' in text
    assert 'x_requests_total{user="unexpected"} 5.0' in text


def test_a_computed_family_has_its_series_in_order_and_its_bounds_in_short() -> None:
    histogram = Histogram("x_seconds", "X.", ("k",), registry=None, buckets=(0.1953125, 1, 5000))
    histogram.labels("b").observe(2)
    histogram.labels("a").observe(1)
    family = metrics.computed(histogram)
    assert [tuple(sample.labels.values()) for sample in family.samples] == [
        *(("a", bound) for bound in ("0.195312", "1", "5000", "+Inf")), ("a",), ("a",),
        *(("b", bound) for bound in ("0.195312", "1", "5000", "+Inf")), ("b",), ("b",),
    ]  # fmt: skip
