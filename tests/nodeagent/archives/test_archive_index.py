"""The archives of the store: found with what is known of them, verified, pinned, removed."""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nodeagent.archives.archive_index import Shelf
from nodeagent.archives.folder import StoreError
from nodeagent.archives.manifest import Manifest, archive_name
from nodeagent.archives.store import CheckpointStore

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(str(tmp_path))


def put(shelf: Shelf, moment: datetime = NOON, data: bytes = b"data") -> str:
    """An archive as the agent makes it; its name."""
    store, name = (
        CheckpointStore(str(shelf.path.parent)),
        archive_name("shop", "web", "app", moment),
    )
    Path(store.begin("c0ffee")).write_bytes(data)
    sealed = store.seal("c0ffee")
    created = moment.isoformat()
    store.publish(
        "c0ffee",
        Manifest(
            name, "shop", "web", "u1", "app", "c0ffee",
            created=created, size_bytes=sealed.size_bytes, sha256=sealed.sha256,
        ),
    )  # fmt: skip
    store.discard("c0ffee")
    return name


def test_a_store_that_was_never_made_is_empty_and_stays_unmade(tmp_path: Path) -> None:
    shelf = Shelf(str(tmp_path / "not" / "yet"))
    assert shelf.archives() == ()
    assert not shelf.path.exists()
    assert shelf.space().capacity_bytes > 0


def test_archives_are_listed_oldest_first_with_what_is_known_of_them(shelf: Shelf) -> None:
    later, earlier = put(shelf, NOON), put(shelf, NOON.replace(hour=3))
    plain = archive_name("bank", "api", "x", NOON.replace(hour=1))
    (shelf.path / plain).write_bytes(b"from an older agent")
    (shelf.path / "notes.txt").touch()
    (shelf.path / archive_name("a", "b", "c", NOON)).mkdir()
    (shelf.path / archive_name("a", "b", "d", NOON)).symlink_to("notes.txt")
    os.mkfifo(shelf.path / archive_name("a", "b", "e", NOON))

    found = shelf.archives()

    assert [archive.name for archive in found] == [plain, earlier, later]
    assert found[0].manifest is None
    assert found[0].created == NOON.replace(hour=1)
    assert found[1].manifest and found[1].manifest.uid == "u1"


@pytest.mark.parametrize("text", ["", "no json", '{"name": "another.tar"}', '{"name": 7}'])
def test_a_manifest_that_cannot_be_used_costs_the_archive_its_origin_alone(
    shelf: Shelf, text: str
) -> None:
    name = put(shelf)
    (shelf.path / f"{name}.json").write_text(text)

    (found,) = shelf.archives()

    assert (found.name, found.manifest) == (name, None)
    assert "no manifest" in shelf.verify(found)


def test_an_archive_is_found_by_its_name_and_by_its_path(shelf: Shelf) -> None:
    name = put(shelf)

    assert shelf.find(name).name == shelf.find(str(shelf.path / name)).name == name
    for wrong in ("", "..", "absent.tar", f"../checkpoints/{name}", "\0", "x" * 300):
        with pytest.raises(StoreError, match="there is no archive"):
            shelf.find(wrong)


def test_what_was_not_changed_verifies_and_what_was_does_not(shelf: Shelf) -> None:
    name = put(shelf)
    path = shelf.path / name
    assert shelf.verify(shelf.find(name)) == ""

    path.write_bytes(b"atad")
    assert "its SHA-256 is" in shelf.verify(shelf.find(name))
    path.write_bytes(b"data!")
    assert "it has 5 bytes, and had 4" in shelf.verify(shelf.find(name))
    path.write_bytes(b"data")
    path.chmod(0o644)
    assert "its mode is 0644: others can read it" in shelf.verify(shelf.find(name))


def test_a_pin_is_a_private_file_beside_the_archive(shelf: Shelf) -> None:
    name = put(shelf)

    shelf.pin(shelf.find(name))
    shelf.pin(shelf.find(name))
    assert shelf.find(name).pinned
    assert stat.S_IMODE((shelf.path / f"{name}.keep").stat().st_mode) == 0o600
    shelf.unpin(shelf.find(name))
    shelf.unpin(shelf.find(name))
    assert not shelf.find(name).pinned


def test_a_removed_archive_takes_everything_of_its_own_with_it(shelf: Shelf) -> None:
    name, other = put(shelf), put(shelf, NOON.replace(hour=3))
    archive = shelf.find(name)
    shelf.pin(archive)

    shelf.remove(archive)
    shelf.remove(archive)

    assert sorted(os.listdir(shelf.path)) == [other, f"{other}.json"]


def test_when_a_pod_went_is_written_down_and_struck_out(shelf: Shelf) -> None:
    name = put(shelf)

    shelf.note_pod(shelf.find(name), gone_since=NOON)
    manifest = shelf.find(name).manifest
    assert manifest and manifest.gone_since == NOON
    assert shelf.verify(shelf.find(name)) == ""
    shelf.note_pod(shelf.find(name), gone_since=None)
    manifest = shelf.find(name).manifest
    assert manifest and manifest.gone_since is None
    assert stat.S_IMODE((shelf.path / f"{name}.json").stat().st_mode) == 0o600
    assert len(os.listdir(shelf.path)) == 2


def test_a_link_in_place_of_the_directory_is_refused(shelf: Shelf, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    shelf.path.symlink_to("elsewhere")

    with pytest.raises(StoreError, match="is not a directory"):
        shelf.archives()
