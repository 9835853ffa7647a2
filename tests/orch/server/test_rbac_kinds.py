"""The four kinds of access control over HTTP: all eight operations, as for every other kind."""

from __future__ import annotations

from typing import Any

import pytest

from tests.orch.server.harness import JSON_PATCH, MERGE, STRATEGIC, Api

RBAC = "/apis/rbac.authorization.orch.io/v1"
RULES = [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]
REF = {"apiGroup": "rbac.authorization.orch.io", "kind": "ClusterRole", "name": "system:discovery"}
SUBJECTS = [{"kind": "User", "name": "ann"}]
KINDS = {
    "ClusterRole": (f"{RBAC}/clusterroles", {"rules": RULES}),
    "ClusterRoleBinding": (f"{RBAC}/clusterrolebindings", {"subjects": SUBJECTS, "roleRef": REF}),
    "Role": (f"{RBAC}/namespaces/default/roles", {"rules": RULES}),
    "RoleBinding": (
        f"{RBAC}/namespaces/default/rolebindings",
        {"subjects": SUBJECTS, "roleRef": REF},
    ),
}


def named(name: str, body: dict[str, Any], **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, **body}


@pytest.mark.parametrize("kind", KINDS)
async def test_the_eight_operations(api: Api, kind: str) -> None:
    path, body = KINDS[kind]
    created = await api.call("POST", path, named("a:b", body, of="test"))
    assert (created.status, created.json["kind"]) == (201, kind)
    one = f"{path}/a:b"
    assert (await api.call("GET", one)).json == created.json
    replaced = await api.call("PUT", one, named("a:b", body, of="test", now="replaced"))
    assert replaced.status == 200
    for media, patch in (
        (MERGE, {"metadata": {"labels": {"merged": "1"}}}),
        (STRATEGIC, {"metadata": {"labels": {"strategic": "1"}}}),
        (JSON_PATCH, [{"op": "add", "path": "/metadata/labels/json", "value": "1"}]),
    ):
        assert (await api.call("PATCH", one, patch, content_type=media)).status == 200
    listed = (await api.call("GET", f"{path}?labelSelector=of%3Dtest")).json
    assert listed["kind"] == f"{kind}List"
    (item,) = listed["items"]
    assert set(item["metadata"]["labels"]) == {"of", "now", "merged", "strategic", "json"}
    watch = f"{path}?watch=1&timeoutSeconds=1&labelSelector=of%3Dtest"
    assert '"ADDED"' in (await api.call("GET", watch)).text
    deleted = await api.call("DELETE", one)
    assert (deleted.status, deleted.json["kind"], deleted.json["status"]) == (
        200, "Status", "Success",
    )  # fmt: skip
    await api.call("POST", path, named("c", body, of="test"))
    swept = await api.call("DELETE", f"{path}?labelSelector=of%3Dtest")
    assert (swept.status, swept.json["kind"]) == (200, "Status")
    assert (await api.call("GET", f"{path}/c")).status == 404


@pytest.mark.parametrize("kind", KINDS)
async def test_a_replacement_creates_what_is_missing(api: Api, kind: str) -> None:
    path, body = KINDS[kind]
    assert (await api.call("PUT", f"{path}/new", named("new", body))).status == 201


@pytest.mark.parametrize("plural", ["roles", "rolebindings"])
async def test_namespaced_kinds_are_listed_across_namespaces(api: Api, plural: str) -> None:
    path, body = KINDS["Role" if plural == "roles" else "RoleBinding"]
    await api.call("POST", path, named("a", body))
    everywhere = (await api.call("GET", f"{RBAC}/{plural}")).json
    found = [(i["metadata"]["namespace"], i["metadata"]["name"]) for i in everywhere["items"]]
    assert ("default", "a") in found


async def test_the_role_of_a_binding_cannot_be_changed(api: Api) -> None:
    path, body = KINDS["ClusterRoleBinding"]
    await api.call("POST", path, named("b", body))
    other = {**body, "roleRef": {**REF, "name": "cluster-admin"}}
    answer = await api.call("PUT", f"{path}/b", named("b", other))
    assert answer.status == 422
    assert answer.json["details"]["causes"][0]["field"] == "roleRef"


async def test_a_table_shows_the_role_of_a_binding(api: Api) -> None:
    path, body = KINDS["RoleBinding"]
    await api.call("POST", path, named("b", body))
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    table = (await api.call("GET", f"{path}/b", accept=accept)).json
    assert table["rows"][0]["cells"][:2] == ["b", "ClusterRole/system:discovery"]
