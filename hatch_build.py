"""Puts manual pages and shell completions into a wheel, made from the programs' own parsers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_MADE = "build/manual"


class Manual(BuildHookInterface):  # type: ignore[type-arg]
    """Runs for real wheels only: an editable install has no place for manual pages."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        from tools.packages import manual

        for place, text in manual.files().items():
            path = Path(self.root, _MADE, place)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            build_data["shared_data"][str(path)] = place
