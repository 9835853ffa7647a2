"""Fields that must fit each other or the kernel."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from nodeagent.config.types import NodeAgentConfiguration, PsiTrigger


def config_with(**trigger: Any) -> NodeAgentConfiguration:
    data = {"resource": "io", "threshold": "150ms", **trigger}
    return NodeAgentConfiguration.model_validate({"psiTriggers": [data]})


def test_a_trigger_watches_the_node_for_two_seconds_unless_told_otherwise() -> None:
    (trigger,) = config_with().psiTriggers
    assert trigger == PsiTrigger.model_validate(
        {"resource": "io", "level": "some", "scope": "node", "threshold": "150ms", "window": "2s"}
    )


@pytest.mark.parametrize(
    ("trigger", "said"),
    [
        ({"threshold": "0s"}, "threshold must be greater than 0s"),
        ({"threshold": "3s"}, "not above the window"),
        ({"window": "100ms", "threshold": "50ms"}, "between 500ms and 10s"),
        ({"window": "1m"}, "between 500ms and 10s"),
        ({"resource": "disk"}, "'cpu', 'memory' or 'io'"),
        ({"scope": "cluster"}, "'node', 'pod' or 'container'"),
        ({"colour": "red"}, "Extra inputs"),
    ],
)
def test_a_trigger_the_kernel_would_not_take_is_refused(trigger: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        config_with(**trigger)
