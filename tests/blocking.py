"""A detector of blocking calls in the event loop, which fails the test that makes one.

Guarded is product code that runs as a coroutine. Synchronous product code which a test calls
itself, to prepare or to look, is the test's own affair.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import blockbuster
import pytest_asyncio.plugin

PRODUCT = ("nodeagent", "orch")
# Where product code may touch the disk or a socket inside the loop, and why.
ALLOWED = (
    ("nodeagent/node/collector.py", "default_route_address"),  # connecting UDP sends nothing
    ("orch/component/process/system.py", "process_start_s"),  # two files of /proc, at start-up
    ("orch/component/process/system.py", "describe_process"),  # in an error that ends the program
)

_ROOT = Path(__file__).parent.parent
PRODUCT_ROOTS = tuple(f"{_ROOT / name}/" for name in PRODUCT)
_TESTS_ROOT = f"{_ROOT / 'tests'}/"
_RUNNER = pytest_asyncio.plugin.__file__  # runs the loops of tests
_awake = False


def activated() -> blockbuster.BlockBuster:
    """A detector for a whole session, asleep but inside of `detected`: to make it takes long."""
    detector = blockbuster.BlockBuster(list(PRODUCT))
    for function in detector.functions.values():
        function.can_block_predicate = _asleep_or(function.can_block_predicate)
        for file, name in ALLOWED:
            function.can_block_in(file, name)
    detector.activate()
    return detector


@contextmanager
def detected() -> Iterator[None]:
    """Blocking calls raise blockbuster.BlockingError, which names the function."""
    global _awake
    _awake = True
    try:
        yield
    finally:
        _awake = False


def _asleep_or(allowed: Callable[..., bool]) -> Callable[..., bool]:
    def predicate(*args: Any, **kwargs: Any) -> bool:
        return not _awake or allowed(*args, **kwargs) or is_affair_of_tests(sys._getframe(1))

    return predicate


def is_affair_of_tests(frame: FrameType | None) -> bool:
    """Whether the outermost product code on the stack, if any, is a function that a test calls."""
    entry = None
    while frame is not None and (file := frame.f_code.co_filename) != _RUNNER:
        if file.startswith(PRODUCT_ROOTS):
            entry = frame
        elif entry is not None and file.startswith(_TESTS_ROOT):
            return not entry.f_code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR)
        frame = frame.f_back
    return entry is None
