from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios

import pytest

from tests.fakes.http_api import Answer, HttpApi
from tests.orch.ctl.conftest import Orchctl
from tests.orch.ctl.nodes.test_usage import summary

PAGE = "/api/v1/nodes/n1/proxy/stats/summary"


@pytest.fixture(autouse=True)
def _node(api: HttpApi) -> None:
    capacity = {"cpu": "1", "memory": "4Mi"}
    metadata = {"name": "n1", "labels": {"a": "b"}}
    api.put("/api/v1/nodes/n1", {"metadata": metadata, "status": {"capacity": capacity}})
    api.answers["GET", PAGE] = Answer(summary())


async def test_one_table_is_printed_where_nobody_watches(orchctl: Orchctl) -> None:
    result = await orchctl("node", "top")
    assert (result.code, result.err) == (0, "")
    assert result.lines == [
        "NODE/POD/CONTAINER   CPU(cores)   CPU(%)   MEMORY   MEMORY(%)",
        "n1                   0.500        50%      1.0Mi    25%",
        "  d/db               -            -        -        -",
        "  d/web              0.500        50%      1.0Mi    25%",
    ]


async def test_pressure_and_containers_on_demand(orchctl: Orchctl) -> None:
    result = await orchctl("node", "top", "n1", "--pressure", "--containers", "--once")
    assert result.lines[0].endswith("CPU SOME/FULL(%)   MEMORY SOME/FULL(%)   IO SOME/FULL(%)")
    assert result.lines[1].split()[5:] == ["3.0", "▂▂▂", "3.0", "▂▂▂", "-", "-"]
    assert [line.split()[0] for line in result.lines[1:]] == ["n1", "d/db", "d/web", "a", "b"]


async def test_the_pods_may_be_ordered_or_left_out(orchctl: Orchctl) -> None:
    for by in ("cpu", "memory", "pressure"):
        result = await orchctl("node", "top", "--sort-by", by, "--containers", "--no-headers")
        names = [line.split()[0] for line in result.lines]
        assert names == ["n1", "d/web", "a", "b", "d/db"]
    assert len((await orchctl("node", "top", "--no-pods")).lines) == 2


async def test_a_node_that_does_not_answer_is_named_and_the_others_shown(
    orchctl: Orchctl, api: HttpApi
) -> None:
    api.put("/api/v1/nodes/n2", {"metadata": {"name": "n2"}})
    api.answers["GET", "/api/v1/nodes/n2/proxy/stats/summary"] = Answer("gone", 503)
    result = await orchctl("node", "top")
    assert (result.code, len(result.lines)) == (1, 4)
    assert result.err.startswith("error: n2: the server answered 503: gone (ServiceUnavailable)")


async def test_no_nodes_are_said(orchctl: Orchctl) -> None:
    result = await orchctl("node", "top", "-l", "a=c")
    assert (result.code, "there are no nodes" in result.err) == (1, True)


async def test_a_terminal_is_drawn_anew_until_interrupted(api: HttpApi) -> None:
    api.answers["GET", PAGE] = [Answer(summary(45.0)) for _ in range(200)]
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 150, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
    process = subprocess.Popen(
        [sys.executable, "-m", "orch.ctl.main", "-s", api.url, "node", "top", "--pressure",
         "--interval", "100ms"],
        stdout=slave, stderr=subprocess.PIPE, env={**environment, "TERM": "xterm"},
    )  # fmt: skip
    os.close(slave)
    try:
        shown = await asyncio.wait_for(asyncio.to_thread(_read_until, master, 3), 30)
        process.terminate()
        rest = await asyncio.wait_for(asyncio.to_thread(_read_all, master), 30)
        code = await asyncio.to_thread(process.wait, 10)
        said = process.stderr.read() if process.stderr else b""
    finally:
        process.kill()
        await asyncio.to_thread(process.wait, 10)
        if process.stderr:
            process.stderr.close()
        os.close(master)
    assert rest.endswith("\x1b[?25h\x1b[?1049l")  # told to end, it gives the screen back
    assert (code, said) == (128 + signal.SIGTERM, b"")
    assert shown.startswith("\x1b[?1049h\x1b[?25l\x1b[H\x1b[J")
    assert "\x1b[31mn1" in shown  # stalled for 45 %: red
    assert "▂▂██" in shown  # the sparkline has grown
    shown = shown[: shown.rindex("\x1b[H\x1b[J")]  # the last may be cut off
    drawn = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.replace("\x1b[H", "\n"))
    assert max(len(line.rstrip("\r")) for line in drawn.split("\n")) <= 150  # not wrapped


