"""Volumes in a real directory; to give them to a group needs root."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from nodeagent import descriptors
from nodeagent.pods.spec import volume_files
from nodeagent.pods.spec.references import ObjectData, Reference
from nodeagent.pods.volumes import directories
from nodeagent.pods.volumes.volumes import ProjectedData, VolumeError, VolumeStore
from tests.fakes.mounts import FakeMounts
from tests.fakes.pods import UID, pod
from tests.fakes.podworld import named

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="giving files to a group needs root")


@pytest.fixture
def store(tmp_path: Path) -> VolumeStore:
    return VolumeStore(str(tmp_path / "root"))


FAILED = 'MountVolume.SetUp failed for volume "v" :'  # of the reference agent
SHARE = {"server": "127.0.0.1", "path": "/"}


async def prepared(store: VolumeStore, **source: Any) -> str:
    return (await store.prepare(pod(volumes=[{"name": "v", **source}])))["v"]


async def test_an_empty_dir_is_made_once_and_keeps_its_content(store: VolumeStore) -> None:
    path = Path(await prepared(store, emptyDir={}))
    assert path == store.pod_dir(UID) / "volumes/empty-dir/v"
    assert path.stat().st_mode & 0o777 == 0o777
    (path / "file").write_text("kept")
    assert await prepared(store, emptyDir={}) == str(path)
    assert (path / "file").read_text() == "kept"


async def test_removal_takes_everything_and_can_be_repeated(store: VolumeStore) -> None:
    path = Path(await prepared(store, emptyDir={}))
    (path / "deep").mkdir()
    (path / "deep/link").symlink_to("/etc")
    assert await store.uids() == [UID]
    await store.remove(UID)
    await store.remove(UID)
    assert await store.uids() == []
    assert Path("/etc").exists()


async def test_a_pod_directory_that_cannot_be_made_is_the_volumes_error_too(
    store: VolumeStore, tmp_path: Path
) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root/pods").touch()
    with pytest.raises(VolumeError, match=r"the directory of the pod: .*Not a directory"):
        await store.prepare(pod())


@pytest.mark.parametrize("uid", ["", ".", "..", "a/b"])
async def test_only_a_uid_names_a_pod_to_remove(store: VolumeStore, uid: str) -> None:
    with pytest.raises(VolumeError, match="is not a pod uid"):
        await store.remove(uid)


async def test_removing_many_large_pods_leaves_threads_for_others(
    store: VolumeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, begun = threading.Event(), list[str]()

    def remove_slowly(path: Path) -> None:
        begun.append(path.name)
        go_on.wait(30)
        shutil.rmtree(path)

    monkeypatch.setattr(descriptors, "remove_tree", remove_slowly)
    uids = [f"u{number}" for number in range(50)]
    for uid in uids:
        store.pod_dir(uid).mkdir(parents=True)
    removals = [asyncio.ensure_future(store.remove(uid)) for uid in uids]
    try:
        async with asyncio.timeout(20):
            while not begun:
                await asyncio.sleep(0.01)
            await asyncio.gather(*(asyncio.to_thread(int) for _ in range(50)))
        assert len(begun) <= 2
    finally:
        go_on.set()
        await asyncio.gather(*removals)
    assert sorted(begun) == sorted(uids) and await store.uids() == []


@pytest.mark.parametrize("shares", [(), ({"name": "s", "nfs": SHARE},)])
async def test_making_many_large_volumes_leaves_threads_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shares: tuple[dict[str, Any], ...]
) -> None:
    """60 pods that showed one object of 15,000 keys kept all others from starting."""
    store = VolumeStore(str(tmp_path), FakeMounts())
    go_on, begun = threading.Event(), list[str]()

    def write_slowly(path: Path, *_: object, **__: object) -> None:
        begun.append(path.parents[2].name)
        go_on.wait(30)

    monkeypatch.setattr(directories, "write", write_slowly)
    shown = {"downwardAPI": {"items": []}}
    volumes = [*shares, {"name": "v", **shown}]
    pods = [named(pod(volumes=volumes), f"p{n}", f"u{n}") for n in range(50)]
    pods[49].metadata.namespace = "other"
    making = [asyncio.ensure_future(store.prepare(one)) for one in pods]
    try:
        async with asyncio.timeout(20):
            while "u49" not in begun:
                await asyncio.sleep(0.01)
            await asyncio.gather(*(asyncio.to_thread(int) for _ in range(50)))
        assert sorted(begun) == ["u0", "u1", "u49"]
    finally:
        go_on.set()
        await asyncio.gather(*making)
    assert len(begun) == 50


HOST_PATHS = [
    ("Directory", "dir", ""),
    ("Directory", "file", "hostPath type check failed: "),
    ("Directory", "none", "none is not a directory"),
    ("DirectoryOrCreate", "none", ""),
    ("File", "file", ""),
    ("File", "dir", "is not a file"),
    ("FileOrCreate", "none", ""),
    ("Socket", "file", "is not a socket"),
    ("CharDevice", "file", "is not a character device"),
    ("", "none", ""),
    ("Folder", "dir", "hostPath.type 'Folder' is not one of"),
]


@pytest.mark.parametrize(("kind", "name", "problem"), HOST_PATHS)
async def test_a_host_path_is_what_its_type_says(
    store: VolumeStore, tmp_path: Path, kind: str, name: str, problem: str
) -> None:
    (tmp_path / "dir").mkdir()
    (tmp_path / "file").touch()
    path = str(tmp_path / name)
    if problem:
        with pytest.raises(VolumeError, match=problem) as caught:
            await prepared(store, hostPath={"path": path, "type": kind})
        assert str(caught.value).startswith(f"{FAILED} ")
    else:
        assert await prepared(store, hostPath={"path": path, "type": kind}) == path
        assert not kind or Path(path).exists()


@pytest.mark.parametrize("kind", ["DirectoryOrCreate", "FileOrCreate"])
async def test_a_host_path_that_the_agent_may_not_make_points_to_its_unit(
    store: VolumeStore, kind: str
) -> None:
    with pytest.raises(VolumeError) as caught:  # where nobody can make one
        await prepared(store, hostPath={"path": "/sys/data", "type": kind})
    said = str(caught.value)
    assert said.startswith(f"{FAILED} hostPath /sys/data cannot be made: ") and "Errno" not in said
    assert said.endswith("unit forbids it, allow it with a drop-in (docs/systemd.md)")


async def test_a_source_the_agent_does_not_know_is_named(store: VolumeStore) -> None:
    with pytest.raises(VolumeError, match=f"{FAILED} the source cephfs is not supported"):
        await prepared(store, cephfs={"monitors": ["x"]})


@as_root
async def test_a_group_may_write_to_the_pods_own_volumes(store: VolumeStore) -> None:
    grouped = {"securityContext": {"fsGroup": 1234}}
    item = {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}
    wanted = pod(
        volumes=[
            {"name": "e", "emptyDir": {}},
            {"name": "m", "emptyDir": {"medium": "Memory"}},
            {"name": "d", "downwardAPI": {"items": [item], "defaultMode": 0o400}},
        ],
        **grouped,
    )
    made = await store.prepare(wanted)
    for name, mode in {"e": 0o2777, "m": 0o3777}.items():
        status = Path(made[name]).stat()
        assert (status.st_gid, status.st_mode & 0o7777) == (1234, mode)
    shown = Path(made["d"], "name").stat()
    assert (shown.st_gid, shown.st_mode & 0o777) == (1234, 0o440)
    await store.remove(UID)


SETTINGS = ObjectData({"color": b"red", "size": b"9"})


async def test_a_config_map_is_files_that_follow_it(store: VolumeStore) -> None:
    wanted = pod(volumes=[{"name": "v", "configMap": {"name": "settings"}}])
    reference = Reference("ConfigMap", "settings")
    path = Path((await store.prepare(wanted, ProjectedData(objects={reference: SETTINGS})))["v"])
    assert (path / "color").read_text() == "red"
    changed = ObjectData({"color": b"blue"})
    await store.prepare(wanted, ProjectedData(objects={reference: changed}))
    assert (path / "color").read_text() == "blue"
    assert not (path / "size").exists()


async def test_the_volumes_of_one_pod_are_bounded_together(tmp_path: Path) -> None:
    items = [{"key": "color", "path": str(number)} for number in range(40)]
    source = {"configMap": {"name": "settings", "items": items}}
    wanted = pod(volumes=[{"name": name, **source} for name in ("v", "w")])
    large = {Reference("ConfigMap", "settings"): ObjectData({"color": b"x" * 2**20})}
    with pytest.raises(VolumeError, match=r'for volume "w" : .* show more than .* 64 MiB'):
        await VolumeStore(str(tmp_path)).prepare(wanted, ProjectedData(objects=large))
    assert not list(tmp_path.glob("pods/*/volumes/configmap/w/*"))


@pytest.mark.parametrize(("count", "size_bytes"), [(15, 2**17), (300, 1)])
async def test_a_namespace_has_a_share_of_the_memory_that_secrets_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, size_bytes: int
) -> None:
    """It is the agent's: eight pods of 64 MiB would have it end, or of 15,000 files."""
    monkeypatch.setattr(volume_files, "MAX_IN_MEMORY", 4 << 20)
    store = VolumeStore(str(tmp_path), FakeMounts())
    items = [{"key": "k", "path": str(number)} for number in range(count)]
    secret = {"secret": {"secretName": "s", "items": items}}
    large = ProjectedData(objects={Reference("Secret", "s"): ObjectData({"k": bytes(size_bytes)})})
    pods = [named(pod(volumes=[{"name": "v", **secret}]), f"p{n}", f"u{n}") for n in range(4)]
    pods[3].metadata.namespace = "other"
    for one in (*pods[:2], pods[0], pods[3]):
        await store.prepare(one, large)
    with pytest.raises(VolumeError, match="namespace default on this node show more than 4 MiB"):
        await store.prepare(pods[2], large)
    await store.remove("u0")
    await store.prepare(pods[2], large)


async def test_an_object_that_is_not_there_is_named(store: VolumeStore) -> None:
    wanted = pod(volumes=[{"name": "v", "configMap": {"name": "settings"}}])
    absent = {Reference("ConfigMap", "settings"): ObjectData(absent=True)}
    with pytest.raises(VolumeError, match=f'{FAILED} configmap "settings" not found'):
        await store.prepare(wanted, ProjectedData(objects=absent))
