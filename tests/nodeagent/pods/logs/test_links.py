"""Links to container logs: made with a start, gone with the log, and never through a link."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from nodeagent.pods.logs.links import LogLinks
from tests.fakes.held_threads import cancel_in_thread
from tests.fakes.pods import UID, pod
from tests.fakes.podworld import PodWorld


@pytest.fixture
def links(tmp_path: Path) -> LogLinks:
    (tmp_path / "log").write_text("said\n")
    return LogLinks(str(tmp_path / "pods"))


async def test_a_link_leads_to_the_log_and_goes_with_it(links: LogLinks, tmp_path: Path) -> None:
    for name in ("web_shop_app-1", "web_shop_app-1", "x" * 300):
        await links.add(name, str(tmp_path / "log"))
    await links.add("web_shop_app-2", str(tmp_path / "absent"))
    made = tmp_path / "containers"
    assert (made / "web_shop_app-1.log").read_text() == "said\n"
    assert sorted(os.listdir(made)) == ["web_shop_app-1.log", "x" * 251 + ".log"]
    (made / "other").write_text("of somebody else")
    (made / "elsewhere").symlink_to("/etc/passwd")
    links.remove(str(tmp_path / "log"))
    assert sorted(os.listdir(made)) == ["elsewhere", "other"]


async def test_a_link_that_is_being_made_is_made_before_its_log_goes(
    links: LogLinks, tmp_path: Path
) -> None:
    making = asyncio.create_task(links.add("web_shop_app-1", str(tmp_path / "log")))
    await cancel_in_thread(making)
    assert os.listdir(tmp_path / "containers") == ["web_shop_app-1.log"]


async def test_links_of_pods_with_long_names_are_told_apart(
    links: LogLinks, tmp_path: Path
) -> None:
    """A tenant's pod took the link of another's with the same name, and a restart's was missing."""
    rests = [f"_{space}_{'c' * 63}-{'0' * 63}{number}" for space in "ab" for number in (1, 2)]
    for rest in rests:
        await links.add("p" * 253 + rest, str(tmp_path / "log"))
    made = sorted(os.listdir(tmp_path / "containers"))
    assert [name.lstrip("p") for name in made] == [f"{rest}.log" for rest in rests]
    assert {len(name) for name in made} == {255}


async def test_only_a_directory_of_logs_that_is_named_pods_has_links(tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    links = LogLinks(str(tmp_path / "logs"))
    await links.add("web_shop_app-1", str(tmp_path / "log"))
    links.remove("/")
    assert os.listdir(tmp_path) == ["log"]


async def test_no_link_is_made_through_a_link_and_that_is_said_once(
    links: LogLinks, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "host").mkdir()
    (tmp_path / "containers").symlink_to("host")
    for name in ("a", "b"):
        await links.add(name, str(tmp_path / "log"))
    links.remove("/")
    assert os.listdir(tmp_path / "host") == []
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "log collectors may not find container logs"
    ]


@pytest.mark.looptime
async def test_a_started_container_has_a_link_until_its_pod_is_gone(world: PodWorld) -> None:
    starting = world.runtime.hold("start_container")
    await world.start(pod())
    await starting.reached.wait()
    log = world.directory / f"logs/default_web_{UID}/app/0.log"
    log.touch()
    starting.release()
    await world.until(lambda: "app" in world.running())
    [container_id] = world.running().values()
    link = world.directory / f"containers/web_default_app-{container_id}.log"
    await world.until(link.is_symlink)
    assert link.readlink() == log
    world.source.set()
    await world.until(lambda: not link.is_symlink(), within_s=60)
