"""Volumes that are mounted: memory, huge pages, shares of servers; some need root."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from nodeagent.pods.spec.references import ObjectData, Reference
from nodeagent.pods.volumes import kernel_mounts
from nodeagent.pods.volumes.mounts import MountDenied, MountError
from nodeagent.pods.volumes.nfs import Share
from nodeagent.pods.volumes.volumes import ProjectedData, VolumeError, VolumeStore
from tests.fakes.mounts import FakeMounts
from tests.fakes.pods import UID, pod

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")


@pytest.fixture
def store(tmp_path: Path) -> VolumeStore:
    return VolumeStore(str(tmp_path / "root"))


FAILED = 'MountVolume.SetUp failed for volume "v" :'  # of the reference agent


async def prepared(store: VolumeStore, **source: Any) -> str:
    return (await store.prepare(pod(volumes=[{"name": "v", **source}])))["v"]


@pytest.mark.parametrize("secrets", [100, 101])
async def test_one_pod_cannot_use_up_the_mounts_of_a_node(tmp_path: Path, secrets: int) -> None:
    made = FakeMounts()
    volumes = [{"name": "e", "emptyDir": {}}]
    volumes += [{"name": f"v{i}", "projected": {"sources": []}} for i in range(secrets)]
    parts = [{"name": "e", "mountPath": f"/{i}", "subPath": f"{i}"} for i in range(78)]
    mounts = {"volumeMounts": [{"name": "e", "mountPath": "/e"}, *parts]}
    asked = pod({"name": "a", **mounts}, {"name": "b", **mounts}, volumes=volumes)
    store = VolumeStore(str(tmp_path), made)
    if secrets == 100:
        await store.prepare(asked)
        assert len(made.calls) == secrets
        return
    with pytest.raises(VolumeError, match="101 mounted volumes and 156 sub-paths are more than"):
        await store.prepare(asked)
    assert not made.calls and not await store.uids()


@as_root
async def test_a_memory_volume_is_a_tmpfs_that_goes_with_its_pod(store: VolumeStore) -> None:
    path = await prepared(store, emptyDir={"medium": "Memory", "sizeLimit": "1Mi"})
    assert await prepared(store, emptyDir={"medium": "Memory", "sizeLimit": "1Mi"}) == path
    assert [m.filesystem for m in kernel_mounts.mounts_below(path)] == ["tmpfs"]
    assert Path(path).stat().st_mode & 0o7777 == 0o1777
    usage = os.statvfs(path)
    assert usage.f_blocks * usage.f_frsize == 2**20
    await store.remove(UID)
    assert kernel_mounts.mounts_below(path) == []
    assert not Path(path).exists()


@as_root
async def test_a_secret_never_reaches_the_disk(store: VolumeStore) -> None:
    known = ProjectedData(objects={Reference("Secret", "keys"): ObjectData({"key": b"s3cret"})})
    wanted = pod(volumes=[{"name": "v", "secret": {"secretName": "keys"}}])
    path = (await store.prepare(wanted, known))["v"]
    assert [m.filesystem for m in kernel_mounts.mounts_below(path)] == ["tmpfs"]
    assert Path(path, "key").read_bytes() == b"s3cret"
    assert (await store.prepare(wanted, known))["v"] == path
    await store.remove(UID)
    assert kernel_mounts.mounts_below(path) == []


async def test_secrets_stay_on_the_disk_where_they_were_put_without_a_mount(
    store: VolumeStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A container that runs would not see another file system mounted over them."""
    mounts = FakeMounts()
    mounts.refusal = MountDenied("start the helper")
    known = ProjectedData(objects={Reference("Secret", "keys"): ObjectData({"key": b"s3cret"})})
    wanted = pod(volumes=[{"name": "v", "secret": {"secretName": "keys"}}])
    path = (await VolumeStore(str(tmp_path / "root"), mounts).prepare(wanted, known))["v"]
    assert "secrets of pods are stored on disk" in caplog.text
    mounts.refusal = None
    await VolumeStore(str(tmp_path / "root"), mounts).prepare(wanted, known)
    assert mounts.calls == []
    assert Path(path, "key").read_bytes() == b"s3cret"


