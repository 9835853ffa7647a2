"""The verbs over HTTP: what is answered, with which code, in which shape."""

from __future__ import annotations

import pytest

from tests.orch.server.harness import (
    EVENTS,
    LEASES,
    MERGE,
    NAMESPACES,
    NODES,
    PODS,
    STRATEGIC,
    Api,
    lease,
    node,
    pod,
)


async def test_an_object_goes_through_its_life(api: Api) -> None:
    created = await api.call("POST", NODES, node("n1"))
    assert created.status == 201
    assert created.json["metadata"]["uid"]

    read = await api.call("GET", f"{NODES}/n1")
    assert (read.status, read.json) == (200, created.json)

    patched = await api.call(
        "PATCH", f"{NODES}/n1", {"metadata": {"labels": {"a": "b"}}}, content_type=MERGE
    )
    assert patched.json["metadata"]["labels"] == {"a": "b"}
    versions = [int(a.json["metadata"]["resourceVersion"]) for a in (created, patched)]
    assert versions[0] < versions[1]

    replaced = await api.call(
        "PUT", f"{NODES}/n1", patched.json | {"spec": {"unschedulable": True}}
    )
    assert replaced.json["spec"] == {"unschedulable": True}

    deleted = await api.call("DELETE", f"{NODES}/n1")
    assert deleted.json["status"] == "Success"
    assert deleted.json["details"] == {
        "name": "n1",
        "kind": "nodes",
        "uid": created.json["metadata"]["uid"],
    }
    assert (await api.call("GET", f"{NODES}/n1")).status == 404


async def test_a_missing_object_is_not_found_in_the_words_clients_know(api: Api) -> None:
    answer = await api.call("GET", f"{LEASES}/nobody")
    assert answer.status == 404
    assert answer.json == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'leases.coordination.orch.io "nobody" not found',
        "reason": "NotFound",
        "details": {"name": "nobody", "group": "coordination.orch.io", "kind": "leases"},
        "code": 404,
    }


async def test_creating_twice_is_already_exists(api: Api) -> None:
    await api.call("POST", PODS, pod())
    again = await api.call("POST", PODS, pod())
    assert (again.status, again.json["reason"]) == (409, "AlreadyExists")


async def test_an_update_of_an_old_version_is_a_conflict(api: Api) -> None:
    first = (await api.call("POST", LEASES, lease())).json
    await api.call("PUT", f"{LEASES}/n1", first | {"spec": {"holderIdentity": "x"}})
    lost = await api.call("PUT", f"{LEASES}/n1", first | {"spec": {"holderIdentity": "y"}})
    assert (lost.status, lost.json["reason"]) == (409, "Conflict")
    assert "apply your changes to the latest version" in lost.json["message"]


async def test_a_lease_must_be_updated_with_a_version_but_may_be_created_by_put(api: Api) -> None:
    created = await api.call("PUT", f"{LEASES}/n1", lease())
    assert created.status == 201
    blind = await api.call("PUT", f"{LEASES}/n1", lease())
    assert blind.status == 422
    assert "metadata.resourceVersion" in blind.json["message"]
    assert (await api.call("PUT", f"{NODES}/nope", node("nope"))).status == 404


async def test_lists_have_the_kind_the_version_and_the_items(api: Api) -> None:
    for name in ("b", "a"):
        await api.call("POST", NODES, node(name, labels={"is": name}))
    listed = (await api.call("GET", NODES)).json
    assert (listed["kind"], listed["apiVersion"]) == ("NodeList", "v1")
    assert [item["metadata"]["name"] for item in listed["items"]] == ["a", "b"]
    assert int(listed["metadata"]["resourceVersion"]) >= 2
    selected = (await api.call("GET", f"{NODES}?labelSelector=is%3Db")).json
    assert [item["metadata"]["name"] for item in selected["items"]] == ["b"]
    empty = (await api.call("GET", PODS)).json
    assert empty["items"] == []


async def test_pods_of_all_namespaces_are_listed_and_selected_by_node(api: Api) -> None:
    await api.call("POST", NAMESPACES, {"metadata": {"name": "other"}})
    await api.call("POST", PODS, pod("a", node="n1"))
    await api.call("POST", "/api/v1/namespaces/other/pods", pod("b", node="n2"))
    every = (await api.call("GET", "/api/v1/pods")).json
    assert [i["metadata"]["namespace"] for i in every["items"]] == ["default", "other"]
    mine = (await api.call("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn2")).json
    assert [i["metadata"]["name"] for i in mine["items"]] == ["b"]


