"""The same objects under the reference's names, over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from orch.component.process import loops
from orch.server.request import aliases
from orch.server.request.attributes import parse_request
from tests.orch.server.harness import (
    JSON_PATCH,
    LEASES,
    MERGE,
    NAMESPACES,
    STRATEGIC,
    Api,
    Pki,
    lease,
)

THEIRS = LEASES.replace("orch.io", "k8s.io").replace("orch-node-lease", "kube-node-lease")
RBAC = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
OWN_RBAC = "/apis/rbac.authorization.orch.io/v1/clusterroles"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
ROLE = {
    "kind": "ClusterRole",
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "metadata": {"name": "r"},
    "rules": [{"verbs": ["get"], "apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}],
}

CHANGED = {"verbs": ["*"], "apiGroups": ["authorization.k8s.io"], "resources": ["*"]}


@pytest.fixture
async def api(server_pki: Pki, tmp_path: Path) -> AsyncIterator[Api]:
    api = await Api.start(server_pki, tmp_path / "data", "--serve-upstream-aliases")
    yield api
    await api.stop()


async def test_a_lease_is_one_object_under_both_names(api: Api) -> None:
    body = {**lease(), "apiVersion": "coordination.k8s.io/v1"}
    body["metadata"]["namespace"] = "kube-node-lease"
    created = await api.call("POST", THEIRS, body)
    assert created.status == 201, created.text
    assert created.json["apiVersion"] == "coordination.k8s.io/v1"
    own = (await api.call("GET", f"{LEASES}/n1")).json
    theirs = (await api.call("GET", f"{THEIRS}/n1")).json
    assert theirs == {**own, "apiVersion": "coordination.k8s.io/v1"}
    assert own["apiVersion"] == "coordination.orch.io/v1"
    theirs["spec"]["holderIdentity"] = "other"
    assert (await api.call("PUT", f"{THEIRS}/n1", theirs)).status == 200
    assert (await api.call("GET", f"{LEASES}/n1")).json["spec"]["holderIdentity"] == "other"
    listed = (await api.call("GET", THEIRS)).json
    assert listed["apiVersion"] == listed["items"][0]["apiVersion"] == "coordination.k8s.io/v1"
    assert (await api.call("DELETE", f"{THEIRS}/n1")).status == 200
    assert (await api.call("GET", f"{LEASES}/n1")).status == 404


async def test_a_watch_and_a_table_say_their_name(api: Api) -> None:
    await api.call("POST", LEASES, lease())
    watched = await api.call(
        "GET", f"{THEIRS}?watch=true&timeoutSeconds=1&allowWatchBookmarks=true"
    )
    events = [orjson.loads(line) for line in watched.body.splitlines()]
    assert [event["type"] for event in events] == ["ADDED", "BOOKMARK"]
    assert {event["object"]["apiVersion"] for event in events} == {"coordination.k8s.io/v1"}
    table = await api.call("GET", f"{THEIRS}?includeObject=Object", accept=TABLE)
    assert table.json["rows"][0]["object"]["apiVersion"] == "coordination.k8s.io/v1"


async def test_a_role_speaks_of_groups_as_its_reader_does(api: Api) -> None:
    assert (await api.call("POST", RBAC, ROLE)).status == 201
    own = (await api.call("GET", f"{OWN_RBAC}/r")).json
    assert own["rules"][0]["apiGroups"] == ["coordination.orch.io"]
    theirs = (await api.call("GET", f"{RBAC}/r")).json
    assert theirs["rules"] == ROLE["rules"]


async def test_a_role_with_the_references_label_adds_to_the_default_one(api: Api) -> None:
    labels = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
    things = {"verbs": ["get"], "apiGroups": ["things.io"], "resources": ["things"]}
    labelled = {**ROLE, "metadata": {"name": "things", "labels": labels}, "rules": [things]}
    assert (await api.call("POST", RBAC, labelled)).status == 201
    async with asyncio.timeout(30):
        while things not in (await api.call("GET", f"{RBAC}/admin")).json["rules"]:
            await asyncio.sleep(0.01)


async def test_an_owner_is_named_as_its_reader_names_it(api: Api) -> None:
    role = (await api.call("POST", RBAC, ROLE)).json
    owner = {"apiVersion": role["apiVersion"], "kind": "ClusterRole", "name": "r",
             "uid": role["metadata"]["uid"]}  # fmt: skip
    owned = {**lease(), "apiVersion": "coordination.k8s.io/v1"}
    owned["metadata"] |= {"ownerReferences": [owner]}
    created = await api.call("POST", THEIRS, owned)
    assert created.json["metadata"]["ownerReferences"] == [owner], created.text
    listed = (await api.call("GET", THEIRS)).json["items"]
    assert listed[0]["metadata"]["ownerReferences"] == [owner]
    own = (await api.call("GET", f"{LEASES}/n1")).json
    assert own["metadata"]["ownerReferences"] == [
        {**owner, "apiVersion": "rbac.authorization.orch.io/v1"}
    ]
    # Of the core group all is kept as it was said.
    config = {"metadata": {"name": "a", "ownerReferences": [owner]}}
    await api.call("POST", CONFIG_MAPS, config)
    kept = (await api.call("GET", f"{CONFIG_MAPS}/a")).json
    assert kept["metadata"]["ownerReferences"] == [owner]


async def test_what_an_owner_under_such_a_name_owns_goes_with_it(api: Api) -> None:
    role = (await api.call("POST", RBAC, ROLE)).json
    owner = {"apiVersion": role["apiVersion"], "kind": "ClusterRole", "name": "r",
             "uid": role["metadata"]["uid"]}  # fmt: skip
    config = {"metadata": {"name": "a", "ownerReferences": [owner]}}
    await api.call("POST", CONFIG_MAPS, config)
    collector = next(loop for loop in api.server.loops() if loop.name == "dependents")
    running = loops.spawn(collector.run(), name="dependents")
    try:
        await api.call("DELETE", f"{RBAC}/r")
        async with asyncio.timeout(10):
            while (await api.call("GET", f"{CONFIG_MAPS}/a")).status != 404:
                await asyncio.sleep(0.05)
    finally:
        await loops.cancel(running)


@pytest.mark.parametrize(
    ("media", "patch"),
    [
        (MERGE, {"rules": [CHANGED]}),
        (STRATEGIC, {"rules": [CHANGED]}),
        (
            JSON_PATCH,
            [
                {"op": "test", "path": "/rules/0/apiGroups/0", "value": "coordination.k8s.io"},
                {"op": "replace", "path": "/rules/0/apiGroups/0", "value": "authorization.k8s.io"},
            ],
        ),
    ],
)
async def test_a_patch_is_of_what_its_writer_sees(api: Api, media: str, patch: Any) -> None:
    await api.call("POST", RBAC, ROLE)
    patched = await api.call("PATCH", f"{RBAC}/r", patch, content_type=media)
    assert patched.status == 200, patched.text
    assert patched.json["rules"][0]["apiGroups"] == ["authorization.k8s.io"]
    own = (await api.call("GET", f"{OWN_RBAC}/r")).json
    assert own["rules"][0]["apiGroups"] == ["authorization.orch.io"]


async def test_a_review_is_asked_with_the_names_of_the_reference(api: Api) -> None:
    asked = {
        "resourceAttributes": {"verb": "get", "group": "coordination.k8s.io", "resource": "leases"}
    }
    body = {
        "kind": "SelfSubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "spec": asked,
    }
    answer = await api.call("POST", REVIEWS, body)
    assert answer.status == 201, answer.text
    assert answer.json["status"]["allowed"] is True
    assert answer.json["spec"]["resourceAttributes"]["group"] == "coordination.k8s.io"
    refused = await api.call("POST", REVIEWS, body, user="stranger")
    assert refused.json["status"]["allowed"] is False


async def test_permission_is_that_of_the_own_group(api: Api) -> None:
    own = await api.call("GET", LEASES, user="stranger")
    theirs = await api.call("GET", THEIRS, user="stranger")
    assert own.status == theirs.status == 403
    in_group = 'in API group "coordination.{}"'
    assert in_group.format("orch.io") in own.json["message"]
    assert theirs.json["message"] == own.json["message"].replace("orch.io", "k8s.io")
    assert (await api.call("GET", f"{THEIRS}/n1", user="n1")).status == 404


@pytest.mark.parametrize(
    ("method", "body", "said"),
    [
        ("GET", None, 'leases.coordination.k8s.io "n1" not found'),
        ("PUT", {"metadata": {"name": "n1"}, "spec": {"leaseDurationSeconds": 0}}, "n1"),
    ],
)
async def test_a_refusal_names_the_group_as_the_request_did(
    api: Api, method: str, body: Any, said: str
) -> None:
    refused = await api.call(method, f"{THEIRS}/n1", body)
    assert refused.status >= 400 and said in refused.json["message"]
    assert refused.json["details"]["group"] == "coordination.k8s.io"
    assert "coordination.orch.io" not in refused.text
    own = await api.call(method, f"{LEASES}/n1", body)
    assert own.json["details"]["group"] == "coordination.orch.io"


async def test_a_refusal_leaves_the_names_of_objects_and_translates_its_causes(api: Api) -> None:
    name = "x.rbac.authorization.orch.io"
    missing = await api.call("GET", f"{RBAC}/{name}")
    assert missing.json["message"] == f'clusterroles.rbac.authorization.k8s.io "{name}" not found'
    binding = {"metadata": {"name": "b"}, "roleRef": {"apiGroup": "x", "kind": "ClusterRole"}}
    refused = await api.call("POST", RBAC.replace("roles", "rolebindings"), binding)
    assert refused.status == 422 and "rbac.authorization.orch.io" not in refused.text
    assert any(
        "rbac.authorization.k8s.io" in c["message"] for c in refused.json["details"]["causes"]
    )
    unasked = await api.call("POST", REVIEWS, {"spec": {}})
    (cause,) = unasked.json["details"]["causes"]
    assert cause["field"] == "spec.resourceAttributes"
    assert "AuthorizationAttributes" not in unasked.text


async def test_a_review_allows_what_a_request_in_that_namespace_is_allowed(api: Api) -> None:
    attributes = {
        "verb": "get", "group": "coordination.k8s.io", "resource": "leases", "name": "n1",
        "namespace": "kube-node-lease",
    }  # fmt: skip
    spec = {"resourceAttributes": attributes}
    own = await api.call("POST", REVIEWS, {"spec": spec}, user="n1")
    assert own.json["status"]["allowed"] is True, own.text
    local = REVIEWS.replace("selfsubject", "namespaces/kube-node-lease/localsubject")
    asked = {"spec": {**spec, "user": "somebody"}}
    assert (await api.call("POST", local, asked)).json["status"]["allowed"] is False


async def test_a_local_review_of_the_core_group_is_about_the_namespace_it_names(api: Api) -> None:
    local = REVIEWS.replace("selfsubject", "namespaces/kube-node-lease/localsubject")
    attributes = {"verb": "list", "resource": "pods", "namespace": "kube-node-lease"}
    body = {"metadata": {"namespace": "kube-node-lease"}}
    asked = {**body, "spec": {"resourceAttributes": attributes, "user": "jane"}}
    refused = await api.call("POST", local, asked)
    assert (refused.status, refused.json["status"]["allowed"]) == (201, False), refused.text
    await api.call("POST", NAMESPACES, {"metadata": {"name": "kube-node-lease"}})
    subject = {"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.orch.io"}
    role = {"kind": "ClusterRole", "name": "view", "apiGroup": "rbac.authorization.orch.io"}
    bindings = "/apis/rbac.authorization.orch.io/v1/namespaces/kube-node-lease/rolebindings"
    binding = {"metadata": {"name": "b"}, "roleRef": role, "subjects": [subject]}
    assert (await api.call("POST", bindings, binding)).status == 201
    assert (await api.call("POST", local, asked)).json["status"]["allowed"] is True
    other = {**attributes, "namespace": "default"}
    asked["spec"] = {"resourceAttributes": other, "user": "jane"}
    assert (await api.call("POST", local, asked)).status == 422
    own = f"/apis/authorization.orch.io/v1/namespaces/orch-node-lease/{local.split('/')[-1]}"
    spec = {"resourceAuthorizationAttributes": attributes, "user": "jane"}
    assert (await api.call("POST", own, {"spec": spec})).status == 422


async def test_both_names_are_discovered_and_described(api: Api) -> None:
    aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    items = (await api.call("GET", "/apis", accept=aggregated)).json["items"]
    groups = [item["metadata"]["name"] for item in items]
    assert groups.index("coordination.k8s.io") < groups.index("coordination.orch.io")
    assert "metrics.k8s.io" in groups
    found = next(item for item in items if item["metadata"]["name"] == "metrics.k8s.io")
    assert [one["version"] for one in found["versions"]] == ["v1", "v1beta1"]
    for version in ("v1", "v1beta1"):
        resources = (await api.call("GET", f"/apis/metrics.k8s.io/{version}")).json["resources"]
        assert [one["name"] for one in resources] == ["nodes", "pods"]
    paths = (await api.call("GET", "/openapi/v3")).json["paths"]
    assert {"apis/coordination.k8s.io/v1", "apis/metrics.k8s.io/v1beta1"} <= paths.keys()


async def test_who_searches_the_older_discovery_by_kind_finds_one(api: Api) -> None:
    listed = [group["name"] for group in (await api.call("GET", "/apis")).json["groups"]]
    kinds = []
    for group in listed:
        described = (await api.call("GET", f"/apis/{group}/v1")).json["resources"]
        kinds += [one["kind"] for one in described if "/" not in one["name"]]
    assert {
        "CustomResourceDefinition",
        "Lease",
        "ClusterRole",
        "SelfSubjectAccessReview",
        "PriorityClass",
        "RuntimeClass",
        "CertificateSigningRequest",
    } <= set(kinds)
    assert sorted(set(kinds)) == sorted(kinds)
    go = {"User-Agent": "kubectl/v1.20.2 (linux/amd64) kubernetes/faecb19"}  # it looks for a group
    groups = (await api.call("GET", "/apis", headers=go)).json["groups"]
    assert {"coordination.k8s.io", "coordination.orch.io"} <= {group["name"] for group in groups}
    own = (await api.call("GET", "/apis/coordination.orch.io")).json
    assert own["preferredVersion"]["groupVersion"] == "coordination.orch.io/v1"


async def test_without_the_flag_there_is_no_such_group(server_pki: Pki, tmp_path: Path) -> None:
    api = await Api.start(server_pki, tmp_path / "other")
    try:
        assert (await api.call("GET", THEIRS)).status == 404
        assert (await api.call("GET", "/apis/metrics.k8s.io/v1beta1/nodes")).status == 404
        assert b"k8s.io" not in (await api.call("GET", "/apis")).body
    finally:
        await api.stop()


def test_other_requests_are_left_as_they_are() -> None:
    info = parse_request("GET", "/apis/apps/v1/namespaces/kube-node-lease/deployments", {})
    assert aliases.own_request(info) is info
