from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch.wire.records import aliases

PAIRS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {
            "apiVersion": "coordination.orch.io/v1",
            "metadata": {
                "ownerReferences": [
                    {"apiVersion": "rbac.authorization.orch.io/v1", "kind": "Role", "name": "r"},
                    {"apiVersion": "v1", "kind": "Node", "name": "n"},
                ]
            },
        },
        {
            "apiVersion": "coordination.k8s.io/v1",
            "metadata": {
                "ownerReferences": [
                    {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "name": "r"},
                    {"apiVersion": "v1", "kind": "Node", "name": "n"},
                ]
            },
        },
    ),
    (
        {"kind": "Lease", "apiVersion": "coordination.orch.io/v1", "spec": {"holderIdentity": "x"}},
        {"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "spec": {"holderIdentity": "x"}},
    ),
    (
        {
            "apiVersion": "rbac.authorization.orch.io/v1",
            "rules": [{"apiGroups": ["", "coordination.orch.io", "apps"]}, {"nonResourceURLs": []}],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "rules": [{"apiGroups": ["", "coordination.k8s.io", "apps"]}, {"nonResourceURLs": []}],
        },
    ),
    (
        {
            "apiVersion": "rbac.authorization.orch.io/v1",
            "roleRef": {"apiGroup": "rbac.authorization.orch.io", "kind": "Role", "name": "r"},
            "subjects": [
                {"kind": "User", "apiGroup": "rbac.authorization.orch.io", "name": "u"},
                {"kind": "ServiceAccount", "name": "s"},
            ],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
            "subjects": [
                {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "u"},
                {"kind": "ServiceAccount", "name": "s"},
            ],
        },
    ),
    (
        {
            "apiVersion": "authorization.orch.io/v1",
            "spec": {"resourceAuthorizationAttributes": {"group": "coordination.orch.io"}},
            "status": {"resourceRules": [{"apiGroups": ["authorization.orch.io"]}]},
        },
        {
            "apiVersion": "authorization.k8s.io/v1",
            "spec": {"resourceAttributes": {"group": "coordination.k8s.io"}},
            "status": {"resourceRules": [{"apiGroups": ["authorization.k8s.io"]}]},
        },
    ),
    (
        {
            "apiVersion": "authorization.orch.io/v1",
            "spec": {"nonResourceAuthorizationAttributes": {"path": "/x"}, "user": "u"},
        },
        {
            "apiVersion": "authorization.k8s.io/v1",
            "spec": {"nonResourceAttributes": {"path": "/x"}, "user": "u"},
        },
    ),
]


@pytest.mark.parametrize(("own", "upstream"), PAIRS)
def test_a_record_is_the_same_under_both_names(
    own: dict[str, Any], upstream: dict[str, Any]
) -> None:
    before = copy.deepcopy((own, upstream))
    assert aliases.to_upstream(own) == upstream
    assert aliases.to_own(upstream) == own
    assert (own, upstream) == before


def test_what_is_not_a_name_of_a_group_is_left_alone() -> None:
    document = {
        "metadata": {"annotations": {"a": "rbac.authorization.k8s.io"}},
        "spec": {"holderIdentity": "coordination.k8s.io"},
    }
    assert aliases.to_own(document) == document


def test_leases_of_nodes_are_found_where_clients_look_for_them() -> None:
    lease = {"metadata": {"name": "n1", "namespace": "kube-node-lease"}}
    assert aliases.to_own(lease)["metadata"]["namespace"] == "orch-node-lease"
    assert aliases.own_namespace("shop") == "shop"


def test_a_change_is_made_on_what_the_client_sees() -> None:
    def add(seen: dict[str, Any]) -> dict[str, Any]:
        assert seen["apiVersion"] == "rbac.authorization.k8s.io/v1"
        return {**seen, "rules": [{"apiGroups": ["coordination.k8s.io"]}]}

    changed = aliases.through(add)({"apiVersion": "rbac.authorization.orch.io/v1"})
    assert changed == {
        "apiVersion": "rbac.authorization.orch.io/v1",
        "rules": [{"apiGroups": ["coordination.orch.io"]}],
    }


