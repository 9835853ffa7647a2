"""How long a start took, by the stamps of the API and of the runtime."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from nodeagent.pods.worker import report
from nodeagent.runtime.base import ContainerDetail, ContainerState
from tests.fakes.pods import container_data, exited, instance, pod, sandbox, seen
from tests.fakes.podworld import EPOCH

API = {"annotations": {"orch.io/config.source": "api"}}
CREATED = {"creationTimestamp": "2026-01-31T12:00:00Z"}
LATER = EPOCH + timedelta(seconds=8)


@pytest.mark.parametrize(
    ("metadata", "expected_s"),
    [
        ({**API, **CREATED}, 8),
        (API, 0),
        ({**CREATED, "annotations": {"orch.io/config.source": "file"}}, 0),
    ],
)
def test_only_a_pod_of_the_api_was_created_before_it_was_seen(
    metadata: dict[str, object], expected_s: float
) -> None:
    assert report.age_s(pod(metadata=metadata), LATER) == expected_s


@pytest.mark.parametrize(
    ("held", "told"),
    [
        ([], ""),
        ([instance("app", 0, ContainerState.CREATED)], ""),
        ([exited(code=3)], " again: it had ended with 3 (Error)"),
        ([replace(exited(code=7), reason="")], " again: it had ended with 7"),
        ([exited("other")], ""),
    ],
)
def test_the_log_says_how_a_container_that_starts_again_had_ended(
    held: list[ContainerDetail], told: str
) -> None:
    assert report.former_end(seen(sandbox(), *held), "app") == told


def test_every_try_of_an_init_container_counts_and_sidecars_do_not() -> None:
    sidecar = container_data("side", restartPolicy="Always")
    wanted = pod("app", initContainers=[container_data("i"), sidecar])
    ended = ContainerState.EXITED
    view = seen(
        sandbox(),
        instance("i", 0, ended, exit_code=1, ran_s=3),
        instance("i", 1, ended, ran_s=4),
        instance("side", 0, ended, ran_s=50),
        instance("app"),
    )
    assert report.initialising_s(wanted, view) == pytest.approx(7)
    running = seen(sandbox(), instance("i"))
    assert report.initialising_s(wanted, running) == 0
