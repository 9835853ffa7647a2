from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from orch.wire.tables import columns

NOW = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
META = {"name": "n1", "creationTimestamp": "2026-01-31T09:30:00Z"}


def _shown(kind: str, record: dict[str, Any], *, wide: bool = True) -> dict[str, Any]:
    layout = columns.layout_of(kind)
    cells = layout.cells({"metadata": META, **record}, NOW)
    shown = zip(layout.columns, cells, strict=True)
    return {column.name: cell for column, cell in shown if wide or not column.priority}


def _node(*, ready: str | None = "True", **members: Any) -> dict[str, Any]:
    conditions = [{"type": "DiskPressure", "status": "False"}]
    if ready is not None:
        conditions.append({"type": "Ready", "status": ready})
    return {"status": {"conditions": conditions, **members.pop("status", {})}, **members}


# The reference system's pkg/printers/internalversion/printers_test.go, TestPrintNodeStatus.
@pytest.mark.parametrize(
    ("node", "status"),
    [
        (_node(), "Ready"),
        (_node(ready="False"), "NotReady"),
        (_node(ready="Unknown"), "NotReady"),
        (_node(ready=None), "Unknown"),
        (_node(spec={"unschedulable": True}), "Ready,SchedulingDisabled"),
        (_node(ready=None, spec={"unschedulable": True}), "Unknown,SchedulingDisabled"),
        (_node(spec={"unschedulable": False}), "Ready"),
    ],
)
def test_the_status_of_a_node_is_its_ready_condition(node: dict[str, Any], status: str) -> None:
    assert _shown("Node", node)["Status"] == status


# The reference system's pkg/printers/internalversion/printers_test.go, TestPrintNodeRole.
@pytest.mark.parametrize(
    ("labels", "roles"),
    [
        ({}, "<none>"),
        ({"node-role.orch.io/control-plane": "", "node-role.orch.io/api": ""}, "api,control-plane"),
        ({"orch.io/role": "worker"}, "worker"),
        ({"node-role.kubernetes.io/infra": "", "node-role.orch.io/api": ""}, "api,infra"),
        ({"node-role.orch.io/": "", "orch.io/role": ""}, "<none>"),
    ],
)
def test_the_roles_of_a_node_come_from_its_labels(labels: dict[str, str], roles: str) -> None:
    assert _shown("Node", {"metadata": {**META, "labels": labels}})["Roles"] == roles


def test_a_node_is_shown_with_its_addresses_and_versions() -> None:
    node = _node(
        status={
            "addresses": [
                {"type": "Hostname", "address": "h"},
                {"type": "InternalIP", "address": "10.0.0.1"},
                {"type": "ExternalIP", "address": "192.0.2.1"},
            ],
            "nodeInfo": {
                "kubeletVersion": "v0.1.0",
                "osImage": "Linux 12",
                "kernelVersion": "6.1.0",
                "containerRuntimeVersion": "containerd://2.0.0",
            },
        }
    )
    assert _shown("Node", node) == {
        "Name": "n1",
        "Status": "Ready",
        "Roles": "<none>",
        "Age": "150m",
        "Version": "v0.1.0",
        "Internal-IP": "10.0.0.1",
        "External-IP": "192.0.2.1",
        "OS-Image": "Linux 12",
        "Kernel-Version": "6.1.0",
        "Container-Runtime": "containerd://2.0.0",
    }
    assert list(_shown("Node", node, wide=False)) == ["Name", "Status", "Roles", "Age", "Version"]


def test_a_node_that_reports_nothing_is_shown_as_such() -> None:
    shown = _shown("Node", {})
    assert [shown[c] for c in ("Internal-IP", "External-IP")] == ["<none>", "<none>"]
    assert [shown[c] for c in ("OS-Image", "Kernel-Version", "Container-Runtime")] == [
        "<unknown>"
    ] * 3


EVENT = {
    "type": "Warning",
    "reason": "Failed",
    "message": " could not start\n",
    "involvedObject": {"kind": "Pod", "name": "web", "fieldPath": "spec.containers{a}"},
    "source": {"component": "nodeagent", "host": "n1"},
    "count": 4,
    "firstTimestamp": "2026-01-31T11:00:00Z",
    "lastTimestamp": "2026-01-31T11:59:50Z",
}


def test_an_event_is_shown_by_when_it_was_last_seen() -> None:
    assert _shown("Event", EVENT) == {
        "Last Seen": "10s",
        "Type": "Warning",
        "Reason": "Failed",
        "Object": "pod/web",
        "Subobject": "spec.containers{a}",
        "Source": "nodeagent, n1",
        "Message": "could not start",
        "First Seen": "60m",
        "Count": 4,
        "Name": "n1",
    }


