from __future__ import annotations

from typing import Any

import pytest

from tests.fakes.http_api import GROUP, Answer, HttpApi
from tests.orch.ctl.conftest import Orchctl

RBAC = "rbac.authorization.orch.io"
KINDS = {"roles": "Role", "rolebindings": "RoleBinding", "clusterroles": "ClusterRole",
         "clusterrolebindings": "ClusterRoleBinding"}  # fmt: skip


@pytest.fixture(autouse=True)
def _resources(api: HttpApi) -> None:
    listed = [
        {"name": plural, "kind": kind, "namespaced": not plural.startswith("cluster")}
        for plural, kind in KINDS.items()
    ]
    api.answers["GET", f"/apis/{RBAC}/v1"] = Answer({"resources": listed})


async def _made(orchctl: Orchctl, api: HttpApi, line: str) -> dict[str, Any]:
    result = await orchctl("create", *line.split())
    assert result.code == 0, result.err
    body: dict[str, Any] = api.sent("POST")[-1].body
    assert body["apiVersion"] == f"{RBAC}/v1"
    return body


@pytest.mark.parametrize(
    ("options", "rules"),
    [
        ("--verb get,list --resource po,pods/log",
         [{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "pods/log"]}]),
        ("--verb get --verb watch --resource nodes,leases",
         [{"verbs": ["get", "watch"], "apiGroups": [""], "resources": ["nodes"]},
          {"verbs": ["get", "watch"], "apiGroups": [GROUP], "resources": ["leases"]}]),
        ("--verb * --resource *", [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]),
        ("--verb get --resource pods --resource-name a,b",
         [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"],
           "resourceNames": ["a", "b"]}]),
    ],
)  # fmt: skip
async def test_a_role(orchctl: Orchctl, api: HttpApi, options: str, rules: Any) -> None:
    body = await _made(orchctl, api, f"role reader {options} -n shop")
    assert (body["kind"], body["rules"]) == ("Role", rules)
    assert body["metadata"] == {"name": "reader", "namespace": "shop"}


async def test_a_cluster_role_of_paths(orchctl: Orchctl, api: HttpApi) -> None:
    body = await _made(orchctl, api, "clusterrole r --verb get --non-resource-url /metrics")
    assert body["rules"] == [{"verbs": ["get"], "nonResourceURLs": ["/metrics"]}]
    assert "namespace" not in body["metadata"]


async def test_bindings_name_role_and_subjects(orchctl: Orchctl, api: HttpApi) -> None:
    line = "--user jane,joe --group ops --serviceaccount shop:web"
    body = await _made(orchctl, api, f"rolebinding b --role reader {line}")
    assert body["roleRef"] == {"apiGroup": RBAC, "kind": "Role", "name": "reader"}
    assert body["subjects"] == [
        {"kind": "User", "apiGroup": RBAC, "name": "jane"},
        {"kind": "User", "apiGroup": RBAC, "name": "joe"},
        {"kind": "Group", "apiGroup": RBAC, "name": "ops"},
        {"kind": "ServiceAccount", "namespace": "shop", "name": "web"},
    ]
    body = await _made(orchctl, api, "clusterrolebinding b --clusterrole admin --user jane")
    assert body["roleRef"]["kind"] == "ClusterRole"


async def test_a_cluster_role_may_gather_others(orchctl: Orchctl, api: HttpApi) -> None:
    body = await _made(orchctl, api, "clusterrole all --aggregation-rule a/b=true,c=d")
    labels = {"a/b": "true", "c": "d"}
    assert body["aggregationRule"] == {"clusterRoleSelectors": [{"matchLabels": labels}]}
    assert body["rules"] == []


@pytest.mark.parametrize(
    ("line", "code", "text"),
    [
        ("clusterrole r --aggregation-rule a", 2, "--aggregation-rule 'a' is not LABEL=VALUE"),
        ("clusterrole r --aggregation-rule a=b --verb get", 2, "--resource or --non-resource-url"),
        ("role r --verb get", 2, "say what is allowed and on what"),
        ("role r --resource pods", 2, "say what is allowed and on what"),
        ("clusterrole r --verb get --resource pods --non-resource-url /x", 2, "say what is"),
        ("role r --verb get --resource pdos", 1, "did you mean 'pods'?"),
        ("rolebinding b --user jane", 2, "say which role"),
        ("rolebinding b --role a --clusterrole b", 2, "say which role"),
        ("clusterrolebinding b --clusterrole a --serviceaccount web", 2, "is not NAMESPACE:NAME"),
    ],
)
async def test_what_is_missing_is_named(
    orchctl: Orchctl, api: HttpApi, line: str, code: int, text: str
) -> None:
    result = await orchctl("create", *line.split())
    assert (result.code, api.sent("POST")) == (code, [])
    assert text in result.err
