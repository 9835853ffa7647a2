"""How few modules the walks of `tools.walks` pass."""

from __future__ import annotations

from pathlib import Path

from tools import walks


async def test_one_sample_passes_at_most_15_modules(tmp_path: Path) -> None:
    with walks.recording():
        walk = await walks.sample(tmp_path)
    assert len(walk.modules) <= 15, walk.modules
    assert "nodeagent.stats.cgroup.reader" in walk.modules, "the reading thread was not recorded"