async def test_a_secret_waits_for_a_helper_that_fails(tmp_path: Path) -> None:
    mounts = FakeMounts()
    mounts.refusal = MountError("the mount helper does not answer")
    store = VolumeStore(str(tmp_path / "root"), mounts)
    known = ProjectedData(objects={Reference("Secret", "keys"): ObjectData({"key": b"s3cret"})})
    wanted = pod(volumes=[{"name": "v", "secret": {"secretName": "keys"}}])
    with pytest.raises(VolumeError, match=f"{FAILED} the mount helper does not answer"):
        await store.prepare(wanted, known)
    assert not list(tmp_path.glob("root/pods/*/volumes/secret/v/*"))


async def test_a_share_is_mounted_by_the_address_of_its_server(tmp_path: Path) -> None:
    made = FakeMounts()
    store = VolumeStore(str(tmp_path), made)
    path = await prepared(
        store, nfs={"server": "localhost", "path": "/exports/a b", "readOnly": True}
    )
    assert path == f"{store.pod_dir(UID)}/volumes/nfs/v"
    [(word, place, share)] = made.calls
    assert (word, place) == ("nfs", path)
    assert share in ("ro 127.0.0.1 /exports/a b", "ro ::1 /exports/a b")


async def test_the_other_volumes_of_a_pod_do_not_wait_for_a_server(tmp_path: Path) -> None:
    made = FakeMounts()
    made.refusal = MountError("the server has not answered within 20 s")
    store = VolumeStore(str(tmp_path), made)
    shown = {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}
    volumes = [
        {"name": "v", "nfs": {"server": "127.0.0.1", "path": "/"}},
        {"name": "d", "downwardAPI": shown},
    ]
    with pytest.raises(VolumeError, match=f"{FAILED} the server has not answered within 20 s"):
        await store.prepare(pod(volumes=volumes))
    assert (store.pod_dir(UID) / "volumes/downward-api/d/name").exists()


async def test_a_removal_waits_for_a_mount_though_nobody_else_does(tmp_path: Path) -> None:
    answers, asked, fake = threading.Event(), asyncio.Event(), FakeMounts()
    loop = asyncio.get_running_loop()

    def mount(place: Path, share: Share) -> None:
        loop.call_soon_threadsafe(asked.set)
        assert answers.wait(60)

    fake.nfs = mount  # type: ignore[method-assign]
    store = VolumeStore(str(tmp_path / "root"), fake)
    made = asyncio.ensure_future(prepared(store, nfs={"server": "127.0.0.1", "path": "/e"}))
    await asyncio.wait_for(asked.wait(), 30)
    removed = asyncio.ensure_future(store.remove(UID))
    await store.remove("another")
    assert await asyncio.wait((removed,), timeout=0.5) == (set(), {removed})
    answers.set()
    await asyncio.gather(made, removed)
    assert not store.pod_dir(UID).exists()


async def test_servers_that_do_not_answer_take_no_threads_from_others(tmp_path: Path) -> None:
    go_on, waiting = threading.Event(), threading.Semaphore(0)

    class Silent(FakeMounts):
        def nfs(self, place: Path, share: Share) -> None:
            waiting.release()
            go_on.wait(30)

    store = VolumeStore(str(tmp_path), Silent())
    share = [{"name": "v", "nfs": {"server": "127.0.0.1", "path": "/"}}]
    hung = [
        asyncio.ensure_future(store.prepare(pod(metadata={"uid": f"u{number}"}, volumes=share)))
        for number in range(50)
    ]
    try:
        async with asyncio.timeout(20):
            for _ in hung:
                while not waiting.acquire(blocking=False):
                    await asyncio.sleep(0.01)
            await asyncio.gather(*(asyncio.to_thread(int) for _ in range(50)))
    finally:
        go_on.set()
        await asyncio.gather(*hung)


