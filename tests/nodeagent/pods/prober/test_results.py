"""What probes said outlives the agent."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nodeagent.pods.prober.results import KeptResult, ResultFiles
from tests.fakes.pods import container_data, pod
from tests.fakes.podworld import PodWorld

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
