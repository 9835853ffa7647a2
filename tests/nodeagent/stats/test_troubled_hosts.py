"""Captured hosts on which something is wrong: every page is made, and holds nothing that is untrue.

A page is the summary, and both metric pages in both formats. What the kernel does not say, or says
in a way that makes no sense, is absent from all of them; the rest is there.
"""

from __future__ import annotations

import errno
import functools
import os
import random
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from nodeagent.metrics.containerstats import render_container_metrics
from nodeagent.metrics.resource import render_resource_metrics
from nodeagent.stats.cgroup.layout import Pread
from nodeagent.stats.cgroup.values import UINT64_MAX
from nodeagent.stats.reading import HostReader
from nodeagent.stats.samples import Sample
from nodeagent.stats.sources import Background
from nodeagent.stats.summary import build_summary
from tests.examples import examples
from tests.fakes import hosts
from tests.fakes.hosts import LAYOUTS, POD, Clock

pytestmark = pytest.mark.slow

ABSURD = [
    b"",
    b"\n",
    b"max\n",
    b"-1\n",
    b"18446744073709551615\n",
    b"18446744073709551616\n",
    b"1e400\n",
    b"usage_usec 18446744073709551615\nuser_usec -5\nsystem_usec x\n",
    b"anon 99999999999999999999999\ninactive_file 1\nnew_key 7\n",
    b"some avg10=nan avg60=inf avg300=-1 total=1\nfull avg10=1\n",
    b"some avg10=0.00 avg60=0.00 avg300=0.00 total=18446744073709551615 new=1\n",
    b"8:0 rbytes=1 wbytes=x rios= future=9\nnot a device\n",
    b"\xff\xfe\x00" * 50,
    b"1" * 5000,
]


def pages_of(reader: HostReader, base: Sample | None = None) -> tuple[Sample, dict[str, Any]]:
    """The sample and its summary; every other page is rendered and parsed."""
    sample = reader.read([POD])
    body = orjson.dumps(build_summary(sample, base, node_name="n"))
    for is_openmetrics in (False, True):
        for render in (render_container_metrics, render_resource_metrics):
            parse(render(sample, openmetrics=is_openmetrics).decode(), is_openmetrics)
    summary: dict[str, Any] = orjson.loads(body)
    for name, number in numbers_in(summary):
        assert 0 <= number <= UINT64_MAX, name
    return sample, summary


@functools.cache  # many contents lead to the same page
def parse(page: str, is_openmetrics: bool) -> None:
    for family in (openmetrics if is_openmetrics else prometheus)(page):
        for line in family.samples:
            assert 0 <= line.value <= float(UINT64_MAX), line