async def test_a_field_the_kind_cannot_be_selected_by_is_refused(api: Api) -> None:
    answer = await api.call("GET", f"{PODS}?fieldSelector=spec.color%3Dred")
    assert answer.status == 400
    assert "field label not supported: spec.color" in answer.json["message"]


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        (f"{PODS}?limit=x", 400),
        (f"{PODS}?resourceVersion=x", 400),
        (f"{PODS}?resourceVersion=999999", 504),
        (f"{PODS}?resourceVersionMatch=Exact", 422),
        (f"{PODS}?continue=nonsense", 400),
        (f"{PODS}?labelSelector=a%3D%3D%3D", 400),
        (f"{PODS}?includeObject=Everything", 400),
    ],
)
async def test_query_values_that_make_no_sense_are_refused(
    api: Api, path: str, wanted: int
) -> None:
    assert (await api.call("GET", path)).status == wanted


async def test_pages_share_a_version_and_cover_everything_once(api: Api) -> None:
    for n in range(5):
        await api.call("POST", PODS, pod(f"p{n}"))
    first = (await api.call("GET", f"{PODS}?limit=2")).json
    assert first["metadata"]["remainingItemCount"] == 3
    await api.call("DELETE", f"{PODS}/p3")
    await api.call("POST", PODS, pod("p2x"))
    seen = first["items"]
    metadata = first["metadata"]
    while metadata.get("continue"):
        page = (await api.call("GET", f"{PODS}?limit=2&continue={metadata['continue']}")).json
        seen += page["items"]
        metadata = page["metadata"]
        assert metadata["resourceVersion"] == first["metadata"]["resourceVersion"]
    assert [item["metadata"]["name"] for item in seen] == [f"p{n}" for n in range(5)]


async def test_a_pod_in_a_missing_namespace_is_not_found(api: Api) -> None:
    answer = await api.call("POST", "/api/v1/namespaces/nowhere/pods", pod())
    assert (answer.status, answer.json["message"]) == (404, 'namespaces "nowhere" not found')


async def test_names_are_generated_from_a_base(api: Api) -> None:
    body = {**pod(), "metadata": {"generateName": "web-"}}
    name = (await api.call("POST", PODS, body)).json["metadata"]["name"]
    assert name.startswith("web-")
    assert len(name) == len("web-") + 5


