"""Paths served beside resources, over HTTP."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from orch.server.discovery import openapi
from tests.orch.server.harness import Api, Pki

RBAC = "/apis/rbac.authorization.orch.io/v1"
V2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


async def test_discovery_is_negotiated_and_can_be_revalidated(api: Api) -> None:
    legacy = await api.call("GET", "/apis")
    assert legacy.json["kind"] == "APIGroupList"
    aggregated = await api.call("GET", "/apis", accept=f"{V2},application/json")
    assert aggregated.headers["Content-Type"] == V2
    assert aggregated.headers["Vary"] == "Accept"
    etag = aggregated.headers["ETag"]
    again = await api.call("GET", "/apis", accept=V2, headers={"If-None-Match": etag})
    assert (again.status, again.body) == (304, b"")
    other = await api.call("GET", "/apis", accept=V2, headers={"If-None-Match": '"OTHER"'})
    assert other.status == 200


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/api", "APIVersions"),
        ("/api/", "APIVersions"),
        ("/api/v1", "APIResourceList"),
        ("/api/v1/", "APIResourceList"),
        ("/apis/coordination.orch.io", "APIGroup"),
        ("/apis/coordination.orch.io/v1", "APIResourceList"),
    ],
)
async def test_discovery_documents_are_found_with_and_without_a_slash(
    api: Api, path: str, kind: str
) -> None:
    assert (await api.call("GET", path)).json["kind"] == kind


@pytest.mark.parametrize("path", ["/api/v2", "/apis/x.io", "/apis/x.io/v1", "/openapi/v4"])
async def test_unknown_paths_are_plain_404s(api: Api, path: str) -> None:
    answer = await api.call("GET", path)
    assert (answer.status, answer.text) == (404, "404 page not found\n")
    assert answer.headers["Content-Type"].startswith("text/plain")


async def test_the_root_lists_the_paths_that_are_served(api: Api) -> None:
    paths = (await api.call("GET", "/")).json["paths"]
    assert paths == sorted(set(paths))
    assert {"/api", "/api/v1", "/apis", "/apis/coordination.orch.io/v1"} <= set(paths)
    assert {"/configz", "/healthz", "/metrics", "/openapi/v2", "/openapi/v3", "/version"} <= set(
        paths
    )
    for path in paths:
        assert (await api.call("GET", path)).status == 200, path


async def test_the_root_is_for_those_whose_roles_name_it(api: Api) -> None:
    assert (await api.call("GET", "/", user="stranger")).status == 403
    rule = {"verbs": ["get"], "nonResourceURLs": ["/"]}
    role = {"metadata": {"name": "root"}, "rules": [rule]}
    await api.call("POST", f"{RBAC}/clusterroles", role)
    binding = {
        "metadata": {"name": "root"},
        "roleRef": {
            "apiGroup": "rbac.authorization.orch.io",
            "kind": "ClusterRole",
            "name": "root",
        },
        "subjects": [{"kind": "User", "name": "stranger"}],
    }
    await api.call("POST", f"{RBAC}/clusterrolebindings", binding)
    assert (await api.call("GET", "/", user="stranger")).status == 200


async def test_openapi_is_json_and_in_protobuf_for_older_clients(api: Api) -> None:
    index = (await api.call("GET", "/openapi/v3")).json["paths"]
    for entry in index.values():
        document = await api.call("GET", entry["serverRelativeURL"])
        assert document.json["openapi"] == "3.0.0"
    asked = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
    v2 = await api.call("GET", "/openapi/v2", accept=asked)
    assert v2.headers["Content-Type"] == openapi.V2_PROTOBUF
    assert orjson.loads((await api.call("GET", "/openapi/v2")).body)["swagger"] == "2.0"


ASKS_AGAIN, LASTS = "no-cache, private", "public, immutable, max-age=31536000"


@pytest.mark.parametrize(
    ("path", "accept", "cache", "has_etag"),
    [
        ("/api", "application/json", ASKS_AGAIN, False),
        ("/apis/coordination.orch.io/v1", "application/json", ASKS_AGAIN, False),
        ("/apis", V2, "public", True),
        ("/version", "application/json", ASKS_AGAIN, False),
        ("/openapi/v2", "application/json", ASKS_AGAIN, True),
        (
            "/openapi/v2",
            "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
            ASKS_AGAIN,
            True,
        ),
        ("/openapi/v3", "application/json", ASKS_AGAIN, True),
        ("/openapi/v3/api/v1", "application/json", ASKS_AGAIN, True),
    ],
)
async def test_documents_say_how_long_they_may_be_kept(
    api: Api, path: str, accept: str, cache: str, has_etag: bool
) -> None:
    answer = await api.call("GET", path, accept=accept)
    assert answer.headers["Cache-Control"] == cache
    assert ("ETag" in answer.headers) == has_etag
    if has_etag:
        known = {"If-None-Match": answer.headers["ETag"]}
        again = await api.call("GET", path, accept=accept, headers=known)
        assert (again.status, again.body) == (304, b"")


async def test_a_document_under_its_hash_is_kept_for_good(api: Api) -> None:
    index = (await api.call("GET", "/openapi/v3")).json["paths"]
    url = index["api/v1"]["serverRelativeURL"]
    assert (await api.call("GET", url)).headers["Cache-Control"] == LASTS
    moved = await api.call("GET", "/openapi/v3/api/v1?hash=OLD")
    assert (moved.status, moved.headers["Location"]) == (301, url)


async def test_the_version_is_the_reference_release(api: Api) -> None:
    version = (await api.call("GET", "/version?timeout=32s")).json
    assert (version["major"], version["minor"]) == ("1", "35")
    assert version["gitVersion"].startswith("v1.35.")


async def test_health_results_are_counted_for_scrapers_though_nobody_asks(api: Api) -> None:
    await api.turn("health checks")
    page = (await api.call("GET", "/metrics/slis", user="monitor")).text
    assert 'orch_healthcheck{name="etcd-readiness",type="readyz"} 1' in page
    assert 'orch_healthchecks_total{name="ping",status="success",type="readyz"} 1' in page


async def test_status_and_flags_are_shown_when_switched_on(server_pki: Pki, tmp_path: Path) -> None:
    gates = "--feature-gates=ComponentStatusz=true,ComponentFlagz=true"
    api = await Api.start(server_pki, tmp_path / "data", gates)
    structured = "application/json;v=v1alpha1;g=config.orch.io;as=Statusz"
    status = await api.call("GET", "/statusz", user="monitor", accept=structured)
    assert status.json["kind"] == "Statusz"
    assert "/metrics" in status.json["paths"]
    flagz = await api.call("GET", "/flagz", user="monitor", accept="text/plain")
    assert "orch-apiserver flagz" in flagz.text
    assert (await api.call("GET", "/flagz", accept="application/json")).status == 406
    assert (await api.call("GET", "/flagz", user="stranger")).status == 403
    await api.stop()


async def test_status_and_flags_are_off_by_default(api: Api) -> None:
    assert (await api.call("GET", "/statusz")).status == 404
    page = (await api.call("GET", "/metrics")).text
    assert 'orch_feature_enabled{name="ComponentStatusz",stage="ALPHA"} 0.0' in page
