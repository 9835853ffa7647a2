from __future__ import annotations

import pytest

from orch.server.storage.base import KeyExists, KeyMissing, RevisionMismatch
from orch.server.storage.group_commit import Action, Write, refuse


@pytest.mark.parametrize(
    ("action", "expected", "head", "refusal"),
    [
        (Action.CREATE, None, None, None),
        (Action.CREATE, None, 3, KeyExists),
        (Action.UPDATE, 3, 3, None),
        (Action.UPDATE, 2, 3, RevisionMismatch),
        (Action.UPDATE, 2, None, KeyMissing),
        (Action.DELETE, None, 3, None),
        (Action.DELETE, 3, 3, None),
        (Action.DELETE, 2, 3, RevisionMismatch),
        (Action.DELETE, None, None, KeyMissing),
    ],
)
def test_a_write_is_refused_by_what_is_there(action, expected, head, refusal) -> None:
    found = refuse(Write(action, "/k/x", b"", expected), head)
    assert type(found) is (refusal or type(None))