async def test_an_update_that_changes_nothing_writes_nothing(api: Api) -> None:
    first = (await api.call("POST", NODES, node())).json
    again = await api.call("PUT", f"{NODES}/n1", first)
    assert again.json["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_status_is_changed_only_at_its_own_path(api: Api) -> None:
    await api.call("POST", PODS, pod(node="n1"))
    ignored = await api.call(
        "PATCH", f"{PODS}/p1", {"status": {"phase": "Running"}}, content_type=MERGE
    )
    assert ignored.json["status"]["phase"] == "Pending"
    changed = await api.call(
        "PATCH",
        f"{PODS}/p1/status",
        {"status": {"phase": "Running"}, "spec": {"nodeName": "elsewhere"}},
        content_type=MERGE,
    )
    assert changed.json["status"]["phase"] == "Running"
    assert changed.json["spec"]["nodeName"] == "n1"
    assert (await api.call("GET", f"{PODS}/p1/status")).json == changed.json


async def test_a_bound_pod_is_deleted_with_grace_and_gone_when_its_agent_says_so(api: Api) -> None:
    await api.call("POST", PODS, pod(node="n1"))
    marked = await api.call("DELETE", f"{PODS}/p1", {"propagationPolicy": "Background"})
    assert marked.status == 200
    assert marked.json["metadata"]["deletionGracePeriodSeconds"] == 30
    assert marked.json["metadata"]["deletionTimestamp"]
    assert (await api.call("GET", f"{PODS}/p1")).status == 200
    gone = await api.call("DELETE", f"{PODS}/p1", {"gracePeriodSeconds": 0}, user="n1")
    assert gone.json["kind"] == "Pod"
    assert (await api.call("GET", f"{PODS}/p1")).status == 404


async def test_binding_assigns_a_pod_once(api: Api) -> None:
    await api.call("POST", PODS, pod())
    binding = {"metadata": {"name": "p1"}, "target": {"kind": "Node", "name": "n1"}}
    bound = await api.call("POST", f"{PODS}/p1/binding", binding)
    assert (bound.status, bound.json["status"]) == (201, "Success")
    read = (await api.call("GET", f"{PODS}/p1")).json
    assert read["spec"]["nodeName"] == "n1"
    assert read["status"]["conditions"][0]["type"] == "PodScheduled"
    again = await api.call("POST", f"{PODS}/p1/binding", binding)
    assert (again.status, again.json["reason"]) == (409, "Conflict")


async def test_a_collection_is_deleted_by_selector(api: Api) -> None:
    for name, kind in (("a", "x"), ("b", "y")):
        await api.call("POST", PODS, pod(name, labels={"kind": kind}))
    answer = await api.call("DELETE", f"{PODS}?labelSelector=kind%3Dx")
    assert (answer.status, answer.json["status"]) == (200, "Success")
    left = (await api.call("GET", PODS)).json["items"]
    assert [item["metadata"]["name"] for item in left] == ["b"]
    assert (await api.call("DELETE", NAMESPACES)).status == 405


async def test_dry_run_does_everything_but_store(api: Api) -> None:
    created = await api.call("POST", f"{PODS}?dryRun=All", pod())
    assert created.status == 201
    assert created.json["metadata"]["uid"]
    assert "resourceVersion" not in created.json["metadata"]
    assert (await api.call("GET", f"{PODS}/p1")).status == 404
    assert (await api.call("POST", f"{PODS}?dryRun=All", {"metadata": {}})).status == 422
    assert (await api.call("POST", f"{PODS}?dryRun=Some", pod())).status == 422
    await api.call("POST", PODS, pod())
    deleted = await api.call("DELETE", f"{PODS}/p1?dryRun=All")
    assert deleted.status == 200
    assert (await api.call("GET", f"{PODS}/p1")).status == 200


async def test_strict_field_validation_names_the_field(api: Api) -> None:
    body = pod()
    body["spec"]["containers"][0]["imag"] = "x"
    strict = await api.call("POST", f"{PODS}?fieldValidation=Strict", body)
    assert strict.status == 400
    assert (
        'strict decoding error: unknown field "spec.containers[0].imag"' in strict.json["message"]
    )
    warned = await api.call("POST", PODS, body)
    assert warned.status == 201
    assert warned.headers["Warning"] == '299 - "unknown field \\"spec.containers[0].imag\\""'


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (b"{", "application/json", 400),
        (b"[]", "application/json", 400),
        (b"{}", "text/csv", 415),
        (b'{"kind":"Node"}', "application/json", 400),
        (b'{"apiVersion":"v2"}', "application/json", 400),
        (b'{"metadata":[]}', "application/json", 400),
        (b'{"metadata":{"name":"x","namespace":"other"}}', "application/json", 400),
        (b'{"metadata":{"name":"x","resourceVersion":"1"}}', "application/json", 400),
        (b'{"metadata":{"name":7}}', "application/json", 400),
        (b'{"metadata":{"name":"X!"}}', "application/json", 422),
        (b"[" * 2000 + b"]" * 2000, "application/json", 400),
        (b'{"a":' * 900 + b"1" + b"}" * 900, "application/json", 400),
        (b"x" * (3 * 1024 * 1024 + 1), "application/json", 413),
    ],
)
async def test_bodies_that_are_no_such_object_are_refused(
    api: Api, body: bytes, content_type: str, status: int
) -> None:
    answer = await api.call("POST", PODS, body, content_type=content_type)
    assert (answer.status, answer.json["code"]) == (status, status)


async def test_events_are_created_and_selected_by_what_they_are_about(api: Api) -> None:
    event = {
        "metadata": {"name": "e1"},
        "involvedObject": {"kind": "Pod", "name": "p1", "namespace": "default"},
        "reason": "Started",
        "type": "Normal",
    }
    assert (await api.call("POST", EVENTS, event)).status == 201
    selector = "involvedObject.name%3Dp1%2CinvolvedObject.kind%3DPod"
    found = (await api.call("GET", f"{EVENTS}?fieldSelector={selector}")).json["items"]
    assert [item["reason"] for item in found] == ["Started"]
    elsewhere = {**event, "involvedObject": {"name": "p1", "namespace": "other"}}
    assert (await api.call("POST", EVENTS, elsewhere)).status == 422


