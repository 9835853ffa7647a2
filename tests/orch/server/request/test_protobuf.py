"""Bodies as kubectl 1.32 sends them, and what is no such body."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from google.protobuf.descriptor import Descriptor
from hypothesis import given
from hypothesis import strategies as st

from orch.server.request import kinds_pb2, protobuf
from orch.wire.errors import ApiError


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, value: int | bytes | str) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def envelope(api_version: str, kind: str, message: bytes) -> bytes:
    type_meta = field(1, api_version) + field(2, kind)
    return protobuf.MAGIC + field(1, type_meta) + field(2, message) + field(3, "") + field(4, "")


def entry(key: str, value: str) -> bytes:
    return field(1, key) + field(2, value)


META = (
    field(1, "x") + field(2, "") + field(3, "") + field(5, "") + field(7, 0)
    + field(8, b"") + field(11, entry("a", "b")) + field(11, entry("c", ""))
    + field(14, "orch.io/keep")
)  # fmt: skip


@pytest.mark.parametrize(
    ("body", "document"),
    [
        (
            envelope(
                "authorization.k8s.io/v1",
                "SubjectAccessReview",
                field(
                    2,
                    field(1, field(2, "get") + field(5, "pods"))
                    + field(3, "jane")
                    + field(4, "a")
                    + field(4, "b")
                    + field(5, field(1, "k") + field(2, field(1, "v"))),
                ),
            ),
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {
                    "resourceAttributes": {"verb": "get", "resource": "pods"},
                    "user": "jane",
                    "groups": ["a", "b"],
                    "extra": {"k": ["v"]},
                },
            },
        ),
        (
            envelope(
                "rbac.authorization.k8s.io/v1",
                "ClusterRole",
                field(2, field(1, "get") + field(2, "") + field(3, "pods"))
                + field(3, field(1, field(1, entry("a", "b")))),
            ),
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRole",
                "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}],
                "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]},
            },
        ),
        (
            envelope(
                "rbac.authorization.k8s.io/v1",
                "RoleBinding",
                field(2, field(1, "User") + field(2, "g") + field(3, "jane"))
                + field(3, field(1, "g") + field(2, "Role") + field(3, "r")),
            ),
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "subjects": [{"kind": "User", "apiGroup": "g", "name": "jane"}],
                "roleRef": {"apiGroup": "g", "kind": "Role", "name": "r"},
            },
        ),
        (
            envelope(
                "authentication.k8s.io/v1", "TokenRequest", field(2, field(1, "a") + field(4, 60))
            ),
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"audiences": ["a"], "expirationSeconds": 60},
            },
        ),
        (
            envelope(
                "v1",
                "Secret",
                field(1, field(1, "s"))
                + field(2, field(1, "k") + field(2, b"\xff\x00"))
                + field(3, "a/b")
                + field(4, entry("t", "u"))
                + field(5, 1),
            ),
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "s"},
                "data": {"k": "/wA="},
                "type": "a/b",
                "stringData": {"t": "u"},
                "immutable": True,
            },
        ),
        (
            envelope("v1", "ConfigMap", field(1, field(1, "c")) + field(2, entry("a", "b"))),
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "c"},
                "data": {"a": "b"},
            },
        ),
        (
            envelope(
                "v1",
                "ServiceAccount",
                field(1, field(1, "c")) + field(2, field(3, "s")) + field(3, field(1, "p")),
            ),
            {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"name": "c"},
                "secrets": [{"name": "s"}],
                "imagePullSecrets": [{"name": "p"}],
            },
        ),
        (
            envelope("policy/v1", "Eviction", field(1, field(1, "p")) + field(2, field(1, 5))),
            {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": "p"},
                "deleteOptions": {"gracePeriodSeconds": 5},
            },
        ),
        (
            envelope("v1", "Namespace", field(1, META) + field(2, b"") + field(3, b"")),
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {
                    "name": "x",
                    "generation": 0,
                    "labels": {"a": "b", "c": ""},
                    "finalizers": ["orch.io/keep"],
                },
                "spec": {},
                "status": {},
            },
        ),
        (
            envelope(
                "v1",
                "DeleteOptions",
                field(1, 5)
                + field(2, field(1, "uid-1") + field(2, "7"))
                + field(3, 0)
                + field(4, "Background")
                + field(5, "All"),
            ),
            {
                "apiVersion": "v1",
                "kind": "DeleteOptions",
                "gracePeriodSeconds": 5,
                "preconditions": {"uid": "uid-1", "resourceVersion": "7"},
                "orphanDependents": False,
                "propagationPolicy": "Background",
                "dryRun": ["All"],
            },
        ),
        (
            envelope("v1", "DeleteOptions", field(1, -1)),
            {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": -1},
        ),
        (
            envelope(
                "coordination.orch.io/v1",
                "Lease",
                field(1, field(1, "n1") + field(8, field(1, 1767225600)))
                + field(
                    2,
                    field(1, "n1")
                    + field(2, 40)
                    + field(4, field(1, 1767225600) + field(2, 123456000)),
                ),
            ),
            {
                "apiVersion": "coordination.orch.io/v1",
                "kind": "Lease",
                "metadata": {"name": "n1", "creationTimestamp": "2026-01-01T00:00:00Z"},
                "spec": {
                    "holderIdentity": "n1",
                    "leaseDurationSeconds": 40,
                    "renewTime": "2026-01-01T00:00:00.123456Z",
                },
            },
        ),
        (
            envelope(
                "v1",
                "ResourceQuota",
                field(
                    2,
                    field(1, field(1, "pods") + field(2, field(1, "3")))
                    + field(2, "BestEffort")
                    + field(
                        3, field(1, field(1, "PriorityClass") + field(2, "In") + field(3, "a"))
                    ),
                )
                + field(3, b""),
            ),
            {
                "apiVersion": "v1",
                "kind": "ResourceQuota",
                "spec": {
                    "hard": {"pods": "3"},
                    "scopes": ["BestEffort"],
                    "scopeSelector": {
                        "matchExpressions": [
                            {"scopeName": "PriorityClass", "operator": "In", "values": ["a"]}
                        ]
                    },
                },
                "status": {},
            },
        ),
        (
            envelope(
                "scheduling.k8s.io/v1",
                "PriorityClass",
                field(2, -5) + field(3, 1) + field(4, "text") + field(5, "Never"),
            ),
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "value": -5,
                "globalDefault": True,
                "description": "text",
                "preemptionPolicy": "Never",
            },
        ),
        (
            envelope(
                "node.k8s.io/v1",
                "RuntimeClass",
                field(2, "kata")
                + field(3, field(1, field(1, "cpu") + field(2, field(1, "250m"))))
                + field(
                    4,
                    field(1, field(1, "a") + field(2, "b")) + field(2, field(2, "Exists")),
                ),
            ),
            {
                "apiVersion": "node.k8s.io/v1",
                "kind": "RuntimeClass",
                "handler": "kata",
                "overhead": {"podFixed": {"cpu": "250m"}},
                "scheduling": {
                    "nodeSelector": {"a": "b"},
                    "tolerations": [{"operator": "Exists"}],
                },
            },
        ),
        (
            envelope(
                "certificates.k8s.io/v1",
                "CertificateSigningRequest",
                field(
                    2,
                    field(1, b"PEM")
                    + field(2, "jane")
                    + field(5, "client auth")
                    + field(6, field(1, "k") + field(2, field(1, "v")))
                    + field(7, "example.com/signer")
                    + field(8, 600),
                )
                + field(3, field(1, field(1, "Approved") + field(2, "Because") + field(6, "True"))),
            ),
            {
                "apiVersion": "certificates.k8s.io/v1",
                "kind": "CertificateSigningRequest",
                "spec": {
                    "request": "UEVN",
                    "username": "jane",
                    "usages": ["client auth"],
                    "extra": {"k": ["v"]},
                    "signerName": "example.com/signer",
                    "expirationSeconds": 600,
                },
                "status": {
                    "conditions": [{"type": "Approved", "reason": "Because", "status": "True"}]
                },
            },
        ),
        (
            envelope("v1", "Binding", field(2, field(1, "Node") + field(3, "n1"))),
            {"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": "n1"}},
        ),
    ],
)
def test_known_kinds_become_json_data(body: bytes, document: dict[str, Any]) -> None:
    assert protobuf.decode(body) == document


def test_fields_that_are_not_known_are_skipped_whatever_their_type() -> None:
    unknown = (
        field(90, 7) + field(91, b"bytes") + varint(92 << 3 | 1) + bytes(8)
        + varint(93 << 3 | 5) + bytes(4)
    )  # fmt: skip
    body = envelope("v1", "Namespace", unknown + field(1, field(1, "x")) + unknown)
    assert protobuf.decode(body)["metadata"] == {"name": "x"}


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b"k8s\x00\x0a",
        b"k8s\x00\x0a\xff",
        b"k8s\x00\x0b",
        b"k8s\x00" + b"\xff" * 12,
        envelope("v1", "Namespace", b"\x0a\x05abc"),
        envelope("v1", "Namespace", field(1, 7)),
        envelope("v1", "Namespace", field(1, field(1, b"\xff\xfe"))),
        envelope("v1", "Namespace", field(1, field(8, field(1, 2**62)))),
        envelope("v1", "Namespace", varint(1 << 3 | 4)),
        envelope("v1", "Namespace", varint(1 << 3 | 1) + bytes(8)),
        envelope("v1", "Namespace", field(1, field(7, b"7"))),
    ],
)
def test_what_is_malformed_is_a_bad_request(body: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        protobuf.decode(body)
    assert caught.value.code == 400


def test_an_object_of_more_fields_than_any_has_is_a_bad_request() -> None:
    with pytest.raises(ApiError, match="more than 20000 fields") as caught:
        protobuf.decode(envelope("v1", "Pod", field(2, field(2, b"") * 20_000)))
    assert caught.value.code == 400


def test_an_entry_of_a_map_with_another_field_is_refused_and_never_dropped() -> None:
    odd = field(11, entry("a", "b") + field(3, "c"))  # labels
    with pytest.raises(ApiError, match="unknown field 3") as caught:
        protobuf.decode(envelope("v1", "ConfigMap", field(1, field(1, "x") + odd)))
    assert caught.value.code == 400


@pytest.mark.parametrize("kind", protobuf.KINDS)
def test_no_message_can_lie_in_itself(kind: str) -> None:
    """So that nothing needs to bound how deep a body goes."""

    def check(message: Descriptor, around: tuple[str, ...]) -> None:
        assert message.full_name not in around
        for one in message.fields:
            if one.message_type is not None:
                check(one.message_type, (*around, message.full_name))

    check(kinds_pb2.DESCRIPTOR.message_types_by_name[kind], ())


def test_a_map_is_written_in_the_order_of_its_keys() -> None:
    data = b"".join(field(2, entry(key, "")) for key in ("c", "a", "b"))
    assert list(protobuf.decode(envelope("v1", "ConfigMap", data))["data"]) == ["a", "b", "c"]


def test_kinds_without_a_message_are_asked_for_as_json() -> None:
    with pytest.raises(ApiError) as caught:
        protobuf.decode(envelope("v1", "Endpoints", b""))
    assert caught.value.code == 415
    assert "application/json" in caught.value.message


def fields() -> st.SearchStrategy[bytes]:
    """Well-formed fields of every wire type under the numbers that messages use."""
    numbers = st.integers(1, 17)
    scalars = st.builds(field, numbers, st.integers(0, 2**64 - 1) | st.binary(max_size=20))
    return st.recursive(
        st.lists(scalars, max_size=4).map(b"".join),
        lambda inner: st.lists(st.builds(field, numbers, inner), max_size=3).map(b"".join),
        max_leaves=8,
    )


@given(st.sampled_from(protobuf.KINDS), fields() | st.binary(max_size=200))
def test_no_message_of_any_kind_leads_to_anything_but_an_answer(kind: str, data: bytes) -> None:
    """A number where bytes belong must not become that many of them."""
    try:
        document = protobuf.decode(envelope("v1", kind, data))
    except ApiError as error:
        assert error.code in (400, 415)
    else:
        assert document["kind"] == kind
        orjson.dumps(document)


@given(st.binary(max_size=200))
def test_no_bytes_lead_to_anything_but_an_answer(data: bytes) -> None:
    for body in (protobuf.MAGIC + data, envelope("v1", "Namespace", data)):
        try:
            protobuf.decode(body)
        except ApiError as error:
            assert error.code in (400, 415)
