"""Manifests are read back as they were written, and a bad one is told from a good one."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.archives.manifest import Manifest, ManifestError, parse_manifest

WHOLE = Manifest(
    "checkpoint-web_shop-app-2026-01-31T12:00:00Z.tar", "shop", "web", "u1", "app", "c0ffee",
    "localhost/busybox:1", "containerd 2.1.9", "2026-01-31T12:00:00Z", 42, "ab" * 32,
)  # fmt: skip


def test_a_manifest_says_everything_under_the_wires_names() -> None:
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


@given(st.builds(Manifest, *[st.text()] * 9, st.integers(0, 2**63), *[st.text()] * 3))
def test_what_was_written_is_read_back(manifest: Manifest) -> None:
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
def test_what_is_no_manifest_is_said(text: bytes, told: str) -> None:
    with pytest.raises(ManifestError, match=told):
        parse_manifest(text)


def test_what_is_left_out_is_not_known() -> None:
    manifest = parse_manifest(b'{"name": "x", "created": "yesterday", "more": []}')

    assert manifest == Manifest("x", created="yesterday")
    assert manifest.created_at is None
