"""How few modules the walks of `tools.walks` pass, and how seldom they turn back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import walks

# A sample and a renewal keep what they were laid out for: 15 modules, and 25 with 40 hops. A pod
# had 15, and 13 bring a manifest to its worker now. Others judge it by the reference's rules for
# pods (five, shared with the API server; rules about fields that it does not have are not asked),
# hold it against its node by the rules by which pods are bound and by what only the machine can
# tell (two), and keep what it is granted (one).
LIMITS = {  # modules, hops, and a module that shows the walk was recorded to its end
    "sample": (15, 90, "nodeagent.stats.cgroup.reader"),
    "lease": (25, 40, "orch.server.storage.sqlite"),
    "pod": (21, 60, "nodeagent.pods.worker.worker"),
}


@pytest.mark.parametrize("name", LIMITS)
async def test_a_walk_stays_short(name: str, tmp_path: Path) -> None:
    modules, hops, reached = LIMITS[name]
    with walks.recording():
        walk = await walks.WALKS[name](tmp_path)
    assert reached in walk.modules, walk.modules
    assert len(walk.modules) <= modules, walk.modules
    assert len(walk.hops) <= hops, list(walk.hops)
