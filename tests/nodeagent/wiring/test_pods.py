"""What keeps pods, by what there is: a runtime, an API, manifests in a file or at an address."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.pods.pod_workers import PodWorkers
from nodeagent.pods.registry import PodRegistry
from nodeagent.pods.spec.spec import PodSettings
from nodeagent.wiring import pods
from orch.client.events import EventRecorder
from tests.fakes.api import FakeApi
from tests.fakes.runtime import FakeRuntime

STATIC = {"staticPodPath": "/manifests", "staticPodURL": "https://pods.example/all"}


def pod_workers(
    root: Path, *, runtime: FakeRuntime | None, api: FakeApi | None = None, **config: Any
) -> PodWorkers | None:
    return pods.build_pod_workers(
        NodeAgentConfiguration(**config),
        PodRegistry(PodSettings("n1", str(root), str(root / "logs"))),
        runtime,
        api,  # type: ignore[arg-type]
        EventRecorder(None, "nodeagent", host="n1"),
        node=lambda: None,
    )


def sources(made: PodWorkers | None) -> list[str]:
    assert made
    return [source.name for source in made._sources]


def test_without_a_runtime_nothing_keeps_pods(tmp_path: Path) -> None:
    assert pod_workers(tmp_path, runtime=None, api=FakeApi(), **STATIC) is None


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, []),
        ({"staticPodPath": "/manifests"}, ["file"]),
        ({"staticPodURL": "https://pods.example/all"}, ["http"]),
        (STATIC, ["file", "http"]),
    ],
)
@pytest.mark.parametrize("with_api", [False, True])
def test_pods_come_from_where_the_configuration_says_and_from_the_api(
    tmp_path: Path, config: dict[str, str], expected: list[str], with_api: bool
) -> None:
    made = pod_workers(
        tmp_path, runtime=FakeRuntime(), api=FakeApi() if with_api else None, **config
    )
    assert sources(made) == [*expected, "api"] if with_api else sources(made) == expected


def test_only_an_api_is_told_statuses_and_given_mirrors(tmp_path: Path) -> None:
    alone = pod_workers(tmp_path, runtime=FakeRuntime())
    with_api = pod_workers(tmp_path, runtime=FakeRuntime(), api=FakeApi())
    assert alone and with_api
    own = [loop.__qualname__ for loop in alone._further]  # type: ignore[attr-defined]
    assert own == ["LogRotation.run", "LocalStorage.run", "ImageCollection.run"]
    told = [loop.__qualname__ for loop in with_api._further]  # type: ignore[attr-defined]
    assert told == [*own, "StatusSync.run", "MirrorPods.run"]


def test_logs_are_bounded_as_configured() -> None:
    config = NodeAgentConfiguration(
        containerLogMaxSize="1Mi",
        containerLogMaxFiles=3,
        containerLogMonitorInterval="30s",  # type: ignore[arg-type]
    )
    bounds = pods._log_bounds(config)
    assert (bounds.max_bytes, bounds.max_files, bounds.interval_s) == (1024**2, 3, 30.0)
