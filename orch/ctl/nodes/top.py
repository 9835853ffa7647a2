"""`orchctl node top`: live table of what nodes, pods and containers use.

With --once, -o or without a terminal, it prints one table or list. Colours appear on a terminal
only, and never when NO_COLOR is set (no-color.org). On a narrow terminal the columns are fewer and
shorter.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from orch.client.transport import TransportError
from orch.ctl import api, failures, selection
from orch.ctl.api import Api
from orch.ctl.failures import CommandFailed
from orch.ctl.nodes import usage
from orch.ctl.nodes.screen import Screen, View
from orch.ctl.nodes.usage import History, Row
from orch.ctl.options import seconds
from orch.ctl.output import formats, printing
from orch.wire import raw
from orch.wire.errors import ApiError

EXAMPLES = """
orchctl node top
orchctl node top worker-1 --pressure --containers
orchctl node top --once --sort-by memory
orchctl node top --containers -o json
"""
_INTERVAL_S = 2.0
_HEADER = ("NODE/POD/CONTAINER", "CPU(cores)", "CPU(%)", "MEMORY", "MEMORY(%)")
_SORTS = ("name", "cpu", "memory", "pressure")
_HIGH, _RAISED = 40.0, 10.0  # per cent of time stalled: alerting, and worth a look
_RED, _YELLOW, _PLAIN = "\x1b[31m", "\x1b[33m", "\x1b[0m"
_NARROW = ("NODE/POD/CONTAINER", "CPU", "MEMORY", "CPU PSI", "MEM PSI", "IO PSI")
_GAP = 3  # between columns


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("nodes", nargs="*", metavar="NODE", help="only these nodes")
    parser.add_argument("-l", "--selector", default="", help="only nodes with these labels")
    parser.add_argument("--pressure", action="store_true", help="show stalled time as sparklines")
    parser.add_argument("--containers", action="store_true", help="show a row per container")
    parser.add_argument("--no-pods", action="store_true", help="only the nodes")
    parser.add_argument("--sort-by", choices=_SORTS, default="name", help="sort pods by")
    parser.add_argument("--once", action="store_true", help="print one table, no live view")
    parser.add_argument("--no-headers", action="store_true", help="only the rows")
    parser.add_argument("--interval", type=seconds, default=_INTERVAL_S, help="refresh every …")
    formats.add_to(parser, formats.DATA)


def run(args: argparse.Namespace) -> int:
    return api.run(args, _top)


async def _top(api: Api, args: argparse.Namespace) -> int:
    history = History()
    depth = 0 if args.no_pods else 2 if args.containers else 1
    view = View(args.sort_by, depth, args.pressure)
    if args.once or args.output or not sys.stdout.isatty():
        found, errors = await _refresh(api, args, history)
        if args.output:
            formats.show(args.output, [usage.as_data(row) for row in _shown(found, view)])
        else:
            print("\n".join(_lines(found, view, args, history)))
        for error in errors:
            printing.note(f"error: {error}")
        return failures.FAILED if errors else 0
    ended = _ending()
    screen = Screen(view)
    try:
        with screen.opened():
            await _live(api, args, history, screen)
    except asyncio.CancelledError:
        if not ended:
            raise
        return 128 + ended[0]
    return 0


async def _live(api: Api, args: argparse.Namespace, history: History, screen: Screen) -> None:
    """Refresh at intervals, and draw anew at once when a key is pressed."""
    loop = asyncio.get_running_loop()
    while not screen.ended:
        found, errors = await _refresh(api, args, history)
        next_s = loop.time() + max(args.interval, 0.1)
        pressed = True
        while pressed and not screen.ended:
            width = shutil.get_terminal_size().columns
            lines = _lines(found, screen.view, args, history, width)
            head = 0 if args.no_headers else 1
            screen.draw(lines[:head], [*lines[head:], *(error[:width] for error in errors)])
            pressed = await screen.wait(max(next_s - loop.time(), 0))


def _ending() -> list[int]:
    """Cancel this task on SIGTERM and SIGHUP, so that the terminal's screen is restored.

    The list is empty until then, and holds the signal afterwards.
    """
    ended: list[int] = []
    task, loop = asyncio.current_task(), asyncio.get_running_loop()

    def end(number: int) -> None:
        ended.append(number)
        if task is not None:
            task.cancel()

    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, end, number)
    return ended


async def _refresh(
    api: Api, args: argparse.Namespace, history: History
) -> tuple[list[Row], list[str]]:
    """The rows of all nodes, and what is wrong with those that could not be asked."""
    nodes = await _nodes(api, args)
    answers = await asyncio.gather(*(_ask(api, node) for node in nodes))
    found = [row for rows, _ in answers for row in rows]
    history.add(found)
    return found, [error for _, error in answers if error]


async def _nodes(api: Api, args: argparse.Namespace) -> Sequence[Mapping[str, Any]]:
    if args.nodes:
        paths = [selection.node_path(selection.node_name(name)) for name in args.nodes]
        return [await api.read(path) for path in paths]
    found = await api.items("/api/v1/nodes", labelSelector=args.selector)
    if not found:
        raise CommandFailed("there are no nodes to show")
    return found


async def _ask(api: Api, node: Mapping[str, Any]) -> tuple[list[Row], str]:
    """A node's rows, and the error when there are none."""
    name = raw.text(node, "metadata", "name")
    try:
        summary = await api.get(selection.node_path(name, "stats/summary"))
    except (ApiError, TransportError) as error:
        return [], f"{name}: {failures.explain(error)}"
    return usage.rows(name, summary, raw.mapping(node, "status", "capacity")), ""


