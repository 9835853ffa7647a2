"""The controller manager as it is, with every view that it decides on written into a file.

python -m tests.orch.lifecycle.tapped FILE [flags of orch-controller-manager…]
"""

from __future__ import annotations

import sys
from pathlib import Path

from orch.lifecycle import main as controller
from orch.lifecycle import monitor
from orch.lifecycle.decide.records import Decision, Memory, Settings, View
from tests.orch.lifecycle.histories import Look, Writer


def main(path: Path, flags: list[str]) -> int:
    decide = monitor.decide
    writers: list[Writer] = []  # begun with the first decision, which tells the settings
    with path.open("w") as file:

        def tapped(memory: Memory, view: View, settings: Settings) -> Decision:
            if not writers:
                writers.append(Writer(file, settings))
            writers[0].add(Look(view, memory == Memory()))
            return decide(memory, view, settings)

        monitor.decide = tapped
        return controller.main(flags)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
