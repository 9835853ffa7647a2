"""Names of archives: made as spec.md writes them, and read back as far as they tell."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.archives import manifest

MOMENTS = st.integers(946684800, 4000000000).map(lambda s: datetime.fromtimestamp(s, UTC))
LABEL = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)


@given(LABEL, LABEL, LABEL, MOMENTS)
def test_a_name_that_was_made_is_read_back(
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
