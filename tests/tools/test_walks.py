"""How few modules the walks of `tools.walks` pass, and how seldom they turn back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import walks

# What they were laid out for: 15 modules, and 25 with 40 hops for a renewal. The pod is a plain
# one: rules about fields that a pod does not have are not asked, so one that has more passes more.
LIMITS = {  # modules, hops, and a module that shows the walk was recorded to its end
    "sample": (15, 90, "nodeagent.stats.cgroup.reader"),
    "lease": (25, 40, "orch.server.storage.sqlite"),
    "pod": (15, 47, "nodeagent.pods.worker.worker"),
}


@pytest.mark.parametrize("name", LIMITS)
async def test_a_walk_stays_short(name: str, tmp_path: Path) -> None:
    modules, hops, reached = LIMITS[name]
    with walks.recording():
        walk = await walks.WALKS[name](tmp_path)
    assert reached in walk.modules, walk.modules
    assert len(walk.modules) <= modules, walk.modules
    assert len(walk.hops) <= hops, list(walk.hops)
