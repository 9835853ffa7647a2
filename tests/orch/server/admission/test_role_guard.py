"""Nobody gives away what they do not hold: K:pkg/registry/rbac/*/policybased tests."""

from __future__ import annotations

from typing import Any

import pytest

from tests.orch.server.controllers.test_roles import (
    BINDINGS,
    CLUSTER_BINDINGS,
    CLUSTER_ROLES,
    READ_PODS,
    ROLES,
    STRANGER,
    binding,
    role,
)
from tests.orch.server.harness import MERGE, Api

RBAC = ["rbac.authorization.orch.io"]
WRITE_ROLES = {
    "verbs": ["*"],
    "apiGroups": RBAC,
    "resources": ["roles", "clusterroles", "rolebindings", "clusterrolebindings"],
    "resourceNames": [],
}
DELETE_PODS = {"verbs": ["delete"], "apiGroups": [""], "resources": ["pods"]}
WRITE = {**WRITE_ROLES, "verbs": ["create", "update", "patch", "get"]}


async def give(api: Api, *rules: dict[str, Any]) -> None:
    """Make `stranger` hold the rules everywhere."""
    assert (await api.call("POST", CLUSTER_ROLES, role("own", *rules))).status == 201
    assert (await api.call("POST", CLUSTER_BINDINGS, binding("own", "own"))).status == 201


async def post(api: Api, path: str, body: dict[str, Any]) -> Any:
    return await api.call("POST", path, body, user="stranger")


@pytest.mark.parametrize("path", [ROLES, CLUSTER_ROLES])
async def test_a_role_may_hold_what_its_author_does(api: Api, path: str) -> None:
    await give(api, WRITE, READ_PODS)
    assert (await post(api, path, role("mine", READ_PODS))).status == 201
    answer = await post(api, path, role("more", READ_PODS, DELETE_PODS))
    assert answer.status == 403
    assert answer.json["message"].endswith(
        'user "stranger" (groups=["some:group" "system:authenticated"]) is attempting to grant'
        ' RBAC permissions not currently held:\n{APIGroups:[""], Resources:["pods"],'
        ' Verbs:["delete"]}'
    )
    patch = {"rules": [DELETE_PODS]}
    patched = await api.call("PATCH", f"{path}/mine", patch, user="stranger", content_type=MERGE)
    assert patched.status == 403


async def test_a_rule_of_a_namespace_counts_there_only(api: Api) -> None:
    await give(api, WRITE)
    await api.call("POST", ROLES, role("local", READ_PODS))
    await api.call("POST", BINDINGS, binding("local", "local", "Role"))
    assert (await post(api, ROLES, role("mine", READ_PODS))).status == 201
    assert (await post(api, CLUSTER_ROLES, role("mine", READ_PODS))).status == 403


async def test_who_may_escalate_may_write_any_role(api: Api) -> None:
    await give(api, WRITE, {**WRITE_ROLES, "verbs": ["escalate"], "resources": ["roles"]})
    assert (await post(api, ROLES, role("more", DELETE_PODS))).status == 201
    assert (await post(api, CLUSTER_ROLES, role("more", DELETE_PODS))).status == 403


async def test_an_aggregated_role_takes_everything(api: Api) -> None:
    await give(api, WRITE)
    selectors = {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}
    body = {**role("sum"), "aggregationRule": selectors}
    assert (await post(api, CLUSTER_ROLES, body)).status == 403
    assert (await api.call("POST", CLUSTER_ROLES, body)).status == 201


async def test_changing_only_owners_and_finalizers_is_free(api: Api) -> None:
    await give(api, WRITE)
    await api.call("POST", ROLES, role("other", DELETE_PODS))
    finalizers = {"metadata": {"finalizers": ["example.com/wait"]}}
    labels = {"metadata": {"labels": {"a": "b"}}}
    for patch, status in ((finalizers, 200), (labels, 403)):
        answer = await api.call(
            "PATCH", f"{ROLES}/other", patch, user="stranger", content_type=MERGE
        )
        assert answer.status == status


@pytest.mark.parametrize("path", [BINDINGS, CLUSTER_BINDINGS])
async def test_a_binding_gives_what_its_author_holds(api: Api, path: str) -> None:
    await give(api, WRITE, READ_PODS)
    await api.call("POST", CLUSTER_ROLES, role("readers", READ_PODS))
    assert (await post(api, path, binding("mine", "readers"))).status == 201
    assert (await post(api, path, binding("more", "cluster-admin"))).status == 403
    missing = await post(api, path, binding("none", "nothing"))
    assert missing.status == 404
    assert missing.json["details"]["kind"] == "clusterroles"
    added = {"subjects": [STRANGER, {"kind": "User", "name": "friend"}]}
    await api.call("POST", path, binding("admins", "cluster-admin"))
    patched = await api.call("PATCH", f"{path}/mine", added, user="stranger", content_type=MERGE)
    assert patched.status == 200


async def test_who_may_bind_a_role_need_not_hold_it(api: Api) -> None:
    bind = {**WRITE_ROLES, "verbs": ["bind"], "resources": ["clusterroles"]}
    await give(api, WRITE, {**bind, "resourceNames": ["view"]})
    assert (await post(api, BINDINGS, binding("viewers", "view"))).status == 201
    assert (await post(api, BINDINGS, binding("editors", "edit"))).status == 403


async def test_a_dry_run_is_checked_like_the_real_thing(api: Api) -> None:
    await give(api, WRITE)
    answer = await post(api, f"{ROLES}?dryRun=All", role("more", DELETE_PODS))
    assert answer.status == 403
