"""Metadata rules, from AM:api/validation/objectmeta_test.go, in this service's words."""

from __future__ import annotations

import pytest

from orch.server.objects.validation import check, check_shape, metadata_causes
from orch.server.strategy import events, nodes, pods
from orch.wire.errors import ApiError

CONDITION = {"type": "Ready", "status": "True"}
OWNER = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}


def fields(new, old=None, strategy=nodes.NODE_STRATEGY):
    return list(dict.fromkeys(cause.field for cause in metadata_causes(strategy, new, old)))


@pytest.mark.parametrize(
    ("metadata", "found"),
    [
        ({"name": "a"}, []),
        ({"name": "a" * 253}, []),
        ({"name": "a" * 254}, ["metadata.name"]),
        ({"name": "A"}, ["metadata.name"]),
        ({"name": "a/b"}, ["metadata.name"]),
        ({}, ["metadata.name"]),
        ({"name": "a", "labels": {"a.io/b-_.c": "d-_.e", "x": ""}}, []),
        ({"name": "a", "labels": {"a/b/c": "d"}}, ["metadata.labels"]),
        ({"name": "a", "labels": {"a": "b c"}}, ["metadata.labels"]),
        ({"name": "a", "labels": {"a" * 64: "b"}}, ["metadata.labels"]),
        ({"name": "a", "labels": {"a": "b" * 64}}, ["metadata.labels"]),
        ({"name": "a", "annotations": {"A.io/B": "any text\n at all"}}, []),
        ({"name": "a", "annotations": {"a b": ""}}, ["metadata.annotations"]),
        ({"name": "a", "annotations": {"a": "x" * 262_143}}, []),
        ({"name": "a", "annotations": {"a": "x" * 262_144}}, ["metadata.annotations"]),
        ({"name": "a", "labels": {f"a{n}": "b" for n in range(1_000)}}, []),
        ({"name": "a", "labels": {f"a{n}": "b" for n in range(1_001)}}, ["metadata.labels"]),
        ({"name": "a", "labels": {f"{n}.{'a' * 200}/b": "c" for n in range(1_000)}}, []),
        (
            {"name": "a", "labels": {f"{n:03}.{'a.' * 122}a/{'b' * 63}": "c" for n in range(900)}},
            ["metadata.labels"],
        ),
        ({"name": "a", "annotations": {f"a{n}": "" for n in range(1_000)}}, []),
        (
            {"name": "a", "annotations": {f"a{n}": "" for n in range(1_001)}},
            ["metadata.annotations"],
        ),
        ({"name": "a", "finalizers": ["a.io/b"] * 1_001}, ["metadata.finalizers"]),
        ({"name": "a", "ownerReferences": [OWNER] * 1_001}, ["metadata.ownerReferences"]),
        ({"name": "a", "ownerReferences": [OWNER]}, []),
        (
            {"name": "a", "ownerReferences": [{**OWNER, "uid": ""}]},
            ["metadata.ownerReferences[0].uid"],
        ),
        (
            {"name": "a", "ownerReferences": [{**OWNER, "controller": True}] * 2},
            ["metadata.ownerReferences"],
        ),
        (
            {"name": "a", "ownerReferences": [{**OWNER, "kind": "Event"}]},
            ["metadata.ownerReferences[0]"],
        ),
        ({"name": "a", "finalizers": ["a.io/b"]}, []),
        ({"name": "a", "finalizers": ["a b"]}, ["metadata.finalizers[0]"]),
        ({"name": "a", "finalizers": ["orphan", "kubernetes", "a.io/b"]}, []),
        ({"name": "a", "finalizers": ["a.io/b", "mine"]}, ["metadata.finalizers[1]"]),
        ({"name": "a", "finalizers": ["orphan", "foregroundDeletion"]}, ["metadata.finalizers"]),
    ],
)
def test_metadata_of_a_new_object(metadata, found) -> None:
    assert fields(metadata) == found


def test_namespaced_objects_need_a_namespace() -> None:
    assert fields({"name": "a", "namespace": "ns"}, strategy=pods.STRATEGY) == []
    assert fields({"name": "a"}, strategy=pods.STRATEGY) == ["metadata.namespace"]
    owned = {"name": "a", "namespace": "ns", "ownerReferences": [OWNER]}
    assert fields(owned, strategy=events.STRATEGY) == []


