"""Sub-paths in real directories; what is mounted needs root and a mount that is shared."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodeagent.pods.volumes import kernel_mounts, mounts, subpaths
from nodeagent.pods.volumes.mounts import OwnMounts
from nodeagent.pods.volumes.subpaths import SubPathError
from nodeagent.pods.volumes.volumes import VolumeError, VolumeStore
from nodeagent.runtime.base import Mount
from tests.fakes.mounts import FakeMounts, shared_directory
from tests.fakes.pods import UID

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")


@pytest.fixture(params=[1, 2])
def shared(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    with shared_directory(tmp_path / "shared", times=request.param) as directory:
        yield directory


@pytest.fixture
def private(tmp_path: Path) -> Iterator[Path]:
    """A directory whose mounts nobody else sees."""
    directory = tmp_path / "private"
    directory.mkdir()
    subprocess.run(["mount", "--bind", directory, directory], check=True)
    subprocess.run(["mount", "--make-private", directory], check=True)
    yield directory
    kernel_mounts.unmount(str(directory))


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    path = tmp_path / "volume"
    path.mkdir()
    path.chmod(0o777)
    return path


@as_root
def test_a_sub_path_is_mounted_where_the_runtime_finds_it(shared: Path, volume: Path) -> None:
    place = shared / "sub-paths" / "app" / "0"
    (volume / "a").mkdir()
    (volume / "a" / "file").write_text("seen")
    assert subpaths.bind(str(volume), f"{volume}/a", place, OwnMounts()) == str(place)
    assert (place / "file").read_text() == "seen"
    (volume / "a").rename(volume / "b")
    (volume / "a").symlink_to("/etc")
    assert (place / "file").read_text() == "seen", "what was reached stays what is mounted"
    mounts.clear(place, OwnMounts())
    subpaths.remove(shared / "sub-paths")
    assert (volume / "b" / "file").read_text() == "seen", "and is not removed with its mount"


@as_root
def test_a_file_can_be_a_sub_path_and_the_next_container_gets_its_own(
    shared: Path, volume: Path
) -> None:
    place = shared / "app" / "0"
    (volume / "one").write_text("one")
    (volume / "two").mkdir()
    subpaths.bind(str(volume), f"{volume}/one", place, OwnMounts())
    assert place.read_text() == "one"
    subpaths.bind(str(volume), f"{volume}/two", place, OwnMounts())
    assert place.is_dir()
    assert {mount.path for mount in kernel_mounts.mounts_below(str(place))} == {str(place)}


@as_root
def test_a_missing_sub_path_is_made_with_the_volumes_mode(volume: Path, shared: Path) -> None:
    volume.chmod(0o3777)  # as that of a memory volume with a group
    made = Path(subpaths.bind(str(volume), f"{volume}/a/b", shared / "app" / "0", OwnMounts()))
    assert (volume / "a" / "b").samefile(made)
    assert (volume / "a" / "b").stat().st_mode & 0o7777 == 0o3777


@as_root
def test_a_link_inside_the_volume_is_followed(volume: Path, shared: Path) -> None:
    (volume / "real").mkdir()
    (volume / "link").symlink_to("real")
    made = Path(subpaths.bind(str(volume), f"{volume}/link/new", shared / "app" / "0", OwnMounts()))
    assert (volume / "real" / "new").samefile(made)


@as_root
@pytest.mark.parametrize("name", [b"\xff", b"a\x0cb", b"a\rb", "a\u2028b".encode(), b"a\nb \\#"])
async def test_a_directory_of_any_name_is_a_sub_path_and_harms_no_other_pod(
    shared: Path, name: bytes
) -> None:
    """The kernel shows that name to whoever reads the mounts of the host."""
    store = VolumeStore(str(shared / "root"))
    volume = store.pod_dir(UID) / "volumes" / "empty-dir" / "v"
    volume.mkdir(parents=True)
    os.mkdir(os.fsencode(volume) + b"/" + name)
    (volume / "link").symlink_to(os.fsdecode(name))
    wanted = [Mount(f"{volume}/link", "/data")]
    [bound] = await store.bind_sub_paths(UID, "app", wanted, {"v": str(volume)})
    (volume / "link" / "file").touch()
    assert os.listdir(bound.host_path) == ["file"]
    (shared / "other").mkdir()
    OwnMounts().tmpfs(shared / "other", 4096)
    assert kernel_mounts.mounts_on(shared / "other")
    await store.remove(UID)
    assert await store.uids() == []


async def test_the_long_table_of_mounts_is_read_once_however_many_sub_paths_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, read = [], kernel_mounts.table
    monkeypatch.setattr(kernel_mounts, "table", lambda *a: reads.append(a) or read(*a))
    store = VolumeStore(str(tmp_path), FakeMounts())
    volume = store.pod_dir(UID) / "volumes" / "empty-dir" / "v"
    volume.mkdir(parents=True)
    wanted = [Mount(f"{volume}/{number}", f"/{number}") for number in range(30)]
    assert len(await store.bind_sub_paths(UID, "app", wanted, {"v": str(volume)})) == 30
    assert len(reads) == 1
    await store.remove(UID)
    assert len(reads) == 2


@as_root
def test_without_a_shared_mount_there_is_no_sub_path(volume: Path, private: Path) -> None:
    with pytest.raises(SubPathError, match=r"cannot mount subPath .* `mount --make-shared`"):
        subpaths.bind(str(volume), f"{volume}/a", private / "app" / "0", OwnMounts())


@pytest.mark.parametrize("below", ["out", "out/ssl", "out/new"])
def test_no_link_leads_out_of_the_volume(volume: Path, tmp_path: Path, below: str) -> None:
    (volume / "out").symlink_to("/etc")
    with pytest.raises(SubPathError, match="leads out of its volume through a link"):
        subpaths.bind(str(volume), f"{volume}/{below}", tmp_path / "p" / "0", OwnMounts())
    assert not Path("/etc/new").exists()


def test_a_link_put_there_after_the_look_is_not_followed(
    volume: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The race itself: the directory becomes a link between the check and the walk."""
    (volume / "a").mkdir()
    real = os.open

    def swapped(path: str, flags: int, **more: Any) -> int:
        """The walk reaches the volume."""
        if path == volume.name and (volume / "a").is_dir() and not (volume / "a").is_symlink():
            (volume / "a").rmdir()
            (volume / "a").symlink_to("/etc")
        return real(path, flags, **more)

    monkeypatch.setattr(os, "open", swapped)
    with pytest.raises(SubPathError, match="cannot make subPath"):
        subpaths.bind(str(volume), f"{volume}/a/ssl", tmp_path / "p" / "0", OwnMounts())


@as_root
async def test_a_pods_sub_paths_go_with_it_and_their_content_stays(shared: Path) -> None:
    store = VolumeStore(str(shared / "root"))
    host = shared / "host"
    (host / "kept").mkdir(parents=True)
    (host / "kept" / "file").write_text("precious")
    wanted = [Mount(str(host), "/whole"), Mount(f"{host}/kept", "/part", readonly=True)]
    whole, part = await store.bind_sub_paths(UID, "app", wanted, {"v": str(host)})
    assert whole == wanted[0]
    assert Path(part.host_path, "file").read_text() == "precious"
    assert part.readonly
    await store.remove(UID)
    assert await store.uids() == []
    assert (host / "kept" / "file").read_text() == "precious"


async def test_a_sub_path_that_cannot_be_is_a_volume_error(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("/etc")
    wanted = [Mount(f"{tmp_path}/out", "/data")]
    with pytest.raises(VolumeError, match="leads out of its volume"):
        await VolumeStore(str(tmp_path / "root")).bind_sub_paths(
            UID, "app", wanted, {"v": str(tmp_path)}
        )
