"""Tiny programs to run as children, and waiting for what they do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

PATIENCE_S = 60.0  # for a busy machine

# Says `up`, and ends when it is told to; `{}` runs then.
OBEDIENT = "trap '{} exit 0' TERM; echo up; while :; do sleep 0.02; done"
STUBBORN = "trap '' TERM; echo up; while :; do sleep 0.02; done"


def shell(script: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", script)


def make_tool(directory: Path, name: str, script: str) -> None:
    """A program of that name, for a PATH that leads to the directory."""
    path = directory / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


async def until(done: Callable[[], object]) -> None:
    """Wait for what other processes do; TimeoutError when it does not come."""
    async with asyncio.timeout(PATIENCE_S):
        while not done():
            await asyncio.sleep(0.01)


def gone(pid: int) -> bool:
    """Whether a process has ended, waited for or not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"
