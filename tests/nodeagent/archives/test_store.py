"""The store takes nothing on trust: neither its own directory nor what the runtime wrote."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pyrage
import pytest

from nodeagent.archives.encryption import Encryption
from nodeagent.archives.manifest import Manifest, parse_manifest
from nodeagent.archives.store import CheckpointStore, NameTaken, StoreError

ID = "c0ffee" * 10
NAME = "checkpoint-web_shop-app-2026-01-31T12:00:00Z.tar"
BESIDE = f"{NAME}.json"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    store = CheckpointStore(str(tmp_path))
    store.prepare()
    return store


@pytest.fixture
def directory(tmp_path: Path, store: CheckpointStore) -> Path:
    return tmp_path / "checkpoints"


def publish(store: CheckpointStore, name: str = NAME) -> Path:
    digest = store.seal(ID)
    manifest = Manifest(name, container_id=ID, size_bytes=digest.size_bytes, sha256=digest.sha256)
    store.publish(ID, manifest)
    return store.path / name


def visible(directory: Path) -> list[str]:
    return sorted(name for name in os.listdir(directory) if not name.startswith("."))


def test_the_directory_is_private_and_its_parent_not_public(tmp_path: Path) -> None:
    CheckpointStore(str(tmp_path / "root")).prepare()

    assert mode(tmp_path / "root") & 0o027 == 0
    assert mode(tmp_path / "root" / "checkpoints") == 0o700


def test_a_directory_open_to_others_is_closed_to_them(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir(mode=0o777)

    CheckpointStore(str(tmp_path)).prepare()

    assert mode(tmp_path / "checkpoints") == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_user_is_refused(directory: Path, store: CheckpointStore) -> None:
    os.chown(directory, 65534, 65534)

    with pytest.raises(StoreError, match="belongs to user 65534"):
        store.begin(ID)


def link_elsewhere(path: Path) -> None:
    path.symlink_to(path.parent / "elsewhere")


@pytest.mark.parametrize("make", [link_elsewhere, Path.touch, os.mkfifo])
def test_anything_but_a_directory_is_refused_and_unchanged(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    (tmp_path / "elsewhere").mkdir()
    make(tmp_path / "checkpoints")

    with pytest.raises(StoreError, match="is not a directory"):
        CheckpointStore(str(tmp_path)).prepare()
    assert os.listdir(tmp_path / "elsewhere") == []


def test_an_archive_appears_whole_and_private_under_its_final_name_only(
    directory: Path, store: CheckpointStore
) -> None:
    partial = Path(store.begin(ID))
    assert partial.parent == directory
    assert not partial.exists()
    partial.write_bytes(b"data")
    partial.chmod(0o644)
    assert visible(directory) == []

    path = publish(store)
    store.discard(ID)

    assert path == directory / NAME
    assert sorted(os.listdir(directory)) == [NAME, BESIDE]
    assert mode(path) == mode(directory / BESIDE) == 0o600
    assert path.read_bytes() == b"data"
    manifest = parse_manifest((directory / BESIDE).read_bytes())
    assert (manifest.name, manifest.size_bytes) == (NAME, 4)
    assert manifest.sha256 == hashlib.sha256(b"data").hexdigest()
    assert path.stat().st_nlink == 1


def test_a_manifest_is_whole_when_the_disk_takes_it_in_pieces(
    directory: Path, store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(store.begin(ID)).write_bytes(b"data")
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:10]))

    publish(store)

    assert parse_manifest((directory / BESIDE).read_bytes()).name == NAME


def existing_link(path: Path) -> None:
    path.symlink_to(path.parent / "victim")


@pytest.mark.parametrize("make", [Path.touch, Path.mkdir, os.mkfifo, existing_link])
def test_an_existing_name_is_never_written_to(
    directory: Path, store: CheckpointStore, make: Callable[[Path], None]
) -> None:
    (directory / "victim").write_text("untouched")
    make(directory / NAME)
    before = (directory / NAME).lstat()
    Path(store.begin(ID)).write_bytes(b"data")

    with pytest.raises(NameTaken):
        publish(store)

    assert (directory / NAME).lstat() == before
    assert (directory / "victim").read_text() == "untouched"
    assert publish(store, f"{NAME}.2").read_bytes() == b"data"


def nothing(path: Path) -> None:
    return


def link_to_secret(path: Path) -> None:
    (path.parent / "secret").write_text("secret")
    path.symlink_to("secret")


def second_name(path: Path) -> None:
    path.write_text("data")
    os.link(path, path.parent / "second")


@pytest.mark.parametrize(
    ("write", "told"),
    [
        (nothing, "wrote no archive"),
        (Path.touch, "an empty archive"),
        (Path.mkdir, "not a regular file"),
        (os.mkfifo, "not a regular file"),
        (second_name, "not a regular file"),
        (link_to_secret, "cannot be opened: Too many levels of symbolic links"),
    ],
)
def test_the_runtime_must_have_written_a_regular_file_with_one_name(
    directory: Path, store: CheckpointStore, write: Callable[[Path], None], told: str
) -> None:
    write(Path(store.begin(ID)))

    with pytest.raises(StoreError, match=told):
        publish(store)
    assert NAME not in os.listdir(directory)


def test_a_failed_removal_is_repeated_with_the_next_checkpoint(
    directory: Path, store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(store.begin(ID)).write_bytes(b"half")
    with monkeypatch.context() as failing:
        failing.setattr(os, "unlink", lambda *_, **__: _raise(OSError(5, "Input/output error")))
        with pytest.raises(OSError):
            store.discard(ID)
    store.begin("another")
    assert not [name for name in os.listdir(directory) if ID in name and "partial" in name]
    store.discard("another")


def _raise(error: Exception) -> None:
    raise error


def test_a_discarded_checkpoint_leaves_nothing(directory: Path, store: CheckpointStore) -> None:
    Path(store.begin(ID)).write_bytes(b"half")

    store.discard(ID)
    store.discard(ID)

    assert os.listdir(directory) == []


def test_a_file_of_an_earlier_attempt_is_removed_before_the_runtime_writes(
    directory: Path, store: CheckpointStore
) -> None:
    partial = Path(store.begin(ID))
    store.discard(ID)
    partial.write_bytes(b"written by the runtime after it was told to stop")

    assert store.begin(ID) == str(partial)
    assert not partial.exists()


def test_a_late_file_of_the_runtime_is_removed_with_any_next_checkpoint(
    directory: Path, store: CheckpointStore
) -> None:
    late = Path(store.begin(ID))
    store.discard(ID)
    late.write_bytes(b"written by the runtime after it was told to stop")

    store.begin("another")

    assert not late.exists()


def test_a_container_that_may_be_frozen_is_remembered_without_its_archive(
    directory: Path, store: CheckpointStore
) -> None:
    Path(store.begin(ID)).write_bytes(b"half")

    store.discard(ID, keep_marker=True)

    assert len(os.listdir(directory)) == 1
    assert store.prepare() == {ID: Manifest("")}


def test_the_next_start_removes_files_and_returns_interrupted_containers(
    tmp_path: Path, directory: Path, store: CheckpointStore
) -> None:
    Path(store.begin(ID)).write_bytes(b"half")
    Path(store.begin("another", Manifest("", pod="web"))).write_bytes(b"half")
    (directory / NAME).write_bytes(b"whole")

    restarted = CheckpointStore(str(tmp_path))

    assert restarted.prepare() == {"another": Manifest("", pod="web"), ID: Manifest("")}
    assert visible(directory) == [NAME]
    for container_id in (ID, "another"):
        restarted.discard(container_id)
    assert os.listdir(directory) == [NAME]
    assert restarted.prepare() == {}


def test_cleanup_skips_checkpoints_in_progress(store: CheckpointStore) -> None:
    partial = Path(store.begin(ID))
    partial.write_bytes(b"being written")

    assert store.prepare() == {}
    assert partial.exists()


def test_a_name_too_long_for_the_file_system_is_refused_before_anything_happens(
    store: CheckpointStore,
) -> None:
    store.check_name("x" * 250)  # with .json behind it
    with pytest.raises(StoreError, match="would be 1 bytes longer"):
        store.check_name("x" * 251)


@pytest.mark.parametrize("make", [Path.touch, Path.mkdir, existing_link])
def test_a_manifest_that_is_in_the_way_is_never_written_to(
    directory: Path, store: CheckpointStore, make: Callable[[Path], None]
) -> None:
    (directory / "victim").write_text("untouched")
    Path(store.begin(ID)).write_bytes(b"data")
    make(directory / BESIDE)
    before = (directory / BESIDE).lstat()

    with pytest.raises(NameTaken):
        publish(store)

    assert (directory / BESIDE).lstat() == before
    assert (directory / "victim").read_text() == "untouched"
    assert NAME not in os.listdir(directory)


def test_a_file_that_was_being_replaced_when_the_agent_was_killed_is_removed(
    directory: Path, store: CheckpointStore
) -> None:
    (directory / ".0123456789abcdef.unfinished").write_bytes(b"half a manifest")
    store.prepare()
    assert os.listdir(directory) == []


def test_a_manifest_whose_archive_never_came_is_removed_by_the_next_start(
    tmp_path: Path, directory: Path, store: CheckpointStore
) -> None:
    (directory / BESIDE).write_text("{}")
    (directory / "notes.json").write_text("not of the store")

    CheckpointStore(str(tmp_path)).prepare()

    assert os.listdir(directory) == ["notes.json"]


def test_an_encrypted_archive_never_lies_open_beside_its_cipher(
    tmp_path: Path, directory: Path
) -> None:
    key = pyrage.x25519.Identity.generate()
    store = CheckpointStore(str(tmp_path), Encryption([str(key.to_public())]))
    Path(store.begin(ID)).write_bytes(b"secret" * 100_000)
    assert store.suffix == ".age"

    digest = store.seal(ID)

    hidden = [name for name in os.listdir(directory) if name.endswith(".partial")]
    assert len(hidden) == 1
    cipher = (directory / hidden[0]).read_bytes()
    assert mode(directory / hidden[0]) == 0o600
    assert b"secretsecret" not in cipher
    assert pyrage.decrypt(cipher, [key]) == b"secret" * 100_000
    assert (digest.size_bytes, digest.sha256) == (len(cipher), hashlib.sha256(cipher).hexdigest())


def test_an_archive_that_cannot_be_encrypted_is_not_published_open(
    tmp_path: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = pyrage.x25519.Identity.generate()
    store = CheckpointStore(str(tmp_path), Encryption([str(key.to_public())]))
    Path(store.begin(ID)).write_bytes(b"secret")

    def full(_descriptor: int, _data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(StoreError, match="No space left"):
        patch.setattr(os, "write", full)
        store.seal(ID)
    store.discard(ID)

    assert os.listdir(directory) == []
