"""The agent's own mounts and the helper's: one contract, and what is said when there are none."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.pods.volumes import kernel_mounts, mounts
from nodeagent.pods.volumes.mounts import HelpedMounts, MountError, Mounts, OwnMounts
from nodeagent.pods.volumes.nfs import Share
from tests.fakes.mounts import CONFINED, running_helper, shared_directory

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")

USE = """
import os, pathlib, sys
from nodeagent.pods.volumes import kernel_mounts, mounts
root, socket, source = sys.argv[1:]
mounting = mounts.HelpedMounts(socket) if socket else mounts.OwnMounts()
pod = pathlib.Path(root, "pods/u")
try:
    mounting.tmpfs(pod / "volumes/secret/s", 4096)
    (pod / "volumes/secret/s/key").write_text("never on a disk")
    mounting.bind(os.open(source, os.O_PATH), pod / "volume-subpaths/c/0")
    print(os.listdir(pod / "volume-subpaths/c/0"))
    print(*kernel_mounts.mounts_on(pod / "volumes/secret/s"))
except mounts.MountError as error:
    print(type(error).__name__, error)
"""


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    with shared_directory(tmp_path / "root") as directory:
        for below in (
            "volumes/secret/s", "volumes/empty-dir/e", "volumes/nfs/n", "volume-subpaths/c/0",
        ):  # fmt: skip
            (directory / "pods/u" / below).mkdir(parents=True)
        yield directory


@pytest.fixture
def helped(root: Path, tmp_path: Path) -> Iterator[HelpedMounts]:
    with running_helper(root, tmp_path / "socket"):
        yield HelpedMounts(str(tmp_path / "socket"))


@pytest.fixture(params=["own", "helped"])
def mounting(request: pytest.FixtureRequest) -> Mounts:
    return OwnMounts() if request.param == "own" else request.getfixturevalue("helped")


def test_a_tmpfs_has_its_size_and_goes_though_a_file_is_open(mounting: Mounts, root: Path) -> None:
    place = root / "pods/u/volumes/empty-dir/e"
    mounting.tmpfs(place, 1 << 20)
    assert {m.filesystem for m in kernel_mounts.mounts_on(place)} == {"tmpfs"}
    usage = os.statvfs(place)
    assert usage.f_blocks * usage.f_frsize == 1 << 20
    with (place / "file").open("w"):
        mounts.clear(place, mounting)
    assert not kernel_mounts.mounts_on(place) and not list(place.iterdir())


def page_sizes() -> list[int]:
    found = Path("/sys/kernel/mm/hugepages").glob("hugepages-*kB")
    return [int(path.name.removeprefix("hugepages-").removesuffix("kB")) << 10 for path in found]


@pytest.mark.parametrize("page_bytes", page_sizes())
def test_huge_pages_have_their_size_and_go_though_a_file_is_open(
    mounting: Mounts, root: Path, page_bytes: int
) -> None:
    place = root / "pods/u/volumes/empty-dir/e"
    mounting.hugepages(place, page_bytes, 4 * page_bytes)
    assert {m.filesystem for m in kernel_mounts.mounts_on(place)} == {"hugetlbfs"}
    usage = os.statvfs(place)
    assert (usage.f_bsize, usage.f_blocks * usage.f_frsize) == (page_bytes, 4 * page_bytes)
    assert place.stat().st_mode & 0o7777 == 0o1777
    with (place / "file").open("w"):
        mounts.clear(place, mounting)
    assert not kernel_mounts.mounts_on(place) and not list(place.iterdir())


def test_pages_of_a_size_that_the_kernel_has_not_are_refused(mounting: Mounts, root: Path) -> None:
    with pytest.raises((MountError, OSError), match="Invalid argument"):
        mounting.hugepages(root / "pods/u/volumes/empty-dir/e", 3 << 20, None)


def test_a_share_that_cannot_be_mounted_says_why(mounting: Mounts, root: Path) -> None:
    """Nothing listens at the address; a kernel without a client says that."""
    place = root / "pods/u/volumes/nfs/n"
    with pytest.raises(MountError, match=r"no NFS client|onnection refused") as said:
        mounting.nfs(place, Share("127.255.255.254", "/exports/a b"))
    assert "Errno" not in str(said.value), "it becomes an event of the pod"
    assert not kernel_mounts.mounts_on(place)


@pytest.mark.parametrize("is_directory", [True, False])
def test_what_is_bound_is_what_was_open(
    mounting: Mounts, root: Path, tmp_path: Path, is_directory: bool
) -> None:
    source, place = tmp_path / "source", root / "pods/u/volume-subpaths/c/0"
    if is_directory:
        source.mkdir()
    else:
        place.rmdir()
        place.touch()
        source.touch()
    opened = os.open(source, os.O_PATH)
    try:
        mounting.bind(opened, place)
        assert place.samefile(source)
        mounting.unmount(place)
        assert not place.samefile(source)
    finally:
        os.close(opened)


def test_undoing_a_bind_undoes_nothing_of_its_source(
    mounting: Mounts, root: Path, tmp_path: Path
) -> None:
    """What is mounted in the source later is seen through the bind, as HostToContainer needs."""
    place = root / "pods/u/volume-subpaths/c/0"
    with shared_directory(tmp_path / "source") as source:
        (source / "below").mkdir()
        opened = os.open(source, os.O_PATH)
        mounting.bind(opened, place)
        os.close(opened)
        kernel_mounts.mount_tmpfs(str(source / "below"), 4096)
        assert kernel_mounts.mounts_on(place / "below")
        mounts.clear(place, mounting)
        assert kernel_mounts.mounts_on(source / "below")


def confined(root: Path, path: Path | str, source: Path) -> str:
    command = [*CONFINED, sys.executable, "-c", USE, root, path, source]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_an_agent_that_may_not_mount_is_told_what_to_do(root: Path, tmp_path: Path) -> None:
    said = confined(root, "", tmp_path)
    assert said.startswith("MountDenied the agent may not mount (Operation not permitted); ")
    assert "nodeagent-mounts.socket" in said and "drop-in in docs/systemd.md" in said


def test_an_agent_in_a_namespace_of_its_own_is_helped(
    helped: HelpedMounts, root: Path, tmp_path: Path
) -> None:
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "seen").touch()
    said = confined(root, tmp_path / "socket", tmp_path / "host")
    assert "'seen'" in said and "filesystem='tmpfs'" in said
    shown = root / "pods/u"  # as a runtime of the host sees it
    assert (shown / "volumes/secret/s/key").read_text() == "never on a disk"
    assert (shown / "volume-subpaths/c/0/seen").exists()


def test_an_agent_that_would_not_see_the_mount_does_not_believe_the_helper(
    helped: HelpedMounts, root: Path, tmp_path: Path
) -> None:
    subprocess.run(["mount", "--make-private", root], check=True)
    said = confined(root, tmp_path / "socket", tmp_path)
    assert said.startswith("MountError what the mount helper mounts on ")
    assert "is not seen by the agent; run `mount --make-shared`" in said


def test_a_helper_that_is_not_there_is_named(root: Path, tmp_path: Path) -> None:
    with pytest.raises(MountError, match=r"does not answer .* nodeagent-mounts\.socket"):
        HelpedMounts(str(tmp_path / "none")).unmount(root / "pods")


def test_what_stays_mounted_is_named(root: Path) -> None:
    place = root / "pods/u/volumes/secret/s"
    kernel_mounts.mount_tmpfs(str(place), 4096)

    class Idle(OwnMounts):
        def unmount(self, place: Path, *, share: bool = False) -> None:
            pass

    with pytest.raises(MountError, match=r"stays mounted \(tmpfs\)"):
        mounts.clear(place, Idle())
