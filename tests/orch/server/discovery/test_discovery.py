from __future__ import annotations

import orjson
import pytest

from orch.server.discovery.discovery import SUBRESOURCES, Discovery
from orch.wire.records.kinds import RESOURCES

V2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
V2BETA1 = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
KUBECTL_130 = f"{V2},{V2BETA1},application/json"
KUBECTL_127 = f"{V2BETA1},application/json"

discovery = Discovery(RESOURCES, "127.0.0.1:6443")


def read(path: str, accept: str = "application/json"):
    document = discovery.find(path, accept)
    assert document is not None
    return orjson.loads(document.body)


def test_the_legacy_documents_name_versions_groups_and_resources() -> None:
    assert read("/api")["versions"] == ["v1"]
    assert read("/api")["serverAddressByClientCIDRs"][0]["serverAddress"] == "127.0.0.1:6443"
    groups = read("/apis")["groups"]
    names = [group["name"] for group in groups]
    assert names == list(dict.fromkeys(r.group for r in RESOURCES if r.group))
    assert "coordination.orch.io" in names
    for group in groups:
        assert group["preferredVersion"]["groupVersion"] == f"{group['name']}/v1"
    assert read("/apis/coordination.orch.io")["kind"] == "APIGroup"
    core = {entry["name"]: entry for entry in read("/api/v1")["resources"]}
    assert core["pods"]["shortNames"] == ["po"]
    assert core["pods"]["categories"] == ["all"]
    assert core["pods/binding"]["kind"] == "Binding"
    assert core["pods/binding"]["verbs"] == ["create"]
    assert core["nodes"]["namespaced"] is False
    assert "deletecollection" not in core["namespaces"]["verbs"]
    assert core["nodes/proxy"]["verbs"] == ["create", "delete", "get", "patch", "update"]
    leases = read("/apis/coordination.orch.io/v1")
    assert leases["groupVersion"] == "coordination.orch.io/v1"
    assert [entry["name"] for entry in leases["resources"]] == ["leases"]


@pytest.mark.parametrize(
    ("accept", "version"), [(KUBECTL_130, "v2"), (KUBECTL_127, "v2beta1"), (V2, "v2")]
)
def test_the_aggregated_form_is_the_one_that_was_asked_for(accept: str, version: str) -> None:
    document = discovery.find("/apis", accept)
    assert document is not None
    assert document.content_type == (
        f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
    )
    body = orjson.loads(document.body)
    assert (body["kind"], body["apiVersion"]) == (
        "APIGroupDiscoveryList",
        f"apidiscovery.k8s.io/{version}",
    )
    assert document.etag.startswith('"')


def test_the_aggregated_form_describes_every_resource_with_its_subresources() -> None:
    (core,) = read("/api", V2)["items"]
    resources = {entry["resource"]: entry for entry in core["versions"][0]["resources"]}
    assert core["versions"][0]["freshness"] == "Current"
    assert set(resources) == {one.plural for one in RESOURCES if not one.group}
    pods = resources["pods"]
    assert (pods["scope"], pods["singularResource"]) == ("Namespaced", "pod")
    assert pods["responseKind"] == {"group": "", "version": "v1", "kind": "Pod"}
    kinds = {s["subresource"]: s["responseKind"]["kind"] for s in pods["subresources"]}
    assert kinds == {
        "status": "Pod", "binding": "Binding", "ephemeralcontainers": "Pod",
        "eviction": "Eviction", "log": "Pod", "attach": "PodAttachOptions", "resize": "Pod",
        "exec": "PodExecOptions", "portforward": "PodPortForwardOptions",
    }  # fmt: skip
    named = [group["metadata"]["name"] for group in read("/apis", V2)["items"]]
    assert named == list(dict.fromkeys(one.group for one in RESOURCES if one.group))


def test_a_client_finds_by_the_group_of_a_subresource_what_to_send() -> None:
    """What `kubectl drain` looks for before it evicts."""
    listed = {one["name"]: one for one in read("/api/v1")["resources"]}
    eviction = listed["pods/eviction"]
    assert (eviction["kind"], eviction["group"], eviction["version"]) == (
        "Eviction",
        "policy",
        "v1",
    )
    assert "group" not in listed["pods/status"]
    assert listed["pods/ephemeralcontainers"]["verbs"] == ["get", "patch", "update"]


@pytest.mark.parametrize(
    ("path", "plural", "digest"),  # as a server of the reference answers
    [
        ("/api/v1", "pods", "xPOwRZ+Yhw8="),
        ("/api/v1", "configmaps", "qFsyl6wFWjQ="),
        ("/api/v1", "nodes", "XwShjMxG9Fs="),
        ("/api/v1", "events", "r2yiGXH7wu8="),
        ("/apis/events.orch.io/v1", "events", "r2yiGXH7wu8="),  # they are stored as those above
    ],
)
def test_a_kind_tells_in_which_version_it_is_stored(path: str, plural: str, digest: str) -> None:
    (entry,) = (one for one in read(path)["resources"] if one["name"] == plural)
    assert entry["storageVersionHash"] == digest


def test_a_review_is_only_created() -> None:
    resources = read("/apis/authorization.orch.io/v1")["resources"]
    assert {(r["name"], r["namespaced"]) for r in resources} == {
        ("subjectaccessreviews", False),
        ("localsubjectaccessreviews", True),
        ("selfsubjectaccessreviews", False),
        ("selfsubjectrulesreviews", False),
    }
    assert all(r["verbs"] == ["create"] and "storageVersionHash" not in r for r in resources)


def test_plain_json_and_documents_below_the_root_are_legacy() -> None:
    assert read("/apis", "application/json")["kind"] == "APIGroupList"
    assert read("/apis", "")["kind"] == "APIGroupList"
    assert read("/api/v1", V2)["kind"] == "APIResourceList"
    assert read("/apis", f"application/json,{V2}")["kind"] == "APIGroupList"
    assert read("/api/")["kind"] == "APIVersions"


@pytest.mark.parametrize("path", ["/api/v2", "/apis/other.io", "/apis/coordination.orch.io/v2"])
def test_what_is_not_served_is_not_found(path: str) -> None:
    assert discovery.find(path, "application/json") is None


def test_every_subresource_of_every_kind_is_described() -> None:
    for resource in RESOURCES:
        assert set(resource.subresources) <= SUBRESOURCES.keys()