def _lines(
    found: Sequence[Row],
    view: View,
    args: argparse.Namespace,
    history: History,
    width: int | None = None,
) -> list[str]:
    """Header and rows, cut to the terminal's width so that each takes one line."""
    shown = _shown(found, view)
    pressures = usage.RESOURCES if view.shows_pressure else ()
    header = [*_HEADER, *(f"{resource.upper()} SOME/FULL(%)" for resource in pressures)]
    lines = printing.columns([header, *(_cells(row, pressures, history) for row in shown)])
    if width and pressures and max(map(len, lines)) > width:
        lines = _narrow(shown, width)
    lines = [line[:width] for line in lines]
    return [*lines[: 0 if args.no_headers else 1], *map(_painted, lines[1:], shown)]


def _shown(found: Sequence[Row], view: View) -> list[Row]:
    """The rows of a view in order; the node and pod of what the filter lets pass stay."""
    rows = [row for row in _ordered(found, view.sort_by) if row.depth <= view.depth]
    wanted = view.filter.lower()
    passed = {row.key for row in rows if wanted in "/".join(row.key[1:]).lower()}
    above = {key[:size] for key in passed for size in range(1, len(key))}
    return [row for row in rows if row.depth == 0 or row.key in passed or row.key in above]


def _narrow(shown: Sequence[Row], width: int) -> list[str]:
    """Without shares and sparklines, and with names as short as they must be."""
    rows = [list(_NARROW), *map(_narrow_cells, shown)]
    others = max(map(len, printing.columns([row[1:] for row in rows])))
    room = max(width - others - _GAP, 1)
    for row in rows:
        row[0] = row[0] if len(row[0]) <= room else f"{row[0][: room - 1]}…"
    return printing.columns(rows)


def _narrow_cells(row: Row) -> list[str]:
    stalled = [
        "/".join(f"{row.pressure[resource, kind][-1]:.1f}" for kind in ("some", "full")
                 if (resource, kind) in row.pressure)
        for resource in usage.RESOURCES
    ]  # fmt: skip
    numbers = [usage.cores_text(row.cpu_nano), usage.size_text(row.memory_bytes)]
    return [_name(row), *numbers, *(text or usage.MISSING for text in stalled)]


def _name(row: Row) -> str:
    return "  " * row.depth + row.key[-1]


def _painted(line: str, row: Row) -> str:
    """The line in the colour of its pressure, where colours are wanted."""
    stalled = row.stalled()
    if stalled < _RAISED or not sys.stdout.isatty():
        return line
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return line
    return f"{_RED if stalled >= _HIGH else _YELLOW}{line}{_PLAIN}"


def _cells(row: Row, pressures: Sequence[str], history: History) -> list[str]:
    return [
        _name(row),
        usage.cores_text(row.cpu_nano),
        _percent(row.cpu_percent),
        usage.size_text(row.memory_bytes),
        _percent(row.memory_percent),
        *(_pressure(row, resource, history) for resource in pressures),
    ]


def _percent(share: float | None) -> str:
    return usage.MISSING if share is None else f"{share:.0f}%"


def _pressure(row: Row, resource: str, history: History) -> str:
    """`0.5 ▁▂▃ 0.0 ▁▁▁`: some, then full, each with its sparkline."""
    parts = [
        f"{values[-1]:.1f} {usage.sparkline(values)}"
        for kind in ("some", "full")
        for values in [history.of(row, resource, kind)]
        if values
    ]
    return " ".join(parts) or usage.MISSING


def _ordered(found: Sequence[Row], by: str) -> list[Row]:
    """Each node's pods in the wanted order, containers below their pod."""
    weights = {
        row.key: -{
            "name": 0.0,
            "cpu": float(row.cpu_nano or 0),
            "memory": float(row.memory_bytes or 0),
            "pressure": row.stalled(),
        }[by]
        for row in found
    }
    return sorted(
        found,
        key=lambda row: [(weights[row.key[:n]], row.key[:n]) for n in range(1, len(row.key) + 1)],
    )
