"""Directories and their modes under the umask of the shipped unit."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.pods.logs.termination_messages import TerminationMessages
from nodeagent.pods.volumes import directories
from nodeagent.pods.volumes.volumes import VolumeStore
from orch.wire.records.pods import Container
from tests.fakes.pods import UID, pod
from tests.fakes.podworld import PodWorld


@pytest.fixture(autouse=True)
def strict_umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


def mode(path: Path | str) -> int:
    return Path(path).stat().st_mode & 0o7777


def test_a_directory_and_its_parents_get_the_mode_asked_for(tmp_path: Path) -> None:
    directories.make(tmp_path / "a/b", 0o751)
    directories.make(tmp_path / "a/b", 0o700)  # one that is there is left alone
    assert (mode(tmp_path / "a"), mode(tmp_path / "a/b")) == (0o751, 0o751)


def test_a_file_in_the_way_is_said(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    with pytest.raises(NotADirectoryError):
        directories.make(tmp_path / "a")


@pytest.mark.parametrize("below", ["pod", "pod/app"])
def test_no_directory_is_made_through_a_link(tmp_path: Path, below: str) -> None:
    """As a pod could leave one in the directory of all logs."""
    (tmp_path / "host").mkdir()
    (tmp_path / "pod").symlink_to("host")
    with pytest.raises(OSError, match="is a link"):
        directories.make(tmp_path / below, unlinked=len(Path(below).parts))
    assert not list((tmp_path / "host").iterdir())


async def test_volumes_can_be_read_by_users_other_than_root(tmp_path: Path) -> None:
    item = {"path": "sub/name", "fieldRef": {"fieldPath": "metadata.name"}}
    made = await VolumeStore(str(tmp_path / "root")).prepare(
        pod(
            volumes=[
                {"name": "e", "emptyDir": {}},
                {"name": "d", "downwardAPI": {"items": [item]}},
                {
                    "name": "h",
                    "hostPath": {"path": str(tmp_path / "h/i"), "type": "DirectoryOrCreate"},
                },
                {"name": "f", "hostPath": {"path": str(tmp_path / "f"), "type": "FileOrCreate"}},
            ]
        )
    )
    assert mode(made["e"]) == 0o777
    assert mode(made["d"]) == 0o755
    assert mode(Path(made["d"], "sub")) == 0o755
    assert mode(Path(made["d"], "sub/name")) == 0o644
    assert (mode(made["h"]), mode(tmp_path / "h"), mode(made["f"])) == (0o755, 0o755, 0o644)


async def test_a_container_of_any_user_can_leave_its_last_words(tmp_path: Path) -> None:
    messages = TerminationMessages(str(tmp_path))
    mount = await messages.mount(UID, Container(name="c"), 0)
    assert mode(mount.host_path) == 0o666


@pytest.mark.looptime
async def test_logs_can_be_read_as_the_reference_agents_can(world: PodWorld) -> None:
    await world.start(pod())
    await world.until(lambda: "app" in world.running())
    [directory] = world.directory.glob("logs/*")
    assert (mode(directory), mode(directory / "app")) == (0o755, 0o755)
