"""The emulated machine: one that ends is booted again between tests, never within one."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tools.runtime_lib.progress import RuntimeToolError
from tools.testbed.machine import Machine
from tools.testbed.virtual import (
    EmulatedMachine,
    MachineEndedError,
    VirtualMachine,
)


class Booted(Machine):
    """Answers with the number of its boot until `ended`."""

    def __init__(self, number: int) -> None:
        self.ended = False
        self._number = number

    def run(
        self, *command: str, given: bytes = b"", timeout_s: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        if self.ended:
            raise MachineEndedError("the virtual machine has ended")
        return subprocess.CompletedProcess(command, 0, f"boot {self._number}", "")


class Boots:
    """Machines that are only counted; as many of them as `panics` end while they are prepared."""

    def __init__(self, panics: int) -> None:
        self.begun = self.ended = 0
        self._panics = panics
        self.machine = EmulatedMachine(self.booted, self._prepare)

    @contextmanager
    def booted(self) -> Iterator[Machine]:
        self.begun += 1
        self.running = Booted(self.begun)
        try:
            yield self.running
        finally:
            self.ended += 1

    def _prepare(self, _machine: Machine) -> None:
        if self.begun <= self._panics:
            raise MachineEndedError("the virtual machine has ended")


def test_a_machine_that_ends_while_it_is_prepared_is_booted_again() -> None:
    boots = Boots(panics=2)
    boots.machine.start()
    assert (boots.begun, boots.ended) == (3, 2)
    assert boots.machine.check("true") == "boot 3"
    boots.machine.stop()
    assert boots.ended == 3


def test_a_machine_started_anew_is_another_and_the_first_has_ended() -> None:
    boots = Boots(panics=0)
    boots.machine.start()
    assert boots.machine.check("true") == "boot 1"
    boots.machine.start()
    assert boots.machine.check("true") == "boot 2"
    assert (boots.begun, boots.ended) == (2, 1)


def test_a_machine_that_always_ends_is_given_up() -> None:
    boots = Boots(panics=99)
    with pytest.raises(MachineEndedError, match="ended 4 times"):
        boots.machine.start()
    assert (boots.begun, boots.ended) == (4, 4)
    with pytest.raises(MachineEndedError, match="not running"):
        boots.machine.check("true")


def test_what_fails_in_a_machine_that_goes_on_is_not_tried_again() -> None:
    boots = Boots(panics=0)

    def fail(_machine: Machine) -> None:
        raise RuntimeToolError("a command failed")

    machine = EmulatedMachine(boots.booted, fail)
    with pytest.raises(RuntimeToolError, match="a command"):
        machine.start()
    assert (boots.begun, boots.ended) == (1, 1)


def test_the_end_of_a_machine_is_told_with_the_last_words_of_its_console(tmp_path: Path) -> None:
    console = tmp_path / "console.log"
    console.write_text("login:\n[ 206.1] Kernel panic - not syncing\n")
    ours, theirs = socket.socketpair()
    with ours:
        theirs.close()
        with pytest.raises(MachineEndedError, match=r"ended: login:.*Kernel panic"):
            VirtualMachine(ours, console).run("true")


def test_a_machine_that_has_ended_is_booted_again_before_the_next_test() -> None:
    boots = Boots(panics=0)
    boots.machine.start()
    boots.machine.ensure_running()
    assert boots.machine.check("true") == "boot 1"
    boots.running.ended = True
    boots.machine.ensure_running()
    assert (boots.begun, boots.ended) == (2, 1)