PAGES = {"resources": {"limits": {"hugepages-2Mi": "4Mi", "memory": "1Mi"}}}
GIANT = {"resources": {"limits": {"hugepages-1Gi": "1Gi", "memory": "1Mi"}}}
MEDIA = [
    ("HugePages", [PAGES], str(2 << 20)),
    ("HugePages-2Mi", [PAGES, GIANT], str(2 << 20)),
    ("HugePages-1Gi", [PAGES, GIANT], str(1 << 30)),
    ("HugePages", [PAGES, GIANT], "can't be used if container requests multiple huge page sizes"),
    ("HugePages", [{}], "storage requested, but there is no resource request for huge pages"),
    ("HugePages-1Gi", [PAGES], "storage requested, but there is no resource request"),
    ("HugePages-", [PAGES], "is none of"),
    ("Disk", [PAGES], "is none of"),
]


@pytest.mark.parametrize(("medium", "asked", "outcome"), MEDIA)
async def test_huge_pages_are_of_the_size_that_the_pod_requests(
    tmp_path: Path, medium: str, asked: list[dict[str, Any]], outcome: str
) -> None:
    """K:pkg/volume/emptydir TestGetPageSizeMountOption."""
    made = FakeMounts()
    store = VolumeStore(str(tmp_path), made)
    containers = [{"name": f"c{number}", **fields} for number, fields in enumerate(asked)]
    volume = {"name": "v", "emptyDir": {"medium": medium, "sizeLimit": "4Mi"}}
    wanted = pod(*containers, volumes=[volume])
    if not outcome.isdecimal():
        with pytest.raises(VolumeError, match=outcome):
            await store.prepare(wanted)
        assert not made.calls
        return
    path = (await store.prepare(wanted))["v"]
    assert made.calls == [("hugepages", path, outcome, str(4 << 20))]


@as_root
async def test_huge_pages_go_with_their_pod(store: VolumeStore) -> None:
    volume = {"name": "v", "emptyDir": {"medium": "HugePages"}}
    path = (await store.prepare(pod({"name": "a", **PAGES}, volumes=[volume])))["v"]
    assert [m.filesystem for m in kernel_mounts.mounts_below(path)] == ["hugetlbfs"]
    await store.remove(UID)
    assert kernel_mounts.mounts_below(path) == [] and not Path(path).exists()


def test_mountinfo_is_read_with_its_escapes(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(
        "22 1 0:20 / /a\\040b rw - tmpfs tmpfs rw\n"
        "23 22 0:21 / /a\\040b/c rw shared:5 - ext4 /dev/x rw\n"
        "24 22 0:22 / /a\\040bc rw - tmpfs tmpfs rw\n"
    )
    with table.open("ab") as others:  # of anybody: the kernel escapes neither
        others.write(b"25 22 0:23 / /not\xfftext rw - ext4 /dev/y rw\n")
        others.write("26 22 0:24 / /a\x85\u2028\x0cb rw - ext4 /dev/y rw\n".encode())
    found = kernel_mounts.mounts_below("/a b", str(table))
    assert [(m.path, m.filesystem) for m in found] == [("/a b/c", "ext4"), ("/a b", "tmpfs")]


@pytest.mark.parametrize(
    ("entry", "shared"), [("shared:5", True), ("master:5", False), ("", False)]
)
def test_a_mount_is_shared_when_its_table_says_so(tmp_path: Path, entry: str, shared: bool) -> None:
    table = tmp_path / "mountinfo"
    line = f"22 1 0:20 / /a rw {entry} - tmpfs tmpfs rw".replace("  ", " ")
    table.write_text(f"21 0 0:19 / / rw shared:1 - ext4 /dev/x rw\n{line}\n")
    assert kernel_mounts.is_shared("/a/b", str(table)) is shared
    assert kernel_mounts.is_shared("/ab", str(table))
