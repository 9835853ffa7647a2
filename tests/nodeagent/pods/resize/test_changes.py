"""The next step of a resize, and what is told of it."""

from __future__ import annotations

import json
from typing import Any

from nodeagent.pods.actions import ResizePod, StopContainers
from nodeagent.pods.resize import changes
from nodeagent.pods.resize.changes import Progress
from nodeagent.pods.resize.judging import Pending
from nodeagent.pods.resize.sizes import InForce, Size, pod_size
from orch.wire.records.pods import Pod
from tests.fakes.pods import container_data, exited, instance, pod, sandbox, seen

CPU = {"requests": {"cpu": "200m"}}
RESTART = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
KEEP = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]


def made(*names: str, **fields: Any) -> Pod:
    return pod(*(container_data(name, resources=CPU, **fields) for name in names))


def held(**sizes: Size) -> InForce:
    return InForce(None, sizes)


def test_running_containers_of_another_size_are_resized_together() -> None:
    wanted = made("a", "b", "c")
    view = seen(sandbox(), instance("a"), instance("b"), exited("c"))
    in_force = held(a0=Size(100), b0=Size(200), c0=Size(100))
    assert changes.next_change(wanted, view, in_force) == ResizePod(("a0",))
    assert changes.is_in_progress(wanted, view, in_force)
    done = held(a0=Size(200), b0=Size(200))
    assert changes.next_change(wanted, view, done) is None


def test_only_the_resource_that_changes_asks_for_a_restart() -> None:
    view, in_force = seen(sandbox(), instance("a")), held(a0=Size(100))
    assert changes.next_change(made("a", resizePolicy=KEEP), view, in_force) == ResizePod(("a0",))
    step = changes.next_change(made("a", resizePolicy=RESTART), view, in_force)
    assert isinstance(step, StopContainers)
    assert (step.ids, step.for_resize) == (("a0",), True)
    stopping = InForce(None, {"a0": Size(100)}, frozenset({"a0"}))
    assert changes.next_change(made("a", resizePolicy=RESTART), view, stopping) is None


def test_the_cgroup_of_the_pod_changes_even_while_no_container_runs() -> None:
    wanted, view = made("a"), seen(sandbox())
    assert changes.next_change(wanted, view, InForce(Size(100))) == ResizePod(())
    assert changes.next_change(wanted, view, InForce(pod_size(wanted))) is None


def test_conditions_hold_only_while_there_is_something_to_tell() -> None:
    assert list(changes.conditions(changes.NO_RESIZE)) == []
    told = Progress(Pending("Deferred", "no room", 3), in_progress=True, generation=2, error="busy")
    pending, progress = changes.conditions(told)
    assert (pending.type, pending.reason, pending.observedGeneration) == (
        "PodResizePending", "Deferred", 3,
    )  # fmt: skip
    assert (progress.type, progress.reason, progress.message, progress.observedGeneration) == (
        "PodResizeInProgress", "Error", "busy", 2,
    )  # fmt: skip


def test_an_event_lists_what_the_containers_have() -> None:
    text = changes.event_text("Pod resize error", made("a"), 4, "busy")
    prefix, _, listed = text.partition(": ")
    assert prefix == "Pod resize error"
    assert json.loads(listed) == {
        "containers": [{"name": "a", "resources": CPU}], "generation": 4, "error": "busy",
    }  # fmt: skip