# The reference system's pkg/printers/internalversion/printers_test.go, TestPrintEvent.
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"firstTimestamp": None, "lastTimestamp": None}, {"Last Seen": "<unknown>"}),
        (
            {
                "firstTimestamp": None,
                "lastTimestamp": None,
                "eventTime": "2026-01-31T11:59:00.000000Z",
            },
            {"Last Seen": "60s", "First Seen": "60s"},
        ),
        ({"count": None}, {"Count": 1}),
        (
            {"series": {"count": 9, "lastObservedTime": "2026-01-31T11:59:55.000000Z"}},
            {"Count": 9, "Last Seen": "5s"},
        ),
        ({"involvedObject": {"kind": "Node"}}, {"Object": "node"}),
        (
            {"source": None, "reportingComponent": "controller", "reportingInstance": "c-0"},
            {"Source": "controller, c-0"},
        ),
        ({"source": {"component": "nodeagent"}}, {"Source": "nodeagent"}),
    ],
)
def test_an_event_shows_what_it_has(change: dict[str, Any], expected: dict[str, Any]) -> None:
    shown = _shown("Event", {**EVENT, **change})
    assert {key: shown[key] for key in expected} == expected


def test_a_lease_is_shown_with_its_holder() -> None:
    assert _shown("Lease", {"spec": {"holderIdentity": "n1"}}) == {
        "Name": "n1",
        "Holder": "n1",
        "Age": "150m",
    }


def test_a_role_is_shown_with_the_time_it_was_created() -> None:
    assert _shown("ClusterRole", {}) == {"Name": "n1", "Created At": "2026-01-31T09:30:00Z"}


def test_a_binding_is_shown_with_its_role_and_in_the_wide_form_its_subjects() -> None:
    binding = {
        "roleRef": {"kind": "ClusterRole", "name": "view"},
        "subjects": [
            {"kind": "User", "name": "ann"},
            {"kind": "User", "name": "bob"},
            {"kind": "Group", "name": "ops"},
            {"kind": "ServiceAccount", "namespace": "d", "name": "sa"},
        ],
    }
    assert _shown("RoleBinding", binding) == {
        "Name": "n1",
        "Role": "ClusterRole/view",
        "Age": "150m",
        "Users": "ann, bob",
        "Groups": "ops",
        "ServiceAccounts": "d/sa",
    }


def test_a_quota_is_shown_with_what_is_used_and_may_be() -> None:
    status = {
        "hard": {"requests.cpu": "2", "limits.cpu": "4", "pods": 3},
        "used": {"requests.cpu": "1", "limits.cpu": "2"},
    }
    assert _shown("ResourceQuota", {"status": status}) == {
        "Name": "n1",
        "Request": "pods: 0/3, requests.cpu: 1/2",
        "Limit": "limits.cpu: 2/4",
        "Age": "150m",
    }


def test_a_pod_template_is_shown_with_its_containers() -> None:
    spec = {"containers": [{"name": "a", "image": "x:1"}, {"name": "b", "image": "y:2"}]}
    template = {"metadata": {"labels": {"b": "2", "a": "1"}}, "spec": spec}
    assert _shown("PodTemplate", {"template": template}) == {
        "Name": "n1",
        "Containers": "a,b",
        "Images": "x:1,y:2",
        "Pod Labels": "a=1,b=2",
    }
    assert _shown("PodTemplate", {})["Pod Labels"] == "<none>"


def test_a_priority_class_is_shown_with_its_value() -> None:
    record = {"value": 7, "globalDefault": True, "preemptionPolicy": "Never"}
    assert _shown("PriorityClass", record) == {
        "Name": "n1",
        "Value": 7,
        "Global-Default": True,
        "Age": "150m",
        "PreemptionPolicy": "Never",
    }


def test_a_runtime_class_is_shown_with_its_handler() -> None:
    shown = _shown("RuntimeClass", {"handler": "kata"})
    assert shown == {"Name": "n1", "Handler": "kata", "Age": "150m"}


def test_a_request_for_a_certificate_is_shown_with_its_fate() -> None:
    request = {
        "spec": {
            "signerName": "a.io/b",
            "username": "system:bootstrap:a",
            "expirationSeconds": 7200,
        },
        "status": {"conditions": [{"type": "Approved"}], "certificate": "eA=="},
    }
    assert _shown("CertificateSigningRequest", request) == {
        "Name": "n1",
        "Age": "150m",
        "SignerName": "a.io/b",
        "Requestor": "system:bootstrap:a",
        "RequestedDuration": "120m",
        "Condition": "Approved,Issued",
    }
    waiting = _shown("CertificateSigningRequest", {"spec": {"signerName": "a.io/b"}})
    assert (waiting["RequestedDuration"], waiting["Condition"]) == ("<none>", "Pending")


def test_other_kinds_show_name_and_age() -> None:
    assert _shown("Widget", {}) == {"Name": "n1", "Age": "150m"}


@pytest.mark.parametrize(
    ("kind", "record", "shown"),
    [
        ("ConfigMap", {"data": {"a": ""}, "binaryData": {"b": ""}}, {"Data": 2}),
        ("ConfigMap", {}, {"Data": 0}),
        ("Secret", {"type": "Opaque", "data": {"a": ""}}, {"Type": "Opaque", "Data": 1}),
        ("ServiceAccount", {}, {}),
    ],
)
def test_what_pods_are_given_is_counted(
    kind: str, record: dict[str, Any], shown: dict[str, Any]
) -> None:
    assert _shown(kind, record) == {"Name": "n1", **shown, "Age": "150m"}
