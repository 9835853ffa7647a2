"""A machine booted with systemd as process 1, the project installed on it, for a module's tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from orch.component.process import clock
from tests.systemd.page import build
from tools.runtime_lib.progress import RuntimeToolError
from tools.testbed import installed
from tools.testbed.booted import BootedMachine, booted
from tools.testbed.root import ensure

Made = TypeVar("Made")

ROOT = Path(__file__).resolve().parents[2]
BASE = Path(os.environ.get("TEST_MACHINE_BASE") or ROOT / ".test" / "testbed" / "base")
LATER_VERSION = "99.0"

# What a machine of the wrong kind lacks; anything else that fails is a failure.
_NOT_ON_THIS_MACHINE = (
    "needs root",
    "cannot download",
    "names no",
    "is missing",
    "version 2 hierarchy",
)


@pytest.fixture(scope="session")
def machine_root() -> Path:
    """The root filesystem of test machines; skips where it cannot be made."""
    return or_skip(lambda: ensure(BASE))


@pytest.fixture(scope="module")
def machine(
    machine_root: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BootedMachine]:
    scratch = tmp_path_factory.mktemp("machine")
    shown = installed.shown()
    with booted(machine_root, scratch, shown) as running:
        installed.install(running, scratch / "pki", now=clock.utc_now())
        yield running


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all packages of this tree, and below `later` those of a later version."""
    into = tmp_path_factory.mktemp("packages")
    build("deb", "--out", str(into))
    later = ("--version", LATER_VERSION, "--out", str(into / "later"))
    build("deb", "--package", "nodeagent", *later)
    return into


def or_skip(make: Callable[[], Made]) -> Made:
    try:
        return make()
    except RuntimeToolError as error:
        if any(cause in str(error) for cause in _NOT_ON_THIS_MACHINE):
            pytest.skip(str(error))
        raise
