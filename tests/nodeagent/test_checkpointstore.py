"""The store takes nothing on trust: neither its own directory nor what the runtime wrote."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent.checkpointstore import CheckpointStore, NameTaken, StoreError

ID = "c0ffee" * 10
NAME = "checkpoint-web_shop-app-2026-01-31T12:00:00Z.tar"


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


def visible(directory: Path) -> list[str]:
    return sorted(name for name in os.listdir(directory) if not name.startswith("."))


def test_the_directory_is_made_private_and_its_parent_not_public(tmp_path: Path) -> None:
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
def test_what_is_no_directory_is_refused_and_left_alone(
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

    path = Path(store.publish(ID, NAME))
    store.discard(ID)

    assert path == directory / NAME
    assert os.listdir(directory) == [NAME]
    assert mode(path) == 0o600
    assert path.read_bytes() == b"data"
    assert path.stat().st_nlink == 1


def existing_link(path: Path) -> None:
    path.symlink_to(path.parent / "victim")


@pytest.mark.parametrize("make", [Path.touch, Path.mkdir, os.mkfifo, existing_link])
def test_a_name_that_is_taken_is_never_written_to(
    directory: Path, store: CheckpointStore, make: Callable[[Path], None]
) -> None:
    (directory / "victim").write_text("untouched")
    make(directory / NAME)
    before = (directory / NAME).lstat()
    Path(store.begin(ID)).write_bytes(b"data")

    with pytest.raises(NameTaken):
        store.publish(ID, NAME)

    assert (directory / NAME).lstat() == before
    assert (directory / "victim").read_text() == "untouched"
    assert Path(store.publish(ID, f"{NAME}.2")).read_bytes() == b"data"


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
        (Path.mkdir, "not a plain file"),
        (os.mkfifo, "not a plain file"),
        (second_name, "not a plain file"),
        (link_to_secret, "cannot be opened: Too many levels of symbolic links"),
    ],
)
def test_what_the_runtime_wrote_must_be_a_plain_file_of_its_own(
    directory: Path, store: CheckpointStore, write: Callable[[Path], None], told: str
) -> None:
    write(Path(store.begin(ID)))

    with pytest.raises(StoreError, match=told):
        store.publish(ID, NAME)
    assert NAME not in os.listdir(directory)


def test_a_discarded_checkpoint_leaves_nothing(directory: Path, store: CheckpointStore) -> None:
    Path(store.begin(ID)).write_bytes(b"half")

    store.discard(ID)
    store.discard(ID)

    assert os.listdir(directory) == []


def test_a_rest_of_an_earlier_try_is_not_where_the_runtime_writes(
    directory: Path, store: CheckpointStore
) -> None:
    partial = Path(store.begin(ID))
    store.discard(ID)
    partial.write_bytes(b"written by the runtime after it was told to stop")

    assert store.begin(ID) == str(partial)
    assert not partial.exists()


def test_what_a_runtime_wrote_after_all_goes_with_the_next_checkpoint_of_any_container(
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
    assert store.prepare() == (ID,)


def test_the_next_start_removes_rests_and_knows_which_containers_to_look_after(
    tmp_path: Path, directory: Path, store: CheckpointStore
) -> None:
    Path(store.begin(ID)).write_bytes(b"half")
    Path(store.begin("another")).write_bytes(b"half")
    (directory / NAME).write_bytes(b"whole")

    restarted = CheckpointStore(str(tmp_path))

    assert restarted.prepare() == ("another", ID)
    assert visible(directory) == [NAME]
    for container_id in (ID, "another"):
        restarted.discard(container_id)
    assert os.listdir(directory) == [NAME]
    assert restarted.prepare() == ()


def test_tidying_up_leaves_alone_what_is_under_way(store: CheckpointStore) -> None:
    partial = Path(store.begin(ID))
    partial.write_bytes(b"being written")

    assert store.prepare() == ()
    assert partial.exists()


def test_a_name_too_long_for_the_file_system_is_refused_before_anything_happens(
    store: CheckpointStore,
) -> None:
    store.check_name("x" * 255)
    with pytest.raises(StoreError, match="would have 256 bytes"):
        store.check_name("x" * 256)
