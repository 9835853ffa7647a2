"""The emulated machine: a kernel that panics is booted again, a mistake is not made again."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tools.runtime_lib.progress import RuntimeToolError
from tools.testbed import virtual
from tools.testbed.virtual import KernelPanicError, MachineEndedError, VirtualMachine


class Boots:
    """Machines that are only counted; as many of them as `panics` end while they are prepared."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, panics: int) -> None:
        self.begun = self.ended = 0
        self._panics = panics
        monkeypatch.setattr(virtual, "_booted", self._booted)

    @contextmanager
    def _booted(self, _base: Path, _scratch: Path) -> Iterator[object]:
        self.begun += 1
        try:
            yield object()
        finally:
            self.ended += 1

    def prepare(self, _machine: VirtualMachine) -> None:
        if self.begun <= self._panics:
            raise MachineEndedError("the virtual machine has ended")


def test_a_machine_that_ends_while_it_is_prepared_is_booted_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    boots = Boots(monkeypatch, panics=2)
    with virtual.virtual(tmp_path, tmp_path, boots.prepare):
        assert (boots.begun, boots.ended) == (3, 2)
    assert boots.ended == 3


def test_a_machine_that_always_ends_is_given_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    boots = Boots(monkeypatch, panics=3)
    with (
        pytest.raises(MachineEndedError),
        virtual.virtual(tmp_path, tmp_path, boots.prepare),
    ):
        raise AssertionError("there is no machine")
    assert (boots.begun, boots.ended) == (3, 3)


def test_what_fails_in_a_machine_that_goes_on_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    boots = Boots(monkeypatch, panics=0)

    def fail(_machine: VirtualMachine) -> None:
        raise RuntimeToolError("a command failed")

    with (
        pytest.raises(RuntimeToolError, match="a command"),
        virtual.virtual(tmp_path, tmp_path, fail),
    ):
        raise AssertionError("it was not prepared")
    assert (boots.begun, boots.ended) == (1, 1)


@pytest.mark.parametrize(
    ("said", "error"),
    [("[ 206.1] Kernel panic - not syncing\n", KernelPanicError), ("login:\n", MachineEndedError)],
)
def test_a_panic_is_told_from_another_end(
    tmp_path: Path, said: str, error: type[Exception]
) -> None:
    console = tmp_path / "console.log"
    console.write_text(said)
    ours, theirs = socket.socketpair()
    with ours:
        theirs.close()
        with pytest.raises(MachineEndedError) as caught:
            VirtualMachine(ours, console).run("true")
    assert type(caught.value) is error