@pytest.mark.parametrize(
    ("new", "old", "found"),
    [
        ({"name": "a", "uid": "1"}, {"name": "a", "uid": "1"}, []),
        ({"name": "b"}, {"name": "a"}, ["metadata.name"]),
        ({"uid": "2"}, {"uid": "1"}, ["metadata.uid"]),
        ({"labels": {"a b": "c"}}, {"labels": {"a b": "c"}}, []),
        ({"labels": {"a b": "c", "d": "e"}}, {"labels": {"a b": "c"}}, ["metadata.labels"]),
        ({"finalizers": ["a", "b"]}, {"finalizers": ["a"]}, ["metadata.finalizers[1]"]),
        ({"finalizers": ["a", "b/c"]}, {"finalizers": ["a"]}, []),  # stored before it was refused
        ({"finalizers": ["a/b"]}, {"deletionTimestamp": "x"}, ["metadata.finalizers"]),
        ({"finalizers": []}, {"finalizers": ["a/b"], "deletionTimestamp": "x"}, []),
    ],
)
def test_of_an_update_only_what_changed_is_looked_at(new, old, found) -> None:
    assert fields(new, old) == found


@pytest.mark.parametrize(
    ("strategy", "document", "text"),
    [
        (
            nodes.LEASE_STRATEGY,
            {"spec": {"leaseDurationSeconds": "x"}},
            "spec.leaseDurationSeconds: ",
        ),
        (pods.STRATEGY, {"spec": {"containers": [{"image": 5}]}}, "spec.containers[0].name: "),
        (pods.STRATEGY, {"metadata": {"labels": {"a": 1}}}, "metadata.labels.a: "),
        (nodes.NODE_STRATEGY, {"status": []}, "status: "),
        (
            nodes.NODE_STRATEGY,
            {"status": {"capacity": {"cpu": "much"}}},
            "status.capacity.cpu: 'much'",
        ),
        (
            nodes.NODE_STRATEGY,
            {"status": {"conditions": [{**CONDITION, "lastHeartbeatTime": "now"}]}},
            "status.conditions[0].lastHeartbeatTime: 'now' is not an RFC 3339 time",
        ),
        (events.STRATEGY, {"eventTime": "20260131T120000Z"}, "eventTime: "),
        (events.STRATEGY, {"lastTimestamp": "2026-02-30T12:00:00Z"}, "lastTimestamp: "),
        (pods.STRATEGY, {"status": {"startTime": ""}}, "status.startTime: "),
    ],
)
def test_fields_of_the_wrong_type_are_a_bad_request(strategy, document, text) -> None:
    with pytest.raises(ApiError) as caught:
        check_shape(strategy, document)
    assert caught.value.code == 400
    assert text in caught.value.message


def test_the_refusal_of_a_wrong_type_is_plain() -> None:
    container = {"image": 5, "livenessProbe": {"tcpSocket": {"port": []}}}
    with pytest.raises(ApiError) as caught:
        check_shape(pods.STRATEGY, {"spec": {"containers": [container]}})
    assert caught.value.message == (
        'Pod in version "v1" cannot be handled as a Pod: spec.containers[0].name: is required; '
        "spec.containers[0].image: must be of type string, not integer; "
        "spec.containers[0].livenessProbe.tcpSocket.port: must be of type integer or string, "
        "not array"
    )


def test_an_empty_restart_policy_means_the_default() -> None:
    spec = {"containers": [{"name": "c"}], "restartPolicy": ""}
    assert check_shape(pods.STRATEGY, {"metadata": {"name": "p"}, "spec": spec})


def test_a_missing_field_and_a_word_that_is_no_choice_are_causes() -> None:
    document = {"metadata": {"name": "p"}, "spec": {"containers": [{}], "restartPolicy": "Often"}}
    with pytest.raises(ApiError) as caught:
        check_shape(pods.STRATEGY, document)
    assert (caught.value.code, caught.value.kind, caught.value.name) == (422, "Pod", "p")
    assert [(cause.reason, cause.field) for cause in caught.value.causes] == [
        ("FieldValueRequired", "spec.containers[0].name"),
        ("FieldValueNotSupported", "spec.restartPolicy"),
    ]
    assert '"Always", "Never", "OnFailure"' in caught.value.causes[1].message


