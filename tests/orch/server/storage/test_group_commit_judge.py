from __future__ import annotations

import pytest

from orch.server.storage.base import KeyExists, KeyMissing, RevisionMismatch
from orch.server.storage.group_commit import Write, refuse


@pytest.mark.parametrize(
    ("data", "expected", "head", "refusal"),
    [
        (b"", 0, None, None),
        (b"", 0, 3, KeyExists),
        (b"", 3, 3, None),
        (b"", 2, 3, RevisionMismatch),
        (b"", 2, None, KeyMissing),
        (None, None, 3, None),
        (None, 3, 3, None),
        (None, 2, 3, RevisionMismatch),
        (None, None, None, KeyMissing),
    ],
)
def test_a_write_is_refused_by_what_is_there(data, expected, head, refusal) -> None:
    found = refuse(Write("/k/x", data, expected), head)
    assert type(found) is (refusal or type(None))