JSON = st.recursive(
    st.none() | st.integers() | st.sampled_from(("", "a/b", "coordination.k8s.io/v1")),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ("apiVersion", "metadata", "ownerReferences", "namespace", "roleRef", "subjects",
                 "rules", "spec", "status", "resourceRules", "apiGroups", "apiGroup",
                 "resourceAttributes", "group")
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)  # fmt: skip


FIELDS = ("apiVersion", "metadata", "roleRef", "rules", "spec", "status")


@given(st.dictionaries(st.sampled_from(FIELDS), JSON))
def test_nothing_a_client_can_send_breaks_it(document: dict[str, Any]) -> None:
    assert isinstance(aliases.to_own(document), dict)
    assert isinstance(aliases.to_upstream(document), dict)


@pytest.mark.parametrize(
    ("own", "upstream"),
    [
        (
            'roles.rbac.authorization.orch.io "x.rbac.authorization.orch.io" not found',
            'roles.rbac.authorization.k8s.io "x.rbac.authorization.orch.io" not found',
        ),
        (
            'roles.rbac.authorization.orch.io "rbac.authorization.orch.io" already exists',
            'roles.rbac.authorization.k8s.io "rbac.authorization.orch.io" already exists',
        ),
        (
            'User "u@coordination.orch.io" cannot get "x" in API group "coordination.orch.io"',
            'User "u@coordination.orch.io" cannot get "x" in API group "coordination.k8s.io"',
        ),
        (
            '{APIGroups:["coordination.orch.io", "apps"], Resources:["*"]}',
            '{APIGroups:["coordination.k8s.io", "apps"], Resources:["*"]}',
        ),
        (
            "the expected apiVersion (authorization.orch.io/v1)",
            "the expected apiVersion (authorization.k8s.io/v1)",
        ),
        (
            "spec.nonResourceAuthorizationAttributes: or resourceAuthorizationAttributes",
            "spec.nonResourceAttributes: or resourceAttributes",
        ),
        *(
            (text, text)
            for text in (
                "metadata.annotations[rbac.authorization.orch.io/autoupdate]",
                "authorization.orch.io.example.com",
                'never "closed coordination.orch.io',
            )
        ),
    ],
)
def test_a_sentence_names_groups_and_fields_but_objects_as_they_are(
    own: str, upstream: str
) -> None:
    assert aliases.message_to_upstream(own) == upstream


@given(st.text(alphabet='"\\\n a.[-'))
def test_a_sentence_without_names_stays_as_it_is(text: str) -> None:
    assert aliases.message_to_upstream(text) == text


def test_a_sentence_is_read_once_whatever_is_in_it() -> None:
    for part in ('"', '\\"', "a", "a.", '"\\\n', " coordination."):
        text = '"' + part * 300_000
        assert aliases.message_to_upstream(text) == text


def test_a_review_is_about_the_own_namespace_of_leases() -> None:
    asked = {"verb": "get", "group": "coordination.k8s.io", "namespace": "kube-node-lease"}
    own = aliases.to_own({"spec": {"resourceAttributes": asked}})
    assert own["spec"]["resourceAuthorizationAttributes"] == {
        "verb": "get", "group": "coordination.orch.io", "namespace": "orch-node-lease",
    }  # fmt: skip
    of_pods = {"verb": "get", "group": "", "namespace": "kube-node-lease"}
    same = aliases.to_own({"spec": {"resourceAttributes": of_pods}})
    assert same["spec"]["resourceAuthorizationAttributes"] == of_pods
    assert aliases.to_own({"spec": {"namespace": "kube-node-lease"}}) == {
        "spec": {"namespace": "orch-node-lease"}
    }
