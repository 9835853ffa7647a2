"""The base of an agent that reads this machine and connects to nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodeagent.config import options
from nodeagent.config.current import CurrentConfig
from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.wiring.base import Base, Clients, build_base
from orch.component.flags.features import Features
from tests.fakes.api import FakeApi
from tests.fakes.runtime import FakeRuntime

BuildBase = Callable[..., Base]


@pytest.fixture
def base(tmp_path: Path) -> BuildBase:
    """A function runtime, API, gates and fields of the configuration → base."""

    def build(
        runtime: FakeRuntime | None = None,
        api: FakeApi | None = None,
        gates: dict[str, bool] | None = None,
        **fields: Any,
    ) -> Base:
        given = options.parse([f"--root-dir={tmp_path}", "--hostname-override=n1"])
        config = NodeAgentConfiguration.model_validate({"containerRuntimeEndpoint": "", **fields})
        made = build_base(given, CurrentConfig(config), Features(gates or {}))
        clients: Any = Clients(api, api) if api else None  # type: ignore[arg-type]
        return replace(made, runtime=runtime, clients=clients)

    return build
