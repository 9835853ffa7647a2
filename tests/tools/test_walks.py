"""How few modules the walks of `tools.walks` pass, and how seldom they turn back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import walks

# The house kept 15, 25 and 15. Since then a renewal takes a seat in a fair queue, is counted in the
# store's bounds and timed where the reference times it; a static pod is judged by the reference's
# rules for pods and by the machine's own facts before it starts, and held against its node by the
# rules by which pods are bound; what it is granted is on disk before it starts. A kind may be shown
# in another form than it is stored in.
LIMITS = {  # modules, hops, and a module that shows the walk was recorded to its end
    "sample": (15, 90, "nodeagent.stats.cgroup.reader"),
    "lease": (25, 40, "orch.server.storage.sqlite"),
    "pod": (28, 79, "nodeagent.pods.worker.worker"),
}


@pytest.mark.parametrize("name", LIMITS)
async def test_a_walk_stays_short(name: str, tmp_path: Path) -> None:
    modules, hops, reached = LIMITS[name]
    with walks.recording():
        walk = await walks.WALKS[name](tmp_path)
    assert reached in walk.modules, walk.modules
    assert len(walk.modules) <= modules, walk.modules
    assert len(walk.hops) <= hops, list(walk.hops)