def test_times_and_quantities_that_are_some_may_be_stored() -> None:
    times = ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00.000001Z", "2026-01-31T12:00:00+01:00")
    for time in times:
        check_shape(events.STRATEGY, {"eventTime": time})
        condition = {**CONDITION, "lastTransitionTime": time}
        check_shape(nodes.NODE_STRATEGY, {"status": {"conditions": [condition]}})
    check_shape(nodes.NODE_STRATEGY, {"status": {"capacity": {"cpu": "4", "memory": "1.5Gi"}}})


def test_all_causes_are_in_one_refusal() -> None:
    with pytest.raises(ApiError) as caught:
        check(nodes.NODE_STRATEGY, {"metadata": {"name": "X"}, "spec": {"taints": [{"key": "a"}]}})
    assert (caught.value.code, caught.value.kind, caught.value.name) == (422, "Node", "X")
    assert {cause.field for cause in caught.value.causes} == {
        "metadata.name",
        "spec.taints[0].effect",
    }


def test_what_an_object_held_before_its_bound_was_set_may_stay() -> None:
    labels = {f"a{n}": "b" for n in range(2_000)}
    before = {"name": "a", "labels": labels}
    assert fields({**before, "finalizers": ["a.io/b"]}, before) == []
    assert fields({**before, "labels": {**labels, "c": "d"}}, before) == ["metadata.labels"]


def test_a_refusal_names_a_hundred_causes_at_most() -> None:
    document = {"metadata": {"name": "n", "labels": {f"-{n}": "-" for n in range(900)}}}
    with pytest.raises(ApiError) as caught:
        check(nodes.NODE_STRATEGY, document)
    assert len(caught.value.causes) == 100


@pytest.mark.parametrize("wrong", [{"containers": [1] * 20_000}, {"tolerations": [1] * 20_000}])
def test_very_many_wrong_values_are_counted_not_listed(wrong) -> None:
    with pytest.raises(ApiError, match=r"at most 1000|20000 of its values") as caught:
        check_shape(pods.STRATEGY, {"metadata": {"name": "a"}, "spec": wrong})
    assert caught.value.code == 400
    assert len(caught.value.message) < 2_000


def test_a_pod_has_a_bounded_number_of_containers() -> None:
    containers = [{"name": f"c{n}", "image": "i"} for n in range(1_001)]
    for name in ("containers", "initContainers", "volumes"):
        with pytest.raises(ApiError, match=f"spec.{name}: List should have at most 1000 items"):
            check_shape(pods.STRATEGY, {"metadata": {"name": "a"}, "spec": {name: containers}})


_UNDECODABLE = {"metadata": {"name": "p"}, "spec": {"containers": [], "os": 5}}


def test_a_field_that_is_only_kept_has_its_type() -> None:
    with pytest.raises(ApiError) as caught:
        check_shape(pods.STRATEGY, _UNDECODABLE)
    assert (caught.value.code, caught.value.reason) == (400, "BadRequest")
    assert caught.value.message == (
        'Pod in version "v1" cannot be handled as a Pod:'
        " spec.os: must be of type object, not integer"
    )


def test_a_patch_to_a_wrong_type_is_invalid() -> None:
    probe = {"initialDelaySeconds": 2**40}
    spec = {"os": 5, "containers": [{"name": "c", "livenessProbe": probe}]}
    with pytest.raises(ApiError) as caught:
        check_shape(pods.STRATEGY, {"metadata": {"name": "p"}, "spec": spec}, patched=True)
    assert caught.value.code == 422
    assert [cause.field for cause in caught.value.causes] == [
        "spec.os",
        "spec.containers[0].livenessProbe.initialDelaySeconds",
    ]


def test_what_an_object_had_is_not_held_against_a_change() -> None:
    changed = {**_UNDECODABLE, "metadata": {"name": "p", "labels": {"a": "b"}}}
    assert check_shape(pods.STRATEGY, changed, _UNDECODABLE)
    with pytest.raises(ApiError):
        check_shape(pods.STRATEGY, {**changed, "spec": {"containers": [], "os": 6}}, _UNDECODABLE)
