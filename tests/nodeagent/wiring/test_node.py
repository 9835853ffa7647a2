"""Whether pods end in order at a shutdown: by the configuration, and only where there are pods."""

from __future__ import annotations

from typing import Any

import pytest

from nodeagent.wiring import node
from orch.component.process.daemon import SetupError
from tests.nodeagent.wiring.conftest import BuildBase

pytestmark = pytest.mark.may_block  # the machine's facts are read before anything is served

WORKERS: Any = object()
NOTHING: Any = None


async def test_it_is_off_unless_asked_for_and_without_a_runtime(base: BuildBase) -> None:
    asked = base(shutdownGracePeriod="30s")
    assert node.build_guard(base(), WORKERS) is None
    assert node.build_guard(asked, WORKERS) is not None
    assert node.build_guard(asked, None) is None


async def test_settings_that_contradict_each_other_keep_the_agent_from_starting(
    base: BuildBase,
) -> None:
    asked = base(shutdownGracePeriod="3s", shutdownGracePeriodCriticalPods="4s")
    with pytest.raises(SetupError, match="must not exceed shutdownGracePeriod"):
        node.build_guard(asked, WORKERS)


async def test_without_a_runtime_nobody_is_evicted(base: BuildBase) -> None:
    assert node.build_evictions(base(), NOTHING, NOTHING, None) is None


def test_pods_are_led_to_the_api_server_as_configured(base: BuildBase) -> None:
    assert base().settings.api_server == {}
    led = base(podAPIServer="https://api.example.com:443").settings.api_server
    assert led["KUBERNETES_SERVICE_HOST"] == "api.example.com"
    assert led["KUBERNETES_SERVICE_PORT"] == "443"
