"""Pods as clients that speak protobuf send them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from orch.server.request import kinds_pb2, protobuf
from orch.wire.records import fields as records_fields
from orch.wire.records.meta import WireModel
from orch.wire.records.pods import PodSpec, PodStatus
from tests.orch.server.request.test_protobuf import entry, envelope, field

NOT_UPSTREAM = {
    # A projected source has the record of a whole volume here.
    "PodSpec.volumes.projected.sources.configMap.defaultMode",
    "PodSpec.volumes.projected.sources.downwardAPI.defaultMode",
    # All containers have one record here.
    "PodSpec.containers.targetContainerName",
    "PodSpec.initContainers.targetContainerName",
}


def sent(spec: bytes = b"", status: bytes = b"") -> dict[str, Any]:
    """What is read of a Pod whose spec and status are these fields."""
    return protobuf.decode(envelope("v1", "Pod", field(2, spec) + field(3, status)))


@pytest.mark.parametrize(
    ("spec", "document"),
    [
        (field(4, 0), {"terminationGracePeriodSeconds": 0}),
        (field(10, "n1") + field(11, 1) + field(12, 0), {"nodeName": "n1", "hostNetwork": True}),
        (field(27, 0), {"shareProcessNamespace": False}),
        (field(7, entry("disk", "ssd")), {"nodeSelector": {"disk": "ssd"}}),
        (
            field(1, field(1, "v") + field(2, field(1, field(1, "/") + field(2, "")))),
            {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]},
        ),
        (
            field(1, field(2, field(19, field(1, field(1, "c")) + field(3, 0)))),
            {"volumes": [{"configMap": {"name": "c", "defaultMode": 0}}]},
        ),
        (
            field(14, field(2, 0) + field(4, 0) + field(4, 7)),
            {"securityContext": {"runAsUser": 0, "supplementalGroups": [0, 7]}},
        ),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else next(iter(value)),
)
def test_fields_of_a_spec_become_those_of_the_json_form(
    spec: bytes, document: dict[str, Any]
) -> None:
    assert sent(spec)["spec"] == document


def test_a_container_is_read_with_all_that_is_in_it() -> None:
    by_name = field(1, 1) + field(2, 0) + field(3, "web")
    by_number = field(1, 0) + field(2, 8080) + field(3, "")
    probe = (
        field(1, field(2, field(1, "/ok") + field(2, by_name)))
        + field(2, 0) + field(3, 0) + field(6, 3)
    )  # fmt: skip
    container = (
        field(1, "c") + field(3, "sh") + field(3, "") + field(6, field(2, 0) + field(3, 80))
        + field(7, field(1, "E") + field(2, ""))
        + field(8, field(1, field(1, "cpu") + field(2, field(1, "100m"))))
        + field(10, probe) + field(11, field(1, field(3, field(1, by_number))))
        + field(15, field(2, 0)) + field(16, 0) + field(18, 1)
    )  # fmt: skip
    assert sent(field(2, container))["spec"]["containers"] == [
        {
            "name": "c",
            "command": ["sh", ""],
            "ports": [{"containerPort": 80}],
            "env": [{"name": "E"}],
            "resources": {"limits": {"cpu": "100m"}},
            "livenessProbe": {"httpGet": {"path": "/ok", "port": "web"}, "failureThreshold": 3},
            "readinessProbe": {"tcpSocket": {"port": 8080}},
            "securityContext": {"privileged": False},
            "tty": True,
        }
    ]


def test_a_status_keeps_the_numbers_it_must_have() -> None:
    ended = field(3, field(1, 0) + field(2, 0) + field(5, field(1, 1767225600)))
    status = field(8, field(1, "c") + field(2, ended) + field(4, 0) + field(5, 0))
    assert sent(status=status)["status"]["containerStatuses"] == [
        {
            "name": "c",
            "state": {"terminated": {"exitCode": 0, "startedAt": "2026-01-01T00:00:00Z"}},
            "ready": False,
            "restartCount": 0,
        }
    ]


def named(message: Descriptor) -> Iterator[tuple[str, FieldDescriptor]]:
    """The fields of a message by name, those that stand in it for another's included."""
    for one in message.fields:
        if one.name in protobuf.INLINED:
            yield from named(one.message_type)
        else:
            yield one.name, one


def missing(model: type[WireModel], message: Descriptor, path: str) -> Iterator[str]:
    fields = dict(named(message))
    for name, shape in records_fields.shapes_of(model).items():
        if name not in fields:
            yield f"{path}.{name}"
        elif shape.record is not None:
            yield from missing(shape.record, fields[name].message_type, f"{path}.{name}")


@pytest.mark.parametrize("model", [PodSpec, PodStatus])
def test_no_field_that_a_pod_has_here_is_skipped(model: type[WireModel]) -> None:
    message = kinds_pb2.DESCRIPTOR.message_types_by_name[model.__name__]
    assert set(missing(model, message, model.__name__)) <= NOT_UPSTREAM