async def test_a_narrow_terminal_shows_every_pressure_and_keys_sort_scroll_and_end(
    api: HttpApi,
) -> None:
    api.put("/api/v1/nodes/n2", {"metadata": {"name": "n2"}})
    long = summary(45.0)
    long["pods"] = [
        {**long["pods"][0], "podRef": {"namespace": "shop", "name": f"{'w' * 60}-{number}"}}
        for number in range(30)
    ]
    api.answers["GET", PAGE] = Answer(long)
    api.answers["GET", "/api/v1/nodes/n2/proxy/stats/summary"] = Answer(summary())
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 10, 80, 0, 0))
    before = termios.tcgetattr(slave)
    process = subprocess.Popen(
        [sys.executable, "-m", "orch.ctl.main", "-s", api.url, "node", "top", "--pressure",
         "--interval", "10m"],
        stdin=slave, stdout=slave, stderr=subprocess.PIPE, env={**os.environ, "TERM": "dumb"},
    )  # fmt: skip
    try:
        pages = []
        for key in ("", "G", "c", "\x1b[6~", "k", "/D/WEB\r", "?", "1"):  # each is drawn once
            os.write(master, key.encode())
            shown = await asyncio.wait_for(asyncio.to_thread(_read_until_footer, master), 30)
            pages.append(shown.rpartition("\x1b[H\x1b[J")[2].replace("\r", "").split("\n"))
        os.write(master, b"q")
        code = await asyncio.to_thread(process.wait, 30)
        said = process.stderr.read() if process.stderr else b""
        after = termios.tcgetattr(slave)
    finally:
        process.kill()
        await asyncio.to_thread(process.wait, 10)
        if process.stderr:
            process.stderr.close()
        os.close(slave)
        os.close(master)
    assert (code, said, after) == (0, b"", before)
    first, last, _, turned, back, filtered, helped, nodes = pages
    assert first[0].split() == [
        "NODE/POD/CONTAINER", "CPU", "MEMORY", "CPU", "PSI", "MEM", "PSI", "IO", "PSI",
    ]  # fmt: skip
    assert all(len(page) == 10 and max(map(len, page)) <= 80 for page in pages)
    assert first[1].startswith("n1 ") and "45.0/45.0" in first[1]
    assert "…" in first[2]
    assert last[0] == first[0] and last[-2].split()[0] == "d/web"
    assert turned != last and back != turned
    assert [line.split()[0] for line in filtered[1:4]] == ["n1", "n2", "d/web"]
    assert filtered[-1].startswith("/D/WEB   q quit")
    assert "nodes and pods" in helped[1]
    assert [line.split()[0] for line in nodes[1:-1] if line] == ["n1", "n2"]


async def test_the_rows_are_given_as_data(orchctl: Orchctl) -> None:
    rows = json.loads((await orchctl("node", "top", "--containers", "-o", "json")).out)
    assert [row.get("container") or row.get("pod") or row["node"] for row in rows] == [
        "n1", "d/db", "d/web", "a", "b",
    ]  # fmt: skip
    assert rows[0]["cpuNanoCores"] == 500_000_000
    assert rows[0]["pressure"]["cpu"] == {"some": 3.0, "full": 3.0}
    assert rows[1]["cpuNanoCores"] is None


def _read_until_footer(master: int) -> str:
    text = ""
    while "scroll" not in text.rpartition("\x1b[H\x1b[J")[2]:
        text += os.read(master, 65536).decode(errors="replace")
    return text


def _read_until(master: int, looks: int) -> str:
    text = ""
    while text.count("\x1b[H\x1b[J") <= looks:
        text += os.read(master, 65536).decode(errors="replace")
    return text


def _read_all(master: int) -> str:
    text = ""
    with contextlib.suppress(OSError):  # what a terminal says whose other side is closed
        while part := os.read(master, 65536):
            text += part.decode(errors="replace")
    return text
