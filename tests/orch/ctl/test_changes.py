from __future__ import annotations

import argparse

import pytest

from orch.ctl import changes
from orch.ctl.failures import CommandFailed
from orch.wire import errors


def _args(dry_run: str = "none") -> argparse.Namespace:
    return argparse.Namespace(dry_run=dry_run, field_manager="me")


@pytest.mark.parametrize(
    ("dry_run", "word"),
    [("none", "done"), ("client", "done (dry run)"), ("server", "done (server dry run)")],
)
def test_dry_runs_are_marked(dry_run: str, word: str) -> None:
    assert changes.done("done", _args(dry_run)) == word


def test_writes_name_their_manager_and_their_strictness() -> None:
    assert changes.parameters(_args()) == {"fieldManager": "me"}
    args = _args("server")
    args.validate = "strict"
    assert changes.parameters(args) == {
        "fieldManager": "me",
        "fieldValidation": "Strict",
        "dryRun": "All",
    }


async def test_a_refused_item_does_not_stop_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    seen = []

    async def change(item: int) -> None:
        if item == 1:
            raise errors.not_found("pods", "a")
        if item == 2:
            raise CommandFailed("no")
        seen.append(item)

    assert await changes.each([0, 1, 2, 3], change) == 1
    assert seen == [0, 3]
    assert capsys.readouterr().err.count("error: ") == 2
    assert await changes.each([0], change) == 0
