from __future__ import annotations

import orjson
import pytest

from orch.server.objects.modify import change_of
from orch.server.request.media import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH
from orch.wire.errors import ApiError
from orch.wire.records.kinds import NODES, PODS

POD = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {"name": "p", "namespace": "ns", "labels": {"a": "b"}, "resourceVersion": "5"},
    "spec": {"containers": [{"name": "c", "image": "one"}, {"name": "d", "image": "two"}]},
}


@pytest.mark.parametrize(
    ("media_type", "patch", "images"),
    [
        (STRATEGIC_PATCH, {"spec": {"containers": [{"name": "d", "image": "x"}]}}, ["one", "x"]),
        (MERGE_PATCH, {"spec": {"containers": [{"name": "d", "image": "x"}]}}, ["x"]),
        (
            JSON_PATCH,
            [{"op": "replace", "path": "/spec/containers/0/image", "value": "x"}],
            ["x", "two"],
        ),
        (
            JSON_PATCH,
            [
                {"op": "test", "path": "/metadata/resourceVersion", "value": "5"},
                {"op": "remove", "path": "/spec/containers/1"},
            ],
            ["one"],
        ),
    ],
)
def test_each_media_type_patches_in_its_own_way(media_type, patch, images) -> None:
    before = orjson.dumps(POD)
    changed = change_of(PODS, media_type, orjson.dumps(patch))(POD)
    assert [container["image"] for container in changed["spec"]["containers"]] == images
    assert orjson.dumps(POD) == before


@pytest.mark.parametrize(
    ("media_type", "body", "code"),
    [
        ("application/apply-patch+cbor", b"{}", 415),
        ("application/json", b"{}", 415),
        ("", b"{}", 415),
        (MERGE_PATCH, b"{", 400),
        (MERGE_PATCH, b"[]", 400),
        (STRATEGIC_PATCH, b"7", 400),
        (JSON_PATCH, b"{}", 400),
        (JSON_PATCH, orjson.dumps([{"op": "remove", "path": "/x"}] * 10_001), 413),
    ],
)
def test_a_body_that_is_no_such_patch_is_refused(media_type, body, code) -> None:
    with pytest.raises(ApiError) as caught:
        change_of(PODS, media_type, body)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("media_type", "patch", "code"),
    [
        (JSON_PATCH, [{"op": "test", "path": "/metadata/name", "value": "other"}], 422),
        (JSON_PATCH, [{"op": "remove", "path": "/nothing/here"}], 422),
        (JSON_PATCH, [{"op": "jump", "path": "/x"}], 400),
        (JSON_PATCH, [{"op": "remove", "path": "/metadata"}], 400),
        (STRATEGIC_PATCH, {"spec": {"containers": [{"image": "no name"}]}}, 400),
        (STRATEGIC_PATCH, {"$patch": "explode"}, 400),
        (MERGE_PATCH, {"metadata": None}, 400),
        (MERGE_PATCH, {"kind": "Node"}, 400),
        (MERGE_PATCH, {"apiVersion": "v2"}, 400),
        (MERGE_PATCH, {"metadata": {"name": "other"}}, 400),
        (MERGE_PATCH, {"metadata": {"namespace": "other"}}, 400),
    ],
)
def test_a_patch_that_does_not_fit_is_refused(media_type, patch, code) -> None:
    with pytest.raises(ApiError) as caught:
        change_of(PODS, media_type, orjson.dumps(patch))(POD)
    assert caught.value.code == code


def test_an_operation_that_fails_is_told_of_and_names_no_object() -> None:
    patch = [{"op": "replace", "path": "/metadata/labels/none", "value": "x"}]
    with pytest.raises(ApiError) as caught:
        change_of(PODS, JSON_PATCH, orjson.dumps(patch))(POD)
    status = caught.value.to_status()
    assert "operation 0 (replace '/metadata/labels/none')" in status["message"]
    assert "details" not in status  # with them kubectl says "is invalid" and no more


def test_a_nodes_taints_are_replaced_as_a_whole() -> None:
    taints = {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
    node = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n"}, **taints}
    patch = orjson.dumps({"spec": {"taints": [{"key": "b", "effect": "NoExecute"}]}})
    changed = change_of(NODES, STRATEGIC_PATCH, patch)(node)
    assert [taint["key"] for taint in changed["spec"]["taints"]] == ["b"]
