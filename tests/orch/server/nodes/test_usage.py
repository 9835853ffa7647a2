from __future__ import annotations

import time
import timeit
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from orch.server.nodes import usage
from orch.server.nodes.usage import NODE, Amount, PageReader, Reading

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


def read(*pieces: bytes) -> Reading:
    page = PageReader()
    for piece in pieces:
        page.feed(piece)
    return page.end()


@pytest.mark.parametrize("size", [1, 7, 64, 100_000])
def test_a_page_is_read_however_it_arrives(size: int) -> None:
    sent = PAGE.encode()
    reading = read(*(sent[at : at + size] for at in range(0, len(sent), size)))
    assert reading.cpu == {NODE: Amount(100.5, 1767268800000), C: Amount(1.25, 1767268799000)}
    assert reading.memory_bytes[NODE] == 2097152
    assert reading.memory_bytes[C] == 4096


@pytest.mark.parametrize(
    ("pieces", "what"),
    [
        ([b"x" * 2049], "2048 bytes in a line"),
        ([b"x" * 2000, b"x" * 2000], "2048 bytes in a line"),
        ([b"\n" * 10_000] * 6, "50000 lines"),
        ([(b"#" * 2000 + b"\n") * 500] * 5, "4194304 bytes"),
        ([b"\n"] * 20_001, "20000 pieces"),
    ],
)
def test_a_page_that_no_agent_sends_is_refused(pieces: list[bytes], what: str) -> None:
    with pytest.raises(ValueError, match=f"the page has more than ({what})"):
        read(*pieces)


@pytest.mark.parametrize(
    "line",
    [
        "node_memory_working_set_bytes 1e999 1767268800000",
        "node_memory_working_set_bytes -1 1767268800000",
        "node_memory_working_set_bytes 1.2.3 1767268800000",
        "node_cpu_usage_seconds_total 1e999 1767268800000",
        "node_cpu_usage_seconds_total -1 1767268800000",
        "node_cpu_usage_seconds_total 1 99999999999999",  # after the year 9999
        'node_cpu_usage_seconds_total{a="b" 1 1767268800000',
        "xnode_cpu_usage_seconds_total 1 1767268800000",
    ],
)
def test_numbers_that_cannot_be_are_skipped(line: str) -> None:
    assert read(line.encode()) == Reading({}, {})


HOSTILE = {
    "braces": lambda size: b"node_cpu_usage_seconds_total{" + b"}" * size,
    "word": lambda size: b"node_cpu_usage_seconds_total{" + b"a" * size + b"} 1 1",
    "quotes": lambda size: b'node_cpu_usage_seconds_total{a="' + b'\\"' * (size // 2),
    "labels": lambda size: b"node_cpu_usage_seconds_total{" + b'a="",' * (size // 5) + b"} 1 1",
    "digits": lambda size: b"node_cpu_usage_seconds_total " + b"1" * size + b" 1",
}


@pytest.mark.parametrize("line", HOSTILE.values(), ids=HOSTILE)
def test_hostile_lines_take_time_in_proportion_to_their_length(
    line: Callable[[int], bytes],
) -> None:
    def took_s(size: int, count: int) -> float:
        page = b"\n".join([line(size)] * count)
        return min(timeit.repeat(lambda: read(page), number=1, repeat=5, timer=time.process_time))

    long_s, short_s = took_s(1900, 300), took_s(190, 3000)
    assert long_s < 5 * short_s + 0.001, f"{long_s * 1000:.1f} ms against {short_s * 1000:.1f} ms"


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
    assert usage.pod_record("metrics.k8s.io/v1", pod, {"c": used}, NOW) == {
        "kind": "PodMetrics",
        "apiVersion": "metrics.k8s.io/v1",
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
    assert usage.pod_record("v", pod, {}, NOW) is None
    assert usage.node_record("v", pod, used, NOW)["usage"]["memory"] == "4Ki"
