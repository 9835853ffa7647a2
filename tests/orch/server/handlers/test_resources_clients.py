"""Behaviour beyond the verbs themselves that clients of the reference rely on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from orch.client import answers
from orch.client.json_api import JsonApi
from orch.client.kubeconfig import ClientConfig
from orch.client.resources import ApiClient
from orch.client.transport import Transport
from orch.component.http.sliced_response import Piece
from orch.server.handlers import render
from orch.server.request import bodies
from orch.wire.records.configuration import ConfigMap
from tests.orch.server.harness import JSON_PATCH, LEASES, MERGE, PODS, STRATEGIC, Api, lease, pod

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def config_map(name: str = "c1", **metadata: Any) -> dict[str, Any]:
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name, **metadata}}


@pytest.mark.parametrize(
    ("path", "made", "query", "options", "status", "kind"),
    [
        (CONFIG_MAPS, config_map(), "", {}, 200, "Status"),
        (CONFIG_MAPS, config_map(), "", {"orphanDependents": False}, 200, "Status"),
        (CONFIG_MAPS, config_map(finalizers=["a/b"]), "", {}, 200, "ConfigMap"),
        (
            CONFIG_MAPS,
            config_map(finalizers=["a/b"]),
            "",
            {"propagationPolicy": "Background"},
            200,
            "ConfigMap",
        ),
        (
            CONFIG_MAPS,
            config_map(finalizers=["a/b"]),
            "",
            {"orphanDependents": False},
            202,
            "ConfigMap",
        ),
        (
            CONFIG_MAPS,
            config_map(finalizers=["a/b"]),
            "?orphanDependents=false",
            {},
            202,
            "ConfigMap",
        ),
        (CONFIG_MAPS, config_map(), "", {"orphanDependents": True}, 200, "ConfigMap"),
        (PODS, pod("c1", node="n1"), "", {}, 200, "Pod"),
        (PODS, pod("c1", node="n1"), "", {"orphanDependents": False}, 202, "Pod"),
        (PODS, pod("c1"), "", {"orphanDependents": False}, 200, "Pod"),
    ],
)
async def test_a_deletion_that_waits_is_accepted_where_the_older_option_asks_for_it(
    api: Api, path: str, made: Any, query: str, options: Any, status: int, kind: str
) -> None:
    assert (await api.call("POST", path, made)).status == 201
    answer = await api.call("DELETE", f"{path}/c1{query}", options)
    assert (answer.status, answer.json["kind"]) == (status, kind)


async def test_version_0_stands_for_any_version(api: Api) -> None:
    assert (await api.call("POST", CONFIG_MAPS, config_map(resourceVersion="0"))).status == 201
    for data in ({"a": "1"}, {"a": "2"}):
        sent = {**config_map(resourceVersion="0"), "data": data}
        replaced = await api.call("PUT", f"{CONFIG_MAPS}/c1", sent)
        assert (replaced.status, replaced.json.get("data")) == (200, data)
    change = {"metadata": {"resourceVersion": "0"}, "data": {"a": "3"}}
    for kind in (MERGE, STRATEGIC):
        assert (
            await api.call("PATCH", f"{CONFIG_MAPS}/c1", change, content_type=kind)
        ).status == 200
    change["metadata"]["resourceVersion"] = "1"
    lost = await api.call("PATCH", f"{CONFIG_MAPS}/c1", change, content_type=MERGE)
    assert (lost.status, lost.json["reason"]) == (409, "Conflict")


async def test_a_lease_is_not_changed_without_a_version(api: Api) -> None:
    await api.call("POST", LEASES, lease())
    unnamed = lease() | {"metadata": {"name": "n1", "resourceVersion": "0"}}
    removing = {"metadata": {"resourceVersion": None}}
    for answer in (
        await api.call("PUT", f"{LEASES}/n1", unnamed),
        await api.call("PUT", f"{LEASES}/n1", lease()),
        await api.call("PATCH", f"{LEASES}/n1", removing, content_type=MERGE),
    ):
        assert answer.status == 422
        assert [c["field"] for c in answer.json["details"]["causes"]] == [
            "metadata.resourceVersion"
        ]
    renewed = await api.call(
        "PATCH", f"{LEASES}/n1", {"spec": {"holderIdentity": "b"}}, content_type=MERGE
    )
    assert renewed.status == 200


async def test_pages_at_a_version_show_that_version_and_a_list_from_memory_has_none(
    api: Api,
) -> None:
    for name in ("a", "b", "c"):
        made = await api.call("POST", CONFIG_MAPS, config_map(name))
    version = made.json["metadata"]["resourceVersion"]
    await api.call("DELETE", f"{CONFIG_MAPS}/a")

    async def listed(query: str) -> tuple[list[str], Any]:
        answer = (await api.call("GET", f"{CONFIG_MAPS}?{query}")).json
        return [item["metadata"]["name"] for item in answer["items"]], answer["metadata"]

    names, metadata = await listed(f"limit=2&resourceVersion={version}")
    assert (names, metadata["resourceVersion"]) == (["a", "b"], version)
    assert (await listed(f"continue={metadata['continue']}"))[0] == ["c"]
    newer = f"limit=1&resourceVersion={version}&resourceVersionMatch=NotOlderThan"
    assert (await listed(newer))[0] == ["b"]
    names, metadata = await listed("limit=1&resourceVersion=0")
    assert (names, "continue" in metadata) == (["b", "c"], False)
    api.server.storage.compact(0)
    gone = await api.call("GET", f"{CONFIG_MAPS}?limit=2&resourceVersion={version}")
    assert (gone.status, gone.json["reason"]) == (410, "Expired")


@pytest.mark.parametrize(
    ("kind", "change", "reason", "field", "text"),
    [
        (
            MERGE,
            {"metadata": {"labels": {"a": 1}}},
            "FieldValueTypeInvalid",
            "metadata.labels.a",
            'Invalid value: "integer": must be of type string',
        ),
        (
            MERGE,
            {"spec": {"containers": "none"}},
            "FieldValueTypeInvalid",
            "spec.containers",
            'Invalid value: "string": must be of type array: cannot restore slice from string',
        ),
        (
            STRATEGIC,
            {"metadata": {"labels": "invalid"}},
            "FieldValueTypeInvalid",
            "metadata.labels",
            'Invalid value: "string": must be of type object: cannot restore map from string',
        ),
        (
            JSON_PATCH,
            [{"op": "replace", "path": "/spec", "value": 1.5}],
            "FieldValueTypeInvalid",
            "spec",
            'Invalid value: "number": must be of type object: cannot restore struct from: float64',
        ),
        (
            STRATEGIC,
            {"spec": {"activeDeadlineSeconds": 1.5, "terminationGracePeriodSeconds": "30"}},
            "FieldValueTypeInvalid",
            "spec.terminationGracePeriodSeconds",
            'Invalid value: "string": must be of type integer',
        ),
        (
            JSON_PATCH,
            [{"op": "add", "path": "/spec/containers/0/livenessProbe",
              "value": {"tcpSocket": {"port": True}}}],
            "FieldValueTypeInvalid",
            "spec.containers[0].livenessProbe.tcpSocket.port",
            'Invalid value: "boolean": must be of type integer',
        ),
        (
            JSON_PATCH,
            [{"op": "remove", "path": "/spec/containers/0/name"}],
            "FieldValueRequired",
            "spec.containers[0].name",
            "Required value",
        ),
    ],
)  # fmt: skip
async def test_a_value_of_a_wrong_type_in_a_patch_is_invalid_at_its_path(
    api: Api, kind: str, change: Any, reason: str, field: str, text: str
) -> None:
    await api.call("POST", PODS, pod())
    answer = await api.call("PATCH", f"{PODS}/p1", change, content_type=kind)
    assert (answer.status, answer.json["reason"]) == (422, "Invalid")
    causes = answer.json["details"]["causes"]
    assert {"reason": reason, "field": field, "message": text} in causes
    assert "nput should" not in answer.json["message"]


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (MERGE, {"spec": {"colour": "red"}, "metadata": {"labels": {"a": "b"}}}),
        (
            STRATEGIC,
            {
                "spec": {"containers": [{"name": "c", "imag": "x"}]},
                "metadata": {"labels": {"a": "b"}},
            },
        ),
        (
            JSON_PATCH,
            [
                {"op": "add", "path": "/spec/containers/0/nonsense", "value": [{}]},
                {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},
            ],
        ),
    ],
)
async def test_an_unknown_field_that_a_change_adds_to_a_pod_has_no_effect(
    api: Api, kind: str, change: Any
) -> None:
    sent = pod()
    sent["spec"]["fromALaterRelease"] = {"x": 1}
    made = (await api.call("POST", PODS, sent)).json
    changed = await api.call("PATCH", f"{PODS}/p1", change, content_type=kind)
    assert changed.status == 200
    assert "unknown field" in changed.headers["Warning"]
    assert changed.json["metadata"]["labels"] == {"a": "b"}
    assert changed.json["spec"] == made["spec"]
    strict = await api.call("PATCH", f"{PODS}/p1?fieldValidation=Strict", change, content_type=kind)
    assert strict.status == 422
    assert "strict decoding error: unknown field" in strict.json["message"]
    sent = pod() | {"spec": {**made["spec"], "new": 1}}
    replaced = await api.call("PUT", f"{PODS}/p1", sent)
    assert (replaced.status, "new" in replaced.json["spec"]) == (200, False)


YAML = "application/yaml"
SENT = b"""
kind: ConfigMap
apiVersion: v1
metadata: {name: c1}
data:
  text: |
    two
    lines
  answer: "yes"
  none: null
