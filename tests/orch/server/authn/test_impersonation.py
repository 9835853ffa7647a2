"""Who may act as whom, and as whom exactly."""

import pytest
from multidict import CIMultiDict

from orch.server.authn.impersonation import impersonate
from orch.server.authz.authorizer import Chain, PrivilegedGroup
from orch.server.authz.index import RbacIndex
from orch.server.authz.rules import Binding, RoleKey, Rule, Subject
from orch.wire.errors import ApiError
from orch.wire.records.authentication import Identity

ADMIN = Identity("admin", ("system:masters", "system:authenticated"))
NODE = Identity("system:node:a", ("system:nodes", "system:authenticated"))
BRIDGE = Identity("bridge")
ROLES = RbacIndex()
ROLES.put_role(
    RoleKey("", "bridge"),
    (
        Rule(("impersonate",), ("",), ("users", "groups"), ("jane", "dev")),
        Rule(("impersonate",), ("",), ("serviceaccounts",), ("bot",)),
        Rule(("impersonate",), ("authentication.orch.io",), ("userextras/scope",), ("view",)),
        Rule(("impersonate",), ("authentication.orch.io",), ("uids",), ("42",)),
    ),
)
ROLES.put_binding(Binding("", "b", RoleKey("", "bridge"), (Subject("User", "bridge"),)))
CHAIN = Chain(PrivilegedGroup(), ROLES)


def test_without_headers_everybody_is_themselves() -> None:
    assert impersonate(NODE, CIMultiDict({"Accept": "*/*"}), CHAIN) is NODE


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
    acting = impersonate(ADMIN, headers, CHAIN)
    assert acting.name == "jane"
    assert acting.groups == ("dev", "ops", "system:authenticated")
    assert acting.uid == "42"
    assert acting.extra == {"acme.com/project": ("x",)}


def test_an_anonymous_user_is_not_authenticated() -> None:
    acting = impersonate(ADMIN, CIMultiDict({"Impersonate-User": "system:anonymous"}), CHAIN)
    assert acting.groups == ("system:unauthenticated",)


REFUSED = [
    (NODE, {"Impersonate-User": "admin"}, 403),
    (NODE, {"Impersonate-User": "admin", "Impersonate-Group": "system:masters"}, 403),
    (ADMIN, {"Impersonate-Group": "dev"}, 400),
    (ADMIN, {"impersonate-extra-x": "y"}, 400),
    (ADMIN, {"impersonate-user": "\udcff"}, 400),
    (ADMIN, {"impersonate-user": "jane", "impersonate-extra-x": "\udcff"}, 400),
]


@pytest.mark.parametrize(("identity", "headers", "code"), REFUSED)
def test_what_is_asked_for_without_the_right_or_without_a_user_is_refused(
    identity: Identity, headers: dict[str, str], code: int
) -> None:
    with pytest.raises(ApiError) as caught:
        impersonate(identity, CIMultiDict(headers), CHAIN)
    assert caught.value.code == code


BOT = "system:serviceaccount:red:bot"


@pytest.mark.parametrize(
    ("headers", "refused"),
    [  # AS:endpoints/filters/impersonation_test.go
        ([("User", "jane")], None),
        ([("User", "jane"), ("Group", "dev")], None),
        ([("User", "jane"), ("Uid", "42"), ("Extra-Scope", "view")], None),
        ([("User", BOT)], None),
        ([("User", "admin")], "users"),
        ([("User", "jane"), ("Group", "dev"), ("Group", "system:masters")], "groups"),
        ([("User", "jane"), ("Uid", "43")], "uids"),
        ([("User", "jane"), ("Extra-Scope", "view"), ("Extra-Scope", "all")], "userextras"),
        ([("User", "jane"), ("Extra-Other", "view")], "userextras"),
        ([("User", "system:serviceaccount:red:other")], "serviceaccounts"),
        ([("User", "system:serviceaccount:bot")], "users"),
        ([("User", f"{BOT}:other")], "users"),
        ([("User", "system:serviceaccount:red:../bot")], "users"),
    ],
)
def test_each_part_of_whom_is_asked_for_needs_its_own_right(headers, refused) -> None:
    sent = CIMultiDict([(f"Impersonate-{name}", value) for name, value in headers])
    try:
        acting = impersonate(BRIDGE, sent, CHAIN)
    except ApiError as error:
        assert (error.code, error.kind) == (403, refused)
        assert "cannot impersonate resource" in error.message
    else:
        assert refused is None
        assert acting.name == headers[0][1]


def test_a_service_account_is_in_its_own_groups() -> None:
    acting = impersonate(BRIDGE, CIMultiDict({"Impersonate-User": BOT}), CHAIN)
    assert acting.groups == (
        "system:serviceaccounts", "system:serviceaccounts:red", "system:authenticated",
    )  # fmt: skip
