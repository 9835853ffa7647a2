"""Who a role is given to, and that it stays that role: K:pkg/apis/rbac/validation."""

from __future__ import annotations

import pytest

from orch.server.strategy.rbac import BINDING_STRATEGIES
from orch.wire.names import RBAC_GROUP

CLUSTER, NAMESPACED = BINDING_STRATEGIES
REF = {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": "view"}
USER = {"kind": "User", "apiGroup": RBAC_GROUP, "name": "ann"}
ACCOUNT = {"kind": "ServiceAccount", "name": "builder", "namespace": "ci"}


def binding(subject=USER, **reference) -> dict:
    return {"metadata": {}, "subjects": [subject], "roleRef": {**REF, **reference}}


@pytest.mark.parametrize(
    ("document", "field"),
    [
        (binding(), None),
        (binding(ACCOUNT), None),
        (binding({**USER, "kind": "Group"}), None),
        (binding(apiGroup="other.io"), "roleRef.apiGroup"),
        (binding(kind="Thing"), "roleRef.kind"),
        (binding(name=""), "roleRef.name"),
        (binding(name="a/b"), "roleRef.name"),
        (binding({**USER, "name": ""}), "subjects[0].name"),
        (binding({**USER, "kind": "Robot"}), "subjects[0].kind"),
        (binding({**USER, "apiGroup": "other.io"}), "subjects[0].apiGroup"),
        (binding({**ACCOUNT, "apiGroup": RBAC_GROUP}), "subjects[0].apiGroup"),
        (binding({**ACCOUNT, "name": "Not a name"}), "subjects[0].name"),
    ],
)
@pytest.mark.parametrize("strategy", BINDING_STRATEGIES)
def test_what_a_binding_may_say(strategy, document, field) -> None:
    assert [c.field for c in strategy.validate(document, None)] == ([field] if field else [])


def test_only_a_binding_in_a_namespace_refers_to_a_role_or_knows_where_an_account_is() -> None:
    assert not list(NAMESPACED.validate(binding(kind="Role"), None))
    assert [c.field for c in CLUSTER.validate(binding(kind="Role"), None)] == ["roleRef.kind"]
    account = {"kind": "ServiceAccount", "name": "builder"}
    assert not list(NAMESPACED.validate(binding(account), None))
    assert [c.field for c in CLUSTER.validate(binding(account), None)] == ["subjects[0].namespace"]


def test_groups_are_filled_in() -> None:
    document = {
        "metadata": {},
        "roleRef": {"kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": "ann"}, dict(ACCOUNT)],
    }
    CLUSTER.prepare_create(document)
    assert document["roleRef"] == REF
    assert document["subjects"] == [USER, ACCOUNT]


def test_the_role_cannot_be_changed() -> None:
    old = binding()
    (cause,) = CLUSTER.validate(binding(name="edit"), old)
    assert (cause.field, cause.reason) == ("roleRef", "FieldValueInvalid")
    assert not list(CLUSTER.validate(binding(ACCOUNT), old))
