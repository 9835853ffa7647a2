"""Benchmarks beside a cAdvisor: a stand-in that answers as it does and writes down its flags."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from tools.bench import cadvisor, peers, sampling
from tools.bench.table import Table

CGROUPS = 4
PAGE_CPU_S = 0.03
FRESH_CPU_S = 0.04
STAND_IN = f"""#!{sys.executable}
import http.server, sys, time
from pathlib import Path

flags = dict(word.lstrip("-").split("=", 1) for word in sys.argv[1:])
Path(sys.argv[0]).with_suffix(".flags").write_text("\\n".join(sys.argv[1:]))

class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        spend_s = {PAGE_CPU_S} + (self.path.endswith("?max_age=0s") and {FRESH_CPU_S})
        until_s = time.process_time() + spend_s
        while time.process_time() < until_s:
            pass
        lines = ["# HELP container_last_seen Last time a container was seen by the exporter"]
        for number in range({CGROUPS}):
            lines.append(f'container_last_seen{{{{id="/bench/{{number}}"}}}} 1')
            lines.append(f'container_tasks_state{{{{id="/bench/{{number}}"}}}} 0')
        body = "\\n".join(lines).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass

time.sleep(0.3)
server = http.server.HTTPServer((flags["listen_ip"], int(flags["port"])), Page)
server.serve_forever()
"""


def _program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = _program(tmp_path / "cadvisor", STAND_IN)
    monkeypatch.setenv("CADVISOR", str(program))
    return program


def test_without_a_binary_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CADVISOR", raising=False)
    with cadvisor.running("1h", below="/bench") as peer:
        assert peer is None
    assert cadvisor.scraped(below="/bench") is None


def test_it_looks_only_at_the_cgroups_that_are_measured(stand_in: Path) -> None:
    with cadvisor.running("10s", below="/bench") as peer:
        assert peer is not None
        assert peers.fetched(peer.url)
    flags = stand_in.with_suffix(".flags").read_text().split("\n")
    assert "--docker_only=true" in flags
    assert "--raw_cgroup_prefix_whitelist=/bench" in flags
    assert "--housekeeping_interval=10s" in flags
    assert "--listen_ip=127.0.0.1" in flags


@pytest.mark.usefixtures("stand_in")
def test_a_pass_is_what_fresh_readings_cost_beyond_the_page() -> None:
    with cadvisor.running("1h", below="/bench") as peer:
        assert peer is not None
        usec = cadvisor.pass_usec(peer)
    assert usec * CGROUPS == pytest.approx(FRESH_CPU_S * 1e6, rel=0.4)


@pytest.mark.usefixtures("stand_in")
def test_its_page_is_scraped() -> None:
    page = cadvisor.scraped(below="/bench", scrapes=3)
    assert page is not None
    assert page.series == 2 * CGROUPS
    assert page.cpu_ms >= PAGE_CPU_S * 1e3


def test_a_binary_that_ends_at_once_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = _program(tmp_path / "cadvisor", "#!/bin/sh\nexit 7\n")
    monkeypatch.setenv("CADVISOR", str(program))
    begun_s = time.monotonic()
    with pytest.raises(OSError, match="7"), cadvisor.running("1h", below="/bench"):
        pass
    assert time.monotonic() - begun_s < peers.START_WITHIN_S / 2


@pytest.mark.parametrize(
    ("containers", "theirs", "verdicts"),
    [
        (330, 81.0, ["met", "met"]),
        (330, 79.0, ["met", "**missed**"]),
        (330, 71.0, ["**missed**", "**missed**"]),
        (30, 71.0, ["", ""]),
        (330, None, []),
    ],
)
def test_a_pass_costs_an_eighth_of_its(
    containers: int, theirs: float | None, verdicts: list[str]
) -> None:
    cost = sampling.Costs(
        containers, containers, 12.0, c_kept=9.0, c_open=30.0, c_cold=9.0, same=9.0, changed=10.0,
        cold=9.0, by_name=20.0, cadvisor=theirs, wall_p50_ms=1.0, wall_p99_ms=2.0,
    )  # fmt: skip
    table = Table()
    sampling.judge(table, cost)
    rows = [line for line in table.markdown().split("\n") if "cAdvisor" in line]
    assert [row.split(" | ")[-1].strip("| ") for row in rows] == verdicts
