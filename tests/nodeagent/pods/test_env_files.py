"""Variables from files that an init container writes into an emptyDir."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from nodeagent.pods.volumes.volumes import VolumeStore
from orch.wire.records.pods import Pod
from tests.fakes.pods import UID, container_data, pod
from tests.fakes.podworld import PodWorld

VOLUME = [{"name": "v", "emptyDir": {}}, {"name": "d", "downwardAPI": {"items": []}}]
NAME = ("v", "made/env")


def asking(volume: str = "v", path: str = "made/env", **fields: Any) -> Pod:
    wanted = {"volumeName": volume, "path": path, "key": "A", **fields}
    env = [{"name": "SHOWN", "valueFrom": {"fileKeyRef": wanted}}]
    first = container_data("first")
    app = container_data("app", env=env)
    return pod(app, initContainers=[first], volumes=VOLUME)


@pytest.mark.looptime
async def test_a_container_starts_with_what_its_init_container_wrote(world: PodWorld) -> None:
    await world.start(asking())
    await world.until(lambda: "first" in world.running())
    [made] = Path(world.settings.root_dir).glob("pods/*/volumes/empty-dir/v")
    world.runtime.exit(world.running()["first"], 0)
    await world.until(lambda: world.waiting() == "CreateContainerConfigError")
    waiting = world.state().waiting
    assert waiting and waiting.message == "file 'made/env' of volume 'v': it does not exist"
    (made / "made").mkdir()
    (made / "made/env").write_text("A='x=$(HOME)'\n")
    await world.until(lambda: "app" in world.running(), within_s=60)
    assert dict(world.made("app").spec.env)["SHOWN"] == "x=$(HOME)"


@pytest.mark.looptime
async def test_an_optional_key_without_a_file_is_left_out(world: PodWorld) -> None:
    await world.start(asking(optional=True))
    await world.until(lambda: "first" in world.running())
    world.runtime.exit(world.running()["first"], 0)
    await world.until(lambda: "app" in world.running())
    assert "SHOWN" not in dict(world.made("app").spec.env)


def fifo(place: Path) -> None:
    os.mkfifo(place)


def sparse(place: Path) -> None:
    with place.open("wb") as file:
        file.truncate(2**40)


def listening(place: Path) -> None:
    os.mknod(place, stat.S_IFSOCK | 0o600)


MADE = [
    (lambda place: place.symlink_to("/etc/hostname"), "link|many levels"),
    (fifo, "not a regular file"),
    (lambda place: place.mkdir(), "not a regular file|directory"),
    (lambda place: place.write_bytes(b"A='" + b"x" * 65536 + b"'"), "more than 65536 bytes"),
    (sparse, "more than 65536 bytes"),
    (listening, "No such device"),
    (lambda place: place.write_bytes(b"A='\xff'"), "can't decode"),
    (lambda place: place.write_text("A=1"), "line 1 is not NAME='value'"),
]


@pytest.mark.parametrize(("make", "problem"), MADE)
async def test_what_a_container_put_in_the_place_of_a_file_is_not_followed(
    tmp_path: Path, make: Any, problem: str
) -> None:
    store, wanted = VolumeStore(str(tmp_path)), asking()
    path = Path((await store.prepare(wanted))["v"])
    (path / "made").mkdir()
    make(path / "made/env")
    found = (await store.env_files(wanted, wanted.spec.containers[0]))[NAME]
    assert not found.values and re.search(problem, found.problem)


async def test_thousands_of_files_are_not_read(tmp_path: Path) -> None:
    """Each may have 64 KiB; together they took 400 MB of the agent's memory."""
    sources = [{"volumeName": "v", "path": f"{n}", "key": "A"} for n in range(100)]
    env = [{"name": f"V{n}", "valueFrom": {"fileKeyRef": s}} for n, s in enumerate(sources)]
    store, wanted = VolumeStore(str(tmp_path)), pod(container_data("app", env=env), volumes=VOLUME)
    path = Path((await store.prepare(wanted))["v"])
    for number in range(100):
        (path / f"{number}").write_text("A='x'")
    found = await store.env_files(wanted, wanted.spec.containers[0])
    assert len(found) == 100
    assert sum(bool(file.values) for file in found.values()) == 32
    assert "come from 32 files at most" in found["v", "99"].problem


async def test_a_directory_swapped_for_a_link_leads_nowhere(tmp_path: Path) -> None:
    store, wanted = VolumeStore(str(tmp_path)), asking()
    path = Path((await store.prepare(wanted))["v"])
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/env").write_text("A='secret'")
    (path / "made").symlink_to(tmp_path / "elsewhere")
    found = (await store.env_files(wanted, wanted.spec.containers[0]))[NAME]
    assert not found.values and "link" in found.problem


@pytest.mark.parametrize(
    "path", ["../../../../../env", "/etc/hostname", "made/../env", "a\0b", "."]
)
async def test_a_path_leads_nowhere_else(tmp_path: Path, path: str) -> None:
    """One with NUL, which API servers let pass, was an unexpected error of the pod's worker."""
    store, wanted = VolumeStore(str(tmp_path)), asking(path=path)
    await store.prepare(wanted)
    (tmp_path / "env").write_text("A='secret'")
    found = (await store.env_files(wanted, wanted.spec.containers[0]))["v", path]
    assert found.problem == "its path must be relative, without '..' and NUL"


async def test_files_of_other_volumes_are_not_read(tmp_path: Path) -> None:
    store, wanted = VolumeStore(str(tmp_path)), asking(volume="d", path="env")
    await store.prepare(wanted)
    found = (await store.env_files(wanted, wanted.spec.containers[0]))["d", "env"]
    assert found.problem == "the volume is not an emptyDir of the pod"
    assert store.pod_dir(UID).exists()