"""


async def test_yaml_is_taken_and_answered(api: Api) -> None:
    created = await api.call("POST", CONFIG_MAPS, SENT, content_type=YAML, accept=YAML)
    assert (created.status, created.headers["Content-Type"]) == (201, YAML)
    found = yaml.safe_load(created.text)
    assert found["data"] == {"text": "two\nlines\n", "answer": "yes"}
    assert found == (await api.call("GET", f"{CONFIG_MAPS}/c1")).json
    replaced = await api.call(
        "PUT", f"{CONFIG_MAPS}/c1", SENT.replace(b"yes", b"no"), content_type=f"{YAML};charset=x"
    )
    assert (replaced.status, replaced.json["data"]["answer"]) == (200, "no")
    listed = await api.call("GET", CONFIG_MAPS, accept=f"{YAML},application/json;q=0.1")
    assert yaml.safe_load(listed.text)["items"][0]["data"]["answer"] == "no"
    table = await api.call("GET", CONFIG_MAPS, accept=f"{YAML};as=Table;v=v1;g=meta.k8s.io")
    assert yaml.safe_load(table.text)["rows"][0]["cells"][0] == "c1"
    options = b"propagationPolicy: Orphan\npreconditions: {uid: other}"
    refused = await api.call("DELETE", f"{CONFIG_MAPS}/c1", options, content_type=YAML)
    assert refused.status == 409
    deleted = await api.call("DELETE", f"{CONFIG_MAPS}/c1", accept=YAML)
    assert yaml.safe_load(deleted.text)["status"] == "Success"


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        (b"a: [", 400, "couldn't read the request body as YAML"),
        (b"- a", 400, "it is no JSON object"),
        (b"", 400, "it is no JSON object"),
        (b"a: 1\na: 2", 400, "the key is given twice"),
        (b"a: 1\n---\na: 2", 400, "YAML"),
        (b"n: " + b"9" * 30, 400, "YAML"),
        (b"a: !!python/object:os.system x", 400, "tags are not supported"),
        (b"a: " + b"[" * 5000 + b"]" * 5000, 400, "deeply nested"),
        (b"a: [" + b"1," * 60_000 + b"]", 400, "too many"),
        (b"a: !!int b", 400, "the tag of a number"),
        (b"a: !!float nan", 400, "too large"),
        (b"a: 1e999", 400, "too large"),
        (b"%TAG !a! b\n--- {}", 400, "%TAG is not supported"),
        (b"a: &a " + b"x" * 90_000 + b"\nb: [" + b"*a," * 900 + b"]", 400, "aliases"),
        (b"a: &a [" + b"1," * 900 + b"]\nb: [" + b"*a," * 900 + b"]", 400, "too many"),
        (b"a: " + b"x" * (3 * 1024 * 1024), 413, "too large"),
    ],
)
async def test_yaml_that_is_no_object_or_too_large_is_refused(
    api: Api, body: bytes, status: int, text: str
) -> None:
    answer = await api.call("POST", CONFIG_MAPS, body, content_type=YAML)
    assert (answer.status, text in answer.json["message"]) == (status, True), answer.text


@pytest.mark.slow
async def test_a_stream_and_a_very_long_list_are_not_written_in_yaml(api: Api) -> None:
    watch = await api.call("GET", f"{CONFIG_MAPS}?watch=true&timeoutSeconds=1", accept=YAML)
    assert (watch.status, watch.json["reason"]) == (406, "NotAcceptable")
    for number in range(3):
        keys = {f"k{key}": "v" for key in range(15_000)}
        body = config_map(f"c{number}") | {"data": keys}
        assert (await api.call("POST", CONFIG_MAPS, body)).status == 201
    assert (await api.call("GET", f"{CONFIG_MAPS}/c0", accept=YAML)).status == 200
    assert (await api.call("GET", CONFIG_MAPS, accept=YAML)).status == 406
    assert (await api.call("GET", CONFIG_MAPS, accept=f"{YAML},application/json")).status == 406


async def test_no_more_of_a_list_is_made_for_yaml_than_may_be_written(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it was made at once on the loop, however large, before it was refused."""
    monkeypatch.setattr(bodies, "YAML_MAX_BYTES", 300_000)
    for number in range(8):
        body = config_map(f"c{number}") | {"data": {"a": "x" * 100_000}}
        assert (await api.call("POST", CONFIG_MAPS, body)).status == 201
    made = []
    original = render.list_pieces

    def list_pieces(*of: Any) -> Iterator[Piece]:
        for piece in original(*of):
            made.append(len(piece))
            yield piece

    monkeypatch.setattr(render, "list_pieces", list_pieces)
    for form in (YAML, f"{YAML};as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"):
        made.clear()
        answer = await api.call("GET", CONFIG_MAPS, accept=form)
        assert (answer.status, sum(made) < 500_000) == (406 if form == YAML else 200, True)


async def test_a_client_reads_a_list_beyond_its_bound_one_by_one(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        body = {"metadata": {"name": f"c{number}"}, "data": {"k": "x" * 2000}}
        assert (await api.call("POST", CONFIG_MAPS, body)).status == 201
    url, pair = f"https://127.0.0.1:{api.port}", api.pki.users["admin"]
    config = ClientConfig(
        url, ca_file=api.pki.ca_file, cert_file=pair.cert_file, key_file=pair.key_file
    )
    client = ApiClient(Transport(config))
    whole = await client.list(ConfigMap, "default")
    monkeypatch.setattr(answers, "MAX_BYTES", 4000)
    with pytest.raises(answers.AnswerTooLarge):
        await JsonApi(client.transport).pages(CONFIG_MAPS, {})
    found = await client.list(ConfigMap, "default")
    assert len(whole.items) == 3 and found.items == whole.items
    assert int(found.resource_version) >= int(whole.resource_version)
    await client.transport.close()