async def test_tables_and_reduced_objects_are_answered_when_asked_for(api: Api) -> None:
    await api.call("POST", PODS, pod(node="n1"))
    table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    listed = (await api.call("GET", PODS, accept=table)).json
    assert (listed["kind"], listed["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert listed["columnDefinitions"][0]["name"] == "Name"
    assert listed["rows"][0]["cells"][0] == "p1"
    assert listed["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    assert listed["metadata"]["resourceVersion"]
    one = (await api.call("GET", f"{PODS}/p1", accept=table)).json
    assert len(one["rows"]) == 1
    partial = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    reduced = (await api.call("GET", PODS, accept=partial)).json
    assert reduced["kind"] == "PartialObjectMetadataList"
    assert "spec" not in reduced["items"][0]
    refused = await api.call("GET", PODS, accept="application/xml")
    assert (refused.status, refused.json["reason"]) == (406, "NotAcceptable")


async def test_a_running_pod_gets_an_ephemeral_container(api: Api) -> None:
    """The patch is what `kubectl debug --image=busybox:1 --target=c` sends."""
    made = (await api.call("POST", PODS, pod("p", node="n1"))).json
    path = f"{PODS}/p/ephemeralcontainers"
    debug = {"image": "busybox:1", "imagePullPolicy": "IfNotPresent", "name": "debug",
             "resources": {}, "targetContainerName": "c",
             "terminationMessagePolicy": "File"}  # fmt: skip
    order = {"$setElementOrder/ephemeralContainers": [{"name": "debug"}]}
    patch = {"spec": {**order, "ephemeralContainers": [debug]}}
    patched = await api.call("PATCH", path, patch, content_type=STRATEGIC)
    assert patched.status == 200, patched.text
    (container,) = patched.json["spec"]["ephemeralContainers"]
    assert container == {**debug, "terminationMessagePath": "/dev/termination-log"}
    assert patched.json["metadata"]["generation"] == 2
    assert patched.json == (await api.call("GET", path)).json
    assert patched.json == (await api.call("GET", f"{PODS}/p")).json
    assert patched.json["spec"]["containers"] == made["spec"]["containers"]

    changed = patched.json
    changed["spec"]["containers"][0]["image"] = "other"
    changed["spec"]["ephemeralContainers"].append({"name": "more", "image": "i"})
    put = await api.call("PUT", path, changed)
    assert put.status == 200, put.text
    assert put.json["spec"]["containers"] == made["spec"]["containers"]
    assert [one["name"] for one in put.json["spec"]["ephemeralContainers"]] == ["debug", "more"]

    del changed["metadata"]["resourceVersion"]
    changed["spec"]["ephemeralContainers"] = []
    refused = await api.call("PUT", path, changed)
    assert (refused.status, len(refused.json["details"]["causes"])) == (422, 2)
    assert (await api.call("PATCH", path, patch, user="n1", content_type=STRATEGIC)).status == 403
    assert (await api.call("POST", path, changed)).headers["Allow"] == "GET,PATCH,PUT"
    missing = await api.call("PATCH", path.replace("/p/", "/q/"), patch, content_type=STRATEGIC)
    assert missing.status == 404


async def test_a_patch_of_an_unknown_form_is_refused(api: Api) -> None:
    kind = "application/apply-patch+cbor"
    answer = await api.call("PATCH", f"{PODS}/p1?fieldManager=x", pod(), content_type=kind)
    assert (answer.status, answer.json["reason"]) == (415, "UnsupportedMediaType")
    assert (await api.call("PATCH", f"{PODS}/p1?force=0", {}, content_type=MERGE)).status == 422


async def test_curl_gets_indented_json(api: Api) -> None:
    plain = await api.call("GET", PODS)
    curl = await api.call("GET", PODS, headers={"User-Agent": "curl/8.0"})
    asked = await api.call("GET", f"{PODS}?pretty=true")
    assert b"\n" not in plain.body
    assert curl.body == asked.body
    assert curl.body.startswith(b"{\n  ")


async def test_head_is_answered_like_get_without_a_body(api: Api) -> None:
    answer = await api.call("HEAD", PODS)
    assert (answer.status, answer.body) == (200, b"")


async def test_a_node_gets_at_no_secret_by_a_mirror_pod_of_its_own(api: Api) -> None:
    secrets = PODS.replace("pods", "secrets")
    await api.call("POST", secrets, {"metadata": {"name": "s"}})
    mirror = pod("m", node="n1", annotations={"orch.io/config.mirror": "x"})
    mirror["spec"]["containers"][0]["envFrom"] = [{"secretRef": {"name": "s"}}]
    assert (await api.call("POST", PODS, mirror, user="n1")).status == 403
    assert (await api.call("POST", PODS, mirror)).status == 403
    del mirror["spec"]["containers"][0]["envFrom"]
    assert (await api.call("POST", PODS, mirror)).status == 201
    bare = {"metadata": {"annotations": None}}
    for user in ("n1", "admin"):
        path = f"{PODS}/m/status" if user == "n1" else f"{PODS}/m"
        refused = await api.call("PATCH", path, bare, user=user, content_type=MERGE)
        assert refused.status == 422
    assert (await api.call("GET", f"{secrets}/s", user="n1")).status == 403
