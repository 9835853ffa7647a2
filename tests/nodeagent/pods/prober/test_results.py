"""Thresholds by the rules of the reference's prober worker, ports by name, results on disk."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nodeagent.pods.prober import results as prober_results
from nodeagent.pods.prober.results import KeptResult, ResultFiles, Tally
from orch.wire.records.handlers import Probe
from orch.wire.records.pods import Container
from tests.fakes.pods import container_data, pod
from tests.fakes.podworld import PodWorld

SEQUENCES = [
    # first, results (g good, b bad), successThreshold, failureThreshold, expected
    (None, "g", 1, 3, True),
    (False, "g", 1, 3, True),
    (True, "bb", 1, 3, True),
    (True, "bbb", 1, 3, False),
    (True, "bbgbb", 1, 3, True),
    (True, "bbgbbb", 1, 3, False),
    (False, "gg", 3, 3, False),
    (False, "ggg", 3, 3, True),
    (False, "gbgg", 3, 3, False),
    (True, "b", 1, 1, False),
    (None, "bb", 1, 3, None),
]


@pytest.mark.parametrize(("first", "results", "successes", "failures", "good"), SEQUENCES)
def test_a_result_changes_after_enough_equal_results(
    first: bool | None, results: str, successes: int, failures: int, good: bool | None
) -> None:
    probe = Probe(successThreshold=successes, failureThreshold=failures)
    tally = Tally(first)
    for result in results:
        tally = prober_results.count(tally, result == "g", probe)
    assert tally.good is good


def test_defaults_are_those_of_the_reference() -> None:
    probe = Probe()
    assert prober_results.period_s(probe) == 10
    assert prober_results.timeout_s(probe) == 1
    tally = prober_results.count(Tally(False), True, probe)
    assert tally.good
    for _ in range(2):
        tally = prober_results.count(tally, False, probe)
    assert tally.good
    assert not prober_results.count(tally, False, probe).good


CONTAINER = Container.from_wire(
    container_data("app", ports=[{"name": "http", "containerPort": 8080}])
)


@pytest.mark.parametrize(("port", "number"), [(80, 80), ("81", 81), ("http", 8080)])
def test_a_port_is_a_number_or_a_name(port: int | str, number: int) -> None:
    assert prober_results.port_number(port, CONTAINER) == number


@pytest.mark.parametrize("port", ["https", 0, 70000, ""])
def test_a_port_that_does_not_exist_is_refused(port: int | str) -> None:
    with pytest.raises(ValueError, match="port"):
        prober_results.port_number(port, CONTAINER)


RESULTS = {"a" * 64: KeptResult(True, True), "b" * 64: KeptResult(True, False)}
PROBES = {
    f"{kind}Probe": {"exec": {"command": [kind]}, "periodSeconds": 5, "initialDelaySeconds": 5}
    for kind in ("startup", "readiness")
}


async def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "pods" / "u").mkdir(parents=True)
    files = ResultFiles(str(tmp_path))
    assert await files.load("u") == {}
    await files.save("u", RESULTS)
    assert await files.load("u") == RESULTS


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 1}', '{"a": {}}', '"x"', "\x00"])
async def test_what_cannot_be_read_is_nothing_known(tmp_path: Path, text: str) -> None:
    path = tmp_path / "pods" / "u"
    path.mkdir(parents=True)
    (path / "probes.json").write_text(text)
    assert await ResultFiles(str(tmp_path)).load("u") == {}


async def test_nothing_is_made_for_a_pod_that_is_gone(tmp_path: Path) -> None:
    await ResultFiles(str(tmp_path)).save("u", RESULTS)
    assert list(tmp_path.iterdir()) == []


async def test_what_cannot_be_kept_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = ResultFiles(str(tmp_path))
    in_the_way = tmp_path / "pods" / "u" / "probes.json"
    in_the_way.mkdir(parents=True)
    await files.save("u", RESULTS)
    await files.save("u", {})
    assert caplog.messages == [
        "what probes say is not kept for the next agent: cannot write "
        f"{in_the_way}: it is not a regular file and is left alone"
    ]
    in_the_way.rmdir()
    await files.save("u", RESULTS)
    assert await files.load("u") == RESULTS


@pytest.mark.looptime
async def test_a_restarted_agent_does_not_flip_what_probes_said_of_a_static_pod(
    world: PodWorld,
) -> None:
    await world.start(pod(container_data("app", **PROBES)))
    await world.until(lambda: (world.status().status.containerStatuses or [])[0].ready, within_s=60)
    await world.stop()
    heir = world.successor()
    shown: set[tuple[bool, bool | None]] = set()

    def note(_uid: str) -> None:
        [status] = heir.status().status.containerStatuses or []
        if status.state and status.state.running:
            shown.add((status.ready, status.started))

    heir.registry.on_status(note)
    asked = len(heir.runtime.called("exec_sync"))
    await heir.start(pod(container_data("app", **PROBES)))
    await asyncio.sleep(30)
    assert shown == {(True, True)}
    assert len(heir.runtime.called("exec_sync")) > asked, "and it is probed on"
