"""Manifests and names of archives are read back as they were written; others are refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.archives import manifest
from nodeagent.archives.manifest import Manifest, ManifestError, parse_manifest

WHOLE = Manifest(
    "checkpoint-web_shop-app-2026-01-31T12:00:00Z.tar", "shop", "web", "u1", "app", "c0ffee",
    "localhost/busybox:1", "containerd 2.1.9", "2026-01-31T12:00:00Z", 42, "ab" * 32,
)  # fmt: skip


def test_a_manifest_uses_the_names_of_the_wire() -> None:
    assert json.loads(WHOLE.to_json()) == {
        "format": 1,
        "name": WHOLE.name,
        "namespace": "shop",
        "pod": "web",
        "uid": "u1",
        "container": "app",
        "containerID": "c0ffee",
        "image": "localhost/busybox:1",
        "runtime": "containerd 2.1.9",
        "created": "2026-01-31T12:00:00Z",
        "size": 42,
        "sha256": "ab" * 32,
    }
    assert WHOLE.created_at == datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert WHOLE.gone_since is None


TEXT = st.text(st.characters(exclude_categories=("C", "Z"), include_characters=" "))


@given(st.builds(Manifest, *[TEXT] * 9, st.integers(0, 2**63 - 1), *[TEXT] * 3))
def test_a_written_manifest_is_read_back(manifest: Manifest) -> None:
    assert parse_manifest(manifest.to_json()) == manifest


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"name": 1}', "name is 1"),
        (b'{"size": "42"}', "size is '42'"),
        (b'{"size": true}', "size is True"),
        (b'{"containerID": null}', "containerID is None"),
    ],
)
def test_an_invalid_manifest_is_an_error(text: bytes, told: str) -> None:
    with pytest.raises(ManifestError, match=told):
        parse_manifest(text)


def test_missing_fields_are_not_known() -> None:
    manifest = parse_manifest(b'{"name": "x", "created": "yesterday", "more": []}')

    assert manifest == Manifest("x", created="yesterday")
    assert manifest.created_at is None


MOMENTS = st.integers(946684800, 4000000000).map(lambda s: datetime.fromtimestamp(s, UTC))
LABEL = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)


@given(LABEL, LABEL, LABEL, MOMENTS)
def test_a_generated_name_is_read_back(
    namespace: str, pod: str, container: str, moment: datetime
) -> None:
    name = manifest.archive_name(namespace, pod, container, moment)

    assert manifest.is_archive(name)
    assert manifest.is_archive(name + manifest.ENCRYPTED_SUFFIX)
    assert manifest.pod_of(name) == pod
    assert manifest.owner_of(name) == f"{pod}_{namespace}-{container}"
    assert manifest.time_of(name) == moment


@pytest.mark.parametrize(
    "name",
    [
        "",
        "notes.txt",
        ".checkpoint-c0ffee.tar.partial",
        "checkpoint-web_shop-app-2026-01-31T12:00:00Z.tar.json",
        "checkpoint-web_shop-app-2026-01-31T12:00:00Z.tar.keep",
        "checkpoint-web_shop-app-2026-01-31T12:00:00.tar",
        "checkpoint-web_shop-app.tar",
        "checkpoint-../x_shop-app-2026-01-31T12:00:00Z.tar",
    ],
)
def test_nothing_else_is_an_archive(name: str) -> None:
    assert not manifest.is_archive(name)
    assert (manifest.pod_of(name), manifest.owner_of(name), manifest.time_of(name)) == (
        "",
        "",
        None,
    )


def test_a_time_that_does_not_exist_is_not_known() -> None:
    assert manifest.time_of("checkpoint-web_shop-app-2026-13-31T12:00:00Z.tar") is None


@pytest.mark.parametrize(("length", "excess"), [(10, 0), (250, 0), (251, 1), (300, 50)])
def test_a_name_must_leave_room_for_its_manifests(length: int, excess: int) -> None:
    assert manifest.excess_name_bytes("x" * length) == excess
