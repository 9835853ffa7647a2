"""Archives as JSON: with their manifests, and as far as a name tells without one."""

from datetime import UTC, datetime

from nodeagent.archives.archive_index import record_of
from nodeagent.archives.bounds import Archive
from nodeagent.archives.manifest import Manifest

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
NAME = "checkpoint-web_shop-app-2026-01-31T12:00:00Z.tar"


def test_a_record_says_what_the_manifest_does() -> None:
    manifest = Manifest(NAME, "shop", "web", "u1", "app", "c0ffee", sha256="ab", size_bytes=7)

    assert record_of(Archive(NAME, 7, NOON, pinned=True, manifest=manifest), "/s") == {
        "name": NAME,
        "path": f"/s/{NAME}",
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


def test_without_a_manifest_the_name_tells_the_pod_alone() -> None:
    record = record_of(Archive(f"{NAME}.age", 7, NOON), "/s")

    assert (record["pod"], record["namespace"], record["container"]) == ("web", "", "")
    assert record["encryption"] == "age"
