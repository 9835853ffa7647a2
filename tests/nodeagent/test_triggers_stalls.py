"""Stalls are logged and recorded as events."""

from __future__ import annotations

from typing import Any

import pytest

from nodeagent.triggers import Stall, TriggerRule, stall_reporter
from orch.wire.records.meta import ApiObject, ObjectMeta
from orch.wire.records.pods import Pod

RULE = TriggerRule("memory", "full", "container", 0.2, 2.0)


class Recorder:
    def __init__(self) -> None:
        self.noted: list[tuple[ApiObject, str, str, str]] = []

    def note(self, obj: ApiObject, type: str, reason: str, message: str) -> None:  # noqa: A002
        self.noted.append((obj, type, reason, message))


class Registry:
    """One pod."""

    pod = Pod(metadata=ObjectMeta(name="web-0", namespace="shop", uid="u1"))

    def find(self, namespace: str, name: str) -> Pod | None:
        return self.pod if (namespace, name) == ("shop", "web-0") else None


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def report(recorder: Recorder) -> Any:
    return stall_reporter("node-a", Registry(), recorder)  # type: ignore[arg-type]


def test_a_containers_stall_is_an_event_of_its_pod(
    report: Any, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    report(Stall(RULE, "shop", "web-0", "app"))
    message = "memory pressure (full) above 0.2s of 2s of container app of pod shop/web-0"
    assert recorder.noted == [(Registry.pod, "Warning", "PressureStall", message)]
    assert caplog.messages == [message]


def test_the_nodes_stall_is_an_event_of_the_node(report: Any, recorder: Recorder) -> None:
    report(Stall(RULE))
    ((node, _, _, message),) = recorder.noted
    assert (node.kind, node.metadata.name, node.metadata.uid) == ("Node", "node-a", "node-a")
    assert message.endswith("of the node")


def test_a_pod_that_is_gone_meanwhile_is_only_logged(
    report: Any, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    report(Stall(RULE, "shop", "gone"))
    assert recorder.noted == []
    assert "pod shop/gone" in caplog.text
