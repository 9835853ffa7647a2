"""Roles in a running server: in force as soon as they are stored, and completed at its start."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from orch.server.authz import defaults
from tests.orch.server.harness import MERGE, PODS, Api, Pki

RBAC = "/apis/rbac.authorization.orch.io/v1"
CLUSTER_ROLES = f"{RBAC}/clusterroles"
CLUSTER_BINDINGS = f"{RBAC}/clusterrolebindings"
ROLES = f"{RBAC}/namespaces/default/roles"
BINDINGS = f"{RBAC}/namespaces/default/rolebindings"
READ_PODS = {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}
STRANGER = {"kind": "User", "name": "stranger"}


def role(name: str, *rules: dict[str, Any], **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "rules": list(rules)}


def binding(name: str, role_name: str, kind: str = "ClusterRole") -> dict[str, Any]:
    reference = {"kind": kind, "name": role_name}
    return {"metadata": {"name": name}, "roleRef": reference, "subjects": [STRANGER]}


async def status(api: Api, path: str = PODS) -> int:
    return (await api.call("GET", path, user="stranger")).status


async def test_a_binding_is_in_force_with_the_next_request(api: Api) -> None:
    assert await status(api) == 403
    assert (await api.call("POST", ROLES, role("r", READ_PODS))).status == 201
    assert await status(api) == 403
    assert (await api.call("POST", BINDINGS, binding("b", "r", "Role"))).status == 201
    assert await status(api) == 200
    assert await status(api, "/api/v1/pods") == 403
    assert (await api.call("DELETE", f"{BINDINGS}/b")).status == 200
    assert await status(api) == 403
    await api.call("POST", CLUSTER_BINDINGS, binding("b", "view"))
    assert await status(api, "/api/v1/pods") == 200
    await api.call("DELETE", f"{CLUSTER_ROLES}/view")
    refused = await api.call("GET", PODS, user="stranger")
    assert (
        'RBAC: clusterrole.rbac.authorization.orch.io "view" not found' in (refused.json["message"])
    )


async def test_the_rules_of_the_defaults_are_aggregated(api: Api) -> None:
    admin = (await api.call("GET", f"{CLUSTER_ROLES}/admin")).json
    granted = {resource for rule in admin["rules"] for resource in rule["resources"]}
    assert {"rolebindings", "secrets", "pods/log"} <= granted
    view = (await api.call("GET", f"{CLUSTER_ROLES}/view")).json
    assert "secrets" not in {one for rule in view["rules"] for one in rule["resources"]}


async def test_an_aggregated_role_follows_the_roles_it_is_made_of(api: Api) -> None:
    label = {"rbac.authorization.orch.io/aggregate-to-view": "true"}
    things = {"verbs": ["get"], "apiGroups": ["things.io"], "resources": ["things"]}
    await api.call("POST", CLUSTER_ROLES, role("things", things, **label))
    async with asyncio.timeout(30):
        while things not in (await api.call("GET", f"{CLUSTER_ROLES}/admin")).json["rules"]:
            await asyncio.sleep(0.01)
    await api.call("DELETE", f"{CLUSTER_ROLES}/things")
    async with asyncio.timeout(30):
        while things in (await api.call("GET", f"{CLUSTER_ROLES}/admin")).json["rules"]:
            await asyncio.sleep(0.01)


async def test_a_role_without_labels_can_be_selected_too(api: Api) -> None:
    await api.call("POST", CLUSTER_ROLES, role("plain", READ_PODS))
    expression = {"key": "orch.io/bootstrapping", "operator": "DoesNotExist"}
    selectors = {"clusterRoleSelectors": [{"matchExpressions": [expression]}]}
    await api.call("POST", CLUSTER_ROLES, {**role("sum"), "aggregationRule": selectors})
    async with asyncio.timeout(30):
        while (await api.call("GET", f"{CLUSTER_ROLES}/sum")).json["rules"] != [READ_PODS]:
            await asyncio.sleep(0.01)


async def test_a_restart_completes_what_was_cut_and_spares_what_is_protected(
    server_pki: Pki, tmp_path: Path
) -> None:
    first = await Api.start(server_pki, tmp_path / "data")
    discovery, monitoring = (f"{CLUSTER_ROLES}/system:{one}" for one in ("discovery", "monitoring"))
    bound = f"{CLUSTER_BINDINGS}/system:monitoring"
    await first.call("PATCH", discovery, {"rules": [READ_PODS]}, content_type=MERGE)
    protect = {"metadata": {"annotations": {"rbac.authorization.orch.io/autoupdate": "false"}}}
    await first.call("PATCH", monitoring, {"rules": [], **protect}, content_type=MERGE)
    await first.call("DELETE", bound)
    await first.call("POST", CLUSTER_BINDINGS, binding("system:monitoring", "view"))
    before = (await first.call("GET", f"{CLUSTER_ROLES}/cluster-admin")).json
    await first.stop()
    second = await Api.start(server_pki, tmp_path / "data")
    rules = (await second.call("GET", discovery)).json["rules"]
    assert rules[0] == READ_PODS
    assert len(rules) > 1
    assert (await second.call("GET", monitoring)).json["rules"] == []
    assert (await second.call("GET", bound)).json["roleRef"]["name"] == "system:monitoring"
    assert (await second.call("GET", f"{CLUSTER_ROLES}/cluster-admin")).json == before
    await second.stop()


async def test_every_default_is_served(api: Api) -> None:
    listed = (await api.call("GET", CLUSTER_ROLES)).json["items"]
    assert {one["metadata"]["name"] for one in listed} == {
        one["metadata"]["name"] for one in defaults.ROLES
    }
    for default in defaults.BINDINGS:
        name = default["metadata"]["name"]
        assert (await api.call("GET", f"{CLUSTER_BINDINGS}/{name}")).status == 200
