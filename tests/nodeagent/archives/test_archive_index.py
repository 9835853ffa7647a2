"""The archives of the store: listed with their manifests, verified, pinned, removed."""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nodeagent.archives.archive_index import ArchiveIndex, record_of
from nodeagent.archives.bounds import Archive
from nodeagent.archives.folder import StoreError
from nodeagent.archives.manifest import Manifest, archive_name
from nodeagent.archives.store import CheckpointStore

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
LISTED = "checkpoint-web_shop-app-2026-01-31T12:00:00Z.tar"


@pytest.fixture
def index(tmp_path: Path) -> ArchiveIndex:
    return ArchiveIndex(str(tmp_path))


def put(index: ArchiveIndex, moment: datetime = NOON, data: bytes = b"data") -> str:
    """The name of an archive created as the agent does."""
    store, name = (
        CheckpointStore(str(index.path.parent)),
        archive_name("shop", "web", "app", moment),
    )
    Path(store.begin("c0ffee")).write_bytes(data)
    digest = store.seal("c0ffee")
    created = moment.isoformat()
    store.publish(
        "c0ffee",
        Manifest(
            name, "shop", "web", "u1", "app", "c0ffee",
            created=created, size_bytes=digest.size_bytes, sha256=digest.sha256,
        ),
    )  # fmt: skip
    store.discard("c0ffee")
    return name


def test_a_store_that_does_not_exist_is_empty_and_not_created(tmp_path: Path) -> None:
    index = ArchiveIndex(str(tmp_path / "not" / "yet"))
    assert index.archives() == ()
    assert not index.path.exists()
    assert index.space().capacity_bytes > 0


def test_archives_are_listed_oldest_first_with_their_manifests(index: ArchiveIndex) -> None:
    later, earlier = put(index, NOON), put(index, NOON.replace(hour=3))
    plain = archive_name("bank", "api", "x", NOON.replace(hour=1))
    (index.path / plain).write_bytes(b"from an older agent")
    (index.path / "notes.txt").touch()
    (index.path / archive_name("a", "b", "c", NOON)).mkdir()
    (index.path / archive_name("a", "b", "d", NOON)).symlink_to("notes.txt")
    os.mkfifo(index.path / archive_name("a", "b", "e", NOON))

    found = index.archives()

    assert [archive.name for archive in found] == [plain, earlier, later]
    assert found[0].manifest is None
    assert found[0].created == NOON.replace(hour=1)
    assert found[1].manifest and found[1].manifest.uid == "u1"


@pytest.mark.parametrize("text", ["", "no json", '{"name": "another.tar"}', '{"name": 7}'])
def test_a_manifest_that_cannot_be_used_costs_the_archive_its_origin_alone(
    index: ArchiveIndex, text: str
) -> None:
    name = put(index)
    (index.path / f"{name}.json").write_text(text)

    (found,) = index.archives()

    assert (found.name, found.manifest) == (name, None)
    assert "no manifest" in index.verify(found)


def test_an_archive_is_found_by_its_name_and_by_its_path(index: ArchiveIndex) -> None:
    name = put(index)

    assert index.find(name).name == index.find(str(index.path / name)).name == name
    for wrong in ("", "..", "absent.tar", f"../checkpoints/{name}", "\0", "x" * 300):
        with pytest.raises(StoreError, match="there is no archive"):
            index.find(wrong)


def test_a_changed_archive_does_not_verify(index: ArchiveIndex) -> None:
    name = put(index)
    path = index.path / name
    assert index.verify(index.find(name)) == ""

    path.write_bytes(b"atad")
    assert "its SHA-256 is" in index.verify(index.find(name))
    path.write_bytes(b"data!")
    assert "it has 5 bytes, and had 4" in index.verify(index.find(name))
    path.write_bytes(b"data")
    path.chmod(0o644)
    assert "its mode is 0644: others can read it" in index.verify(index.find(name))


def test_a_pin_is_a_private_file_beside_the_archive(index: ArchiveIndex) -> None:
    name = put(index)

    index.pin(index.find(name))
    index.pin(index.find(name))
    assert index.find(name).pinned
    assert stat.S_IMODE((index.path / f"{name}.keep").stat().st_mode) == 0o600
    index.unpin(index.find(name))
    index.unpin(index.find(name))
    assert not index.find(name).pinned


def test_removing_an_archive_removes_its_manifest_and_pin(index: ArchiveIndex) -> None:
    name, other = put(index), put(index, NOON.replace(hour=3))
    archive = index.find(name)
    index.pin(archive)

    index.remove(archive)
    index.remove(archive)

    assert sorted(os.listdir(index.path)) == [other, f"{other}.json"]


def test_when_a_pod_went_is_recorded_and_cleared(index: ArchiveIndex) -> None:
    name = put(index)

    index.record_pod_gone(index.find(name), gone_since=NOON)
    manifest = index.find(name).manifest
    assert manifest and manifest.gone_since == NOON
    assert index.verify(index.find(name)) == ""
    index.record_pod_gone(index.find(name), gone_since=None)
    manifest = index.find(name).manifest
    assert manifest and manifest.gone_since is None
    assert stat.S_IMODE((index.path / f"{name}.json").stat().st_mode) == 0o600
    assert len(os.listdir(index.path)) == 2


def test_a_link_in_place_of_the_directory_is_refused(index: ArchiveIndex, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    index.path.symlink_to("elsewhere")

    with pytest.raises(StoreError, match="is not a directory"):
        index.archives()


def test_a_record_holds_the_manifest() -> None:
    manifest = Manifest(LISTED, "shop", "web", "u1", "app", "c0ffee", sha256="ab", size_bytes=7)

    assert record_of(Archive(LISTED, 7, NOON, pinned=True, manifest=manifest), "/s") == {
        "name": LISTED,
        "path": f"/s/{LISTED}",
        "namespace": "shop",
        "pod": "web",
        "uid": "u1",
        "container": "app",
        "containerID": "c0ffee",
        "image": "",
        "runtime": "",
        "created": "2026-01-31T12:00:00Z",
        "size": 7,
        "sha256": "ab",
        "encryption": "",
        "pinned": True,
        "podGoneSince": "",
    }


def test_without_a_manifest_only_the_pod_is_known() -> None:
    record = record_of(Archive(f"{LISTED}.age", 7, NOON), "/s")

    assert (record["pod"], record["namespace"], record["container"]) == ("web", "", "")
    assert record["encryption"] == "age"