def numbers_in(value: Any, name: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from numbers_in(inner, f"{name}.{key}")
    elif isinstance(value, list):
        for inner in value:
            yield from numbers_in(inner, name)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield name, value


def reader_of(root: Path, clock: Clock | None = None, pread: Pread = os.pread) -> HostReader:
    sources = hosts.sources(root, wall_ns=clock or Clock(), pread=pread)
    return HostReader(sources, Background(sources))


def texts_of(summary: dict[str, Any]) -> str:
    return orjson.dumps(summary).decode()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_kernel_without_pressure_has_none_anywhere(layout: str, tmp_path: Path) -> None:
    root = hosts.copy(layout, tmp_path)
    for path in root.rglob("*.pressure"):
        path.unlink()
    shutil.rmtree(root / "proc/pressure", ignore_errors=True)
    reader = reader_of(root)
    sample, summary = pages_of(reader)
    assert "psi" not in texts_of(summary)
    assert b"pressure" not in render_container_metrics(sample)
    assert set(reader.psi.values()) == {"absent"}
    assert not sample.errors, "a kernel without pressure is no error"
    assert summary["pods"][0]["containers"][0]["memory"]["workingSetBytes"] > 0
    reader.close()


@pytest.mark.parametrize("layout", ["hybrid", "v2"])
def test_disabled_pressure_is_absent_and_everything_else_complete(
    layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = reader_of(hosts.copy(layout, tmp_path))
    _, whole = pages_of(reader)
    reader.close()
    real_pread, real_open = os.pread, Path.open

    def pread(fd: int, size: int, offset: int) -> bytes:
        if os.readlink(f"/proc/self/fd/{fd}").endswith(".pressure"):
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        return real_pread(fd, size, offset)

    def open_(self: Path, *arguments: Any, **more: Any) -> Any:
        if self.parent.name == "pressure":
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        return real_open(self, *arguments, **more)

    monkeypatch.setattr(Path, "open", open_)
    reader = reader_of(tmp_path / layout, pread=pread)
    sample, summary = pages_of(reader)
    assert set(reader.psi.values()) == {"disabled"}
    assert not sample.errors
    container, before = (s["pods"][0]["containers"][0] for s in (summary, whole))
    for part in ("cpu", "memory"):
        before[part].pop("psi")
        assert container[part] == before[part]
    assert "psi" not in texts_of(summary)
    reader.close()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("number", [errno.ENODEV, errno.EIO])
def test_a_file_that_fails_in_the_middle_of_a_pass_loses_only_its_own_numbers(
    layout: str, number: int, tmp_path: Path
) -> None:
    total, failing = 0, -1

    def pread(fd: int, size: int, offset: int) -> bytes:
        nonlocal total
        total += 1
        if total == failing:
            raise OSError(number, "in the middle")
        return os.pread(fd, size, offset)

    reader = reader_of(hosts.copy(layout, tmp_path), pread=pread)
    pages_of(reader)
    total = 0
    pages_of(reader)
    reads = total
    for failing in range(1, reads + 1, 2):  # noqa: B007
        total = 0
        _, summary = pages_of(reader)
        (pod,) = summary["pods"]
        assert pod["podRef"]["name"] == POD.name
        assert pod["containers"] == [] or pod["containers"][0]["name"] == "web"
    total, failing = 0, -1
    _, summary = pages_of(reader)
    assert summary["pods"][0]["containers"][0]["memory"]["workingSetBytes"] > 0
    reader.close()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_content_of_any_file_breaks_a_page(layout: str, tmp_path: Path) -> None:
    root = hosts.copy(layout, tmp_path)
    both = (*root.glob("cgroup/**/4f1c2d/*"), *root.glob("cgroup/*"), *root.glob("proc/**/*"))
    files = sorted(path for path in both if path.is_file())
    random_ = random.Random(layout)
    for path in files:
        content = path.read_bytes()
        for absurd in (*random_.sample(ABSURD, 2), content[: len(content) // 2]):
            path.write_bytes(absurd)
            reader = reader_of(root)
            pages_of(reader)
            reader.close()
        path.write_bytes(content)


class Tree:
    """One tree for all examples of a property; a file that was changed is put back."""

    def __init__(self, layout: str) -> None:
        self.directory = tempfile.mkdtemp()
        self.root = hosts.copy(layout, Path(self.directory))
        self.files = sorted(path for path in self.root.glob("cgroup/**/4f1c2d/*") if path.is_file())


@pytest.fixture(scope="module")
def trees() -> Iterator[dict[str, Tree]]:
    trees = {layout: Tree(layout) for layout in LAYOUTS}
    yield trees
    for tree in trees.values():
        shutil.rmtree(tree.directory)


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    st.sampled_from(LAYOUTS),
    st.integers(0, 1000),
    st.one_of(
        st.binary(max_size=300),
        st.text(alphabet="0123456789 .=\n:abcdefmoxsu_-", max_size=200).map(str.encode),
        st.integers(-(2**65), 2**65).map(lambda number: f"{number}\n".encode()),
    ),
)
def test_pages_survive_any_content_of_a_container_s_file(
    trees: dict[str, Tree], layout: str, which: int, content: bytes
) -> None:
    tree = trees[layout]
    path = tree.files[which % len(tree.files)]
    good = path.read_bytes()
    path.write_bytes(content)
    try:
        reader = reader_of(tree.root)
        _, summary = pages_of(reader)
        assert summary["node"]["nodeName"] == "n"
        reader.close()
    finally:
        path.write_bytes(good)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_counters_that_go_backwards_yield_no_rate_and_are_reported_unchanged(
    layout: str, tmp_path: Path
) -> None:
    root, clock = hosts.copy(layout, tmp_path), Clock()
    reader = reader_of(root, clock)
    base, _ = pages_of(reader)
    for path in root.rglob("*"):
        if path.name in ("cpu.stat", "cpuacct.usage") and "4f1c2d" in str(path):
            path.write_bytes(re.sub(rb"\d+", b"1", path.read_bytes()))
    clock.advance(10)
    _, summary = pages_of(reader, base)
    cpu = summary["pods"][0]["containers"][0]["cpu"]
    assert "usageNanoCores" not in cpu
    assert cpu["usageCoreNanoSeconds"] in (1, 1000)
    assert "usageNanoCores" in summary["pods"][0]["cpu"], "only the container was restarted"
    reader.close()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_kernel_s_largest_numbers_are_reported_unchanged(layout: str, tmp_path: Path) -> None:
    root = hosts.copy(layout, tmp_path)
    for name in ("memory.current", "memory.usage_in_bytes", "pids.current"):
        for path in root.rglob(name):
            path.write_text(f"{UINT64_MAX}\n")
    for name in ("memory.max", "memory.limit_in_bytes", "pids.max"):
        for path in root.rglob(name):
            path.write_text("max\n" if layout == "v2" else "9223372036854771712\n")
    reader = reader_of(root)
    sample, summary = pages_of(reader)
    memory = summary["pods"][0]["containers"][0]["memory"]
    assert memory["usageBytes"] == UINT64_MAX
    assert "availableBytes" not in memory, "nothing is left of no limit"
    assert f" {UINT64_MAX} ".encode() in render_container_metrics(sample)
    reader.close()
