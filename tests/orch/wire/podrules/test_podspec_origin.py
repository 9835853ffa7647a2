from __future__ import annotations

from typing import Any

import pytest

from orch.wire.podrules import podspec
from orch.wire.records.pods import Pod

SOURCE, MIRROR = "orch.io/config.source", "orch.io/config.mirror"


@pytest.mark.parametrize(
    ("annotations", "priority", "static", "mirror", "critical"),
    [
        (None, None, False, False, False),
        ({SOURCE: "file"}, None, True, False, True),
        ({SOURCE: "http"}, 5, True, False, True),
        ({SOURCE: "api"}, 1_999_999_999, False, False, False),
        ({SOURCE: "api"}, 2_000_000_000, False, False, True),
        ({MIRROR: "hash"}, None, False, True, False),
        ({MIRROR: ""}, None, False, True, False),
    ],
)
def test_how_a_pod_stands(
    annotations: Any, priority: int | None, static: bool, mirror: bool, critical: bool
) -> None:
    document = {"metadata": {"annotations": annotations}, "spec": {"priority": priority}}
    pod = Pod.from_wire(document)
    assert podspec.is_static(pod) is static
    assert podspec.is_mirror(pod) is mirror
    assert podspec.is_critical(pod) is critical
    assert (podspec.mirror_hash(document) is not None) is mirror
