"""Who may act as whom, and as whom exactly."""

import pytest
from multidict import CIMultiDict

from orch.server.impersonation import impersonate
from orch.wire.errors import ApiError
from orch.wire.identity import Identity

ADMIN = Identity("admin", ("system:masters", "system:authenticated"))
NODE = Identity("system:node:a", ("system:nodes", "system:authenticated"))


def test_without_headers_everybody_is_themselves() -> None:
    assert impersonate(NODE, CIMultiDict({"Accept": "*/*"})) is NODE


def test_an_administrator_acts_as_the_user_with_the_groups_asked_for_and_no_others() -> None:
    headers = CIMultiDict(
        [
            ("Impersonate-User", "jane"),
            ("Impersonate-Group", "dev"),
            ("Impersonate-Group", "ops"),
            ("Impersonate-Uid", "42"),
            ("Impersonate-Extra-Acme.com%2Fproject", "x"),
        ]
    )
    acting = impersonate(ADMIN, headers)
    assert acting.name == "jane"
    assert acting.groups == ("dev", "ops", "system:authenticated")
    assert acting.uid == "42"
    assert acting.extra == {"acme.com/project": ("x",)}


def test_an_anonymous_user_is_not_authenticated() -> None:
    acting = impersonate(ADMIN, CIMultiDict({"Impersonate-User": "system:anonymous"}))
    assert acting.groups == ("system:unauthenticated",)


REFUSED = [
    (NODE, {"Impersonate-User": "admin"}, 403),
    (NODE, {"Impersonate-User": "admin", "Impersonate-Group": "system:masters"}, 403),
    (ADMIN, {"Impersonate-Group": "dev"}, 400),
    (ADMIN, {"impersonate-extra-x": "y"}, 400),
]


@pytest.mark.parametrize(("identity", "headers", "code"), REFUSED)
def test_what_is_asked_for_without_the_right_or_without_a_user_is_refused(
    identity: Identity, headers: dict[str, str], code: int
) -> None:
    with pytest.raises(ApiError) as caught:
        impersonate(identity, CIMultiDict(headers))
    assert caught.value.code == code
