"""docs/kubectl.md, made from the cases that are run: `python -m tests.e2e.kubectltable`."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.kubectlcases import CASES
from tests.e2e.kubectlworld import VERSIONS, Case

PAGE = Path(__file__).resolve().parents[2] / "docs" / "kubectl.md"
_HEAD = """# kubectl

With this page you know whether a command of your `kubectl` works here. `orchctl` has the daily
commands and those for agents; `kubectl` does the rest.

Which commands of an unmodified `kubectl` work with `orch-apiserver`, by its version, with
validation on. The table is made from the list of cases that the tests run
(`python -m tests.e2e.kubectltable`): `make test` runs them with the oldest and the newest version
on the machine, `make soak` with all.

"""
_FOOT = """
¹ With `--serve-upstream-aliases` (see [the API server](apiserver.md)).
"""


def render() -> str:
    lines = [
        f"| command | {' | '.join(VERSIONS)} |",
        f"|---|{'---|' * len(VERSIONS)}",
        *(_row(case) for case in CASES),
    ]
    notes = [f"\n`{case.command}`: {case.never}.\n" for case in CASES if case.never]
    return _HEAD + "\n".join(lines) + "\n" + _FOOT + "".join(notes)


def _row(case: Case) -> str:
    marked = f"`{case.command}`" + (" ¹" if case.aliases else "")
    cells = ("yes" if case.works_with(version) else "no" for version in VERSIONS)
    return f"| {marked} | {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(render())
