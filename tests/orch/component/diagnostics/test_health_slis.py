from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families

from orch.component.diagnostics.health import SliMetrics

START = (
    "# HELP process_start_time_seconds [ALPHA] Start time of the process since unix epoch in"
    " seconds.\n"
    "# TYPE process_start_time_seconds gauge\n"
    "process_start_time_seconds 1700000000.25\n"
)


def metrics() -> SliMetrics:
    return SliMetrics(process_start_s=1_700_000_000.25)


def test_before_the_first_health_request_only_the_start_time_is_there() -> None:
    assert metrics().render().decode() == START


def test_the_golden_page_after_one_error_and_one_success() -> None:
    slis = metrics()
    slis.record("healthcheck-a", "healthz", False)
    slis.record("healthcheck-a", "healthz", True)
    assert slis.render().decode() == (
        "# HELP orch_healthcheck [ALPHA] This metric records the result of a single healthcheck.\n"
        "# TYPE orch_healthcheck gauge\n"
        'orch_healthcheck{name="healthcheck-a",type="healthz"} 1\n'
        "# HELP orch_healthchecks_total [STABLE] This metric records the results of all"
        " healthcheck.\n"
        "# TYPE orch_healthchecks_total counter\n"
        'orch_healthchecks_total{name="healthcheck-a",status="error",type="healthz"} 1\n'
        'orch_healthchecks_total{name="healthcheck-a",status="success",type="healthz"} 1\n' + START
    )


def test_a_failing_check_shows_0() -> None:
    slis = metrics()
    slis.record("log", "healthz", True)
    slis.record("log", "healthz", False)
    assert b'orch_healthcheck{name="log",type="healthz"} 0\n' in slis.render()


def test_endpoints_are_counted_apart_and_the_page_parses() -> None:
    slis = metrics()
    for endpoint, ok in (("readyz", False), ("healthz", True), ("readyz", False)):
        slis.record("etcd", endpoint, ok)
    families = {f.name: f for f in text_string_to_metric_families(slis.render().decode())}
    assert {tuple(s.labels.items()): s.value for s in families["orch_healthcheck"].samples} == {
        (("name", "etcd"), ("type", "healthz")): 1,
        (("name", "etcd"), ("type", "readyz")): 0,
    }
    assert [(s.labels["status"], s.value) for s in families["orch_healthchecks"].samples] == [
        ("error", 2),
        ("success", 1),
    ]


def test_the_page_is_openmetrics_for_who_prefers_that() -> None:
    slis = metrics()
    slis.record("ping", "healthz", True)
    page = slis.render(openmetrics=True).decode()
    families = {family.name: family for family in openmetrics(page)}
    assert families["orch_healthchecks"].type == "counter"
    assert families["orch_healthchecks"].samples[0].name == "orch_healthchecks_total"
    assert families["orch_healthcheck"].samples[0].value == 1
    assert "process_start_time_seconds" in families


def test_a_reset_empties_the_page() -> None:
    slis = metrics()
    slis.record("ping", "healthz", True)
    slis.reset()
    assert slis.render().decode() == START
