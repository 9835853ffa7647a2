"""The sizes that a node grants, across agents; whole resizes are in `worker/test_resizing.py`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from nodeagent.pods.counts import PodCounts
from nodeagent.pods.resize.allocations import Allocations
from nodeagent.pods.resize.state_file import StateFile
from orch.component.process.daemon import SetupError
from orch.wire.records.pods import Pod
from tests.fakes.pods import UID, container_data, pod

pytestmark = pytest.mark.looptime
ROOM = {"cpu": "1", "memory": "1Gi"}


class Told:
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def normal(self, _pod: Pod, reason: str, _message: str) -> None:
        self.reasons.append(reason)

    warning = normal


def allocations(path: Path, told: Told | None = None) -> Allocations:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    file = StateFile(path / "state", "what pods were granted")
    made = Allocations(file, told or Told(), PodCounts(), lambda: now)
    made.restore()
    return made


def wants(cpu: str, generation: int = 1) -> Pod:
    resources = {"requests": {"cpu": cpu}}
    container = container_data("app", resources=resources)
    return pod(container, metadata={"generation": generation}, resources=None)


def cpu_of(pod: Pod) -> str:
    resources = pod.spec.containers[0].resources
    assert resources and resources.requests
    return str(resources.requests["cpu"])


async def test_the_next_agent_grants_nothing_anew(tmp_path: Path) -> None:
    first = allocations(tmp_path)
    first.grant(wants("100m"), runs=False)
    assert await first.save()
    second = allocations(tmp_path)
    [seen] = await second.settle([wants("2", 2)], [], None)
    assert cpu_of(seen) == "100m", "what it has is known before the node is"
    second.grant(wants("2"), runs=True)
    assert cpu_of((await second.settle([wants("2", 2)], [], ROOM))[0]) == "100m"
    waits = second.pending(UID)
    assert waits is not None
    assert waits.reason == "Infeasible"


async def test_what_cannot_be_resized_takes_no_room_in_the_file(tmp_path: Path) -> None:
    """40 pods that name resources which the node does not have were a file of 100 MB, which the
    next agent refused.
    """
    kept = allocations(tmp_path)
    names = {f"{'d' * 60}.example.com/{number:060}": "0" for number in range(1000)}
    resources = {"requests": {"cpu": "100m", **names}, "limits": names}
    container = container_data("app", resources=resources)
    asked = pod(container, metadata={"generation": 1}, resources=None)
    kept.grant(asked, runs=False)
    assert await kept.save()
    assert (tmp_path / "state").stat().st_size < 1000
    smaller = {"requests": {"cpu": "50m", **names}, "limits": names}
    desired = pod(container_data("app", resources=smaller), metadata={"generation": 2})
    [seen] = await allocations(tmp_path).settle([desired], [], None)
    granted = seen.spec.containers[0].resources
    assert granted is not None
    assert granted.to_wire() == resources


async def test_nothing_is_granted_that_cannot_be_kept(tmp_path: Path) -> None:
    told = Told()
    kept = allocations(tmp_path, told)
    kept.grant(wants("100m"), runs=False)
    assert await kept.save()
    (tmp_path / "state").unlink()
    (tmp_path / "state").mkdir()
    desired = wants("200m", 2)
    assert cpu_of((await kept.settle([desired], [], ROOM))[0]) == "100m"
    assert told.reasons == []
    (tmp_path / "state").rmdir()
    assert cpu_of((await kept.settle([desired], [], ROOM))[0]) == "200m"
    assert told.reasons == ["ResizeStarted"]
    granted = allocations(tmp_path).of(UID)
    assert granted is not None
    assert granted.generation == 2


async def test_a_pod_is_granted_ten_sizes_a_second_at_most(tmp_path: Path) -> None:
    kept = allocations(tmp_path)
    kept.grant(wants("100m"), runs=False)
    assert cpu_of((await kept.settle([wants("200m", 2)], [], ROOM))[0]) == "200m"
    assert cpu_of((await kept.settle([wants("300m", 3)], [], ROOM))[0]) == "200m"
    assert kept.again_in_s is not None
    assert 0 < kept.again_in_s <= 0.1


async def test_an_entry_that_is_none_is_refused_by_its_uid(tmp_path: Path) -> None:
    StateFile(tmp_path / "state", "x").write({"uid-1": {"containers": 5}})
    with pytest.raises(SetupError, match="the entry of pod uid-1 cannot be read"):
        allocations(tmp_path)


async def test_pods_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    kept = allocations(tmp_path)
    kept.grant(wants("100m"), runs=False)
    kept.retain(set())
    assert kept.of(UID) is None


async def test_with_the_feature_switched_off_every_resize_is_infeasible(tmp_path: Path) -> None:
    kept = allocations(tmp_path)
    kept.enabled = False
    kept.grant(wants("200m"), runs=False)
    assert cpu_of((await kept.settle([wants("100m", 2)], [], ROOM))[0]) == "200m"
    waits = kept.pending(UID)
    assert waits is not None
    assert (waits.reason, waits.message) == ("Infeasible", "InPlacePodVerticalScaling is disabled")
