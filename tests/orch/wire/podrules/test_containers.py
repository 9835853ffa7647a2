"""K:pkg/apis/core/validation TestValidatePorts, …Env, …EnvFrom, …VolumeMounts, …Probe, …."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.orch.wire.podrules.podtable import (
    AT,
    assert_refused,
    container,
    init,
    refusals,
    spec,
)

EXEC = {"exec": {"command": ["true"]}}
CLAIM = {"persistentVolumeClaim": {"claimName": "p"}}
BLOCK = {"name": "b", **CLAIM}
PORT = "Invalid value: 65536: must be between 1 and 65535, inclusive"
NEGATIVE = "Invalid value: -1: must be greater than or equal to 0"
SUBDOMAIN = "a lowercase RFC 1123 subdomain must consist of"


def rule(
    action: str = "Restart", operator: str = "In", values: Sequence[int] = ()
) -> dict[str, Any]:
    return {"action": action, "exitCodes": {"operator": operator, "values": [*values]}}


NOT_SIDECAR = "Forbidden: may not be set for init containers without restartPolicy=Always"


def http(**fields: Any) -> dict[str, Any]:
    return {"httpGet": {"path": "/", "port": 80, "scheme": "HTTP", **fields}}


def ports(*items: dict[str, Any]) -> dict[str, Any]:
    return {"ports": [{"containerPort": 80 + index, **item} for index, item in enumerate(items)]}


def variable(**source: Any) -> dict[str, Any]:
    return {"env": [{"name": "A", "valueFrom": source}]}


def field(path: str) -> dict[str, Any]:
    return variable(fieldRef={"apiVersion": "v1", "fieldPath": path})


def amount(resource: str, divisor: str | int = 0) -> dict[str, Any]:
    return variable(resourceFieldRef={"resource": resource, "divisor": divisor})


ACCEPTED: list[dict[str, Any]] = [
    {},
    {"image": "registry.example:5000/a/b@sha256:" + 64 * "0"},
    {"imagePullPolicy": "", "terminationMessagePolicy": "", "ports": None, "env": None},
    {"terminationMessagePolicy": "FallbackToLogsOnError", "imagePullPolicy": "Never"},
    {"restartPolicy": "Always"},
    ports({"name": "http"}, {"name": "do-re-me", "protocol": "UDP"}, {"name": "a" * 15}, {}),
    ports({"hostPort": 0, "protocol": ""}, {"hostPort": None, "protocol": "SCTP"}),
    ports({"hostPort": 9}, {"hostPort": 9, "protocol": "UDP"}, {"hostPort": 9, "hostIP": "::1"}),
    {"ports": [{"containerPort": 80}, {"containerPort": 80}]},
    {"env": [{"name": name} for name in ("a", "A", "_A", "a.b", "a-b", "1a", "a b", "..", "a!")]},
    {"env": [{"name": "A", "value": "x="}, {"name": "A", "value": ""}]},
    {"env": [{"name": "A", "value": "", **field("metadata.name")["env"][0]}]},
    *(
        field(path)
        for path in (
            "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName",
            "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP",
            "status.podIPs", "metadata.labels['a.b/C']", "metadata.annotations['a.B/c']",
        )
    ),
    variable(fieldRef={"fieldPath": "metadata.name"}),
    *(
        amount(resource, divisor)
        for resource, divisor in (
            ("limits.cpu", 0), ("limits.cpu", "1m"), ("requests.cpu", "1"),
            ("limits.memory", "1Mi"), ("requests.memory", "1k"), ("limits.memory", "1Ei"),
            ("limits.ephemeral-storage", 1), ("requests.hugepages-2Mi", "1Mi"),
        )
    ),
    variable(configMapKeyRef={"name": "c", "key": "a.B_c-d"}),
    variable(secretKeyRef={"name": "c", "key": "k", "optional": True}),
    {"envFrom": [{"configMapRef": {"name": "c"}}, {"prefix": "p_", "secretRef": {"name": "s"}}]},
    {"livenessProbe": EXEC, "readinessProbe": {**EXEC, "successThreshold": 3}},
    {"livenessProbe": {**http(port="web"), "terminationGracePeriodSeconds": 1}},
    {"livenessProbe": {**EXEC, "successThreshold": 0, "periodSeconds": 0}},
    {"startupProbe": http(scheme="HTTPS", httpHeaders=[{"name": "X-A-1", "value": "v"}])},
    {"startupProbe": {"httpGet": {"port": 80}}, "readinessProbe": {"grpc": {"port": 1}}},
    {"lifecycle": {"preStop": {"sleep": {"seconds": 0}}, "postStart": {"tcpSocket": {"port": 1}}}},
    {"lifecycle": {"preStop": {"sleep": {"seconds": 30}}}},
    {"restartPolicy": "Never", "restartPolicyRules": [rule(values=[42])]},
    {"restartPolicy": "Never", "restartPolicyRules": [rule("RestartAllContainers")]},
    {"restartPolicy": "Always", "restartPolicyRules": [rule(operator="NotIn")] * 20},
    {"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}]},
]  # fmt: skip

REFUSED: list[tuple[dict[str, Any], list[str]]] = [
    (
        {"restartPolicyRules": [rule()]},
        ["restartPolicy: Required value: must specify restartPolicy when restart rules are used"],
    ),
    (
        {"restartPolicy": "Never", "restartPolicyRules": [rule("RestartPod")]},
        [
            'restartPolicyRules[0].action: Unsupported value: "RestartPod": supported'
            ' values: "Restart"'
        ],
    ),
    (
        {"restartPolicy": "Never", "restartPolicyRules": [rule(operator="Is")]},
        ['restartPolicyRules[0].exitCodes.operator: Unsupported value: "Is"'],
    ),
    (
        {"restartPolicy": "Never", "restartPolicyRules": [{"action": "Restart"}]},
        ["restartPolicyRules[0].exitCodes: Required value: must be specified"],
    ),
    (
        {"restartPolicy": "Never", "restartPolicyRules": [rule()] * 21},
        ["restartPolicyRules: Too many: 21: must have at most 20 items"],
    ),
    (
        {"restartPolicy": "Never", "restartPolicyRules": [rule(values=[0] * 256)]},
        ["restartPolicyRules[0].exitCodes.values: Too many: 256"],
    ),
    (
        {"lifecycle": {"stopSignal": "SIGUSR1"}},
        ["lifecycle.stopSignal: Forbidden: may not be set for containers with empty `spec.os."],
    ),
    ({"name": ""}, ["name: Required value"]),
    ({"name": "A_b"}, ['name: Invalid value: "A_b": a lowercase RFC 1123 label']),
    ({"name": "a" * 64}, [f'name: Invalid value: "{"a" * 64}": must be no more than 63']),
    ({"image": ""}, ["image: Required value"]),
    ({"image": " "}, ['image: Invalid value: " ": must not have leading or trailing']),
    ({"image": "i "}, ['image: Invalid value: "i ": must not have leading or trailing']),
    ({"imagePullPolicy": "Perhaps"}, ['imagePullPolicy: Unsupported value: "Perhaps"']),
    ({"terminationMessagePolicy": "x"}, ['terminationMessagePolicy: Unsupported value: "x"']),
    ({"restartPolicy": "Sometimes"}, ['restartPolicy: Unsupported value: "Sometimes"']),
    (ports({"name": "a" * 16}), ["ports[0].name: Invalid value", ]),
    (ports({"name": "a.b.c"}), ['ports[0].name: Invalid value: "a.b.c": must contain only alpha']),
    (ports({"name": "80"}), ['ports[0].name: Invalid value: "80": must contain at least one']),
    (ports({"name": "a--b"}), ['ports[0].name: Invalid value: "a--b": must not contain consec']),
    (ports({"name": "-a"}), ['ports[0].name: Invalid value: "-a": must not begin or end']),
    (ports({"name": "a"}, {"name": "a"}), ['ports[1].name: Duplicate value: "a"']),
    (ports({"containerPort": 0}), ["ports[0].containerPort: Required value"]),
    (ports({"containerPort": 65536}), [f"ports[0].containerPort: {PORT}"]),
    (ports({"hostPort": 65536}), [f"ports[0].hostPort: {PORT}"]),
    (ports({"protocol": "tcp"}), ['ports[0].protocol: Unsupported value: "tcp": supported']),
    (ports({"hostPort": 9}, {"hostPort": 9}), ['ports[1].hostPort: Duplicate value: "TCP//9"']),
    ({"env": [{"name": ""}]}, ["env[0].name: Required value"]),
    ({"env": [{"name": "A=B"}]}, ['env[0].name: Invalid value: "A=B": a valid environment var']),
    ({"env": [{"name": "Ä"}]}, ['env[0].name: Invalid value: "Ä": a valid environment variable']),
    (
        {"env": [{"name": "A", "value": "x", **field("metadata.name")["env"][0]}]},
        ['env[0].valueFrom: Invalid value: "": may not be specified when `value` is not empty'],
    ),
    (variable(), ['env[0].valueFrom: Invalid value: "": must specify one of: `fieldRef`']),
    (
        variable(fieldRef={"fieldPath": "metadata.name"}, secretKeyRef={"name": "s", "key": "k"}),
        ['env[0].valueFrom: Invalid value: "": may not have more than one field specified'],
    ),
    (field(""), ["env[0].valueFrom.fieldRef.fieldPath: Required value"]),
    (
        field("metadata.whoops"),
        ["env[0].valueFrom.fieldRef.fieldPath: Invalid value: \"metadata.whoops\": error conv"],
    ),
    (field("metadata.labels"), ["env[0].valueFrom.fieldRef.fieldPath: Unsupported value"]),
    (field("status.phase"), ["env[0].valueFrom.fieldRef.fieldPath: Unsupported value"]),
    (field("metadata.name['k']"), ["env[0].valueFrom.fieldRef.fieldPath: Invalid value"]),
    (field("metadata.labels['a/b/c']"), ['env[0].valueFrom.fieldRef: Invalid value: "a/b/c"']),
    (
        variable(fieldRef={"apiVersion": "v2", "fieldPath": "metadata.name"}),
        ["env[0].valueFrom.fieldRef.fieldPath: Invalid value"],
    ),
    (amount(""), ["env[0].valueFrom.resourceFieldRef.resource: Required value"]),
    (amount("limits.gpu"), ["env[0].valueFrom.resourceFieldRef.resource: Unsupported value"]),
    (amount("limits.cpu", "1k"), ["env[0].valueFrom.resourceFieldRef.divisor: Invalid value"]),
    (amount("limits.memory", "1024"), ["env[0].valueFrom.resourceFieldRef.divisor: Invalid"]),
    (amount("limits.memory", "1m"), ["env[0].valueFrom.resourceFieldRef.divisor: Invalid"]),
    (
        variable(configMapKeyRef={"name": "", "key": ""}),
        [
            f'env[0].valueFrom.configMapKeyRef.name: Invalid value: "": {SUBDOMAIN}',
            "env[0].valueFrom.configMapKeyRef.key: Required value",
        ],
    ),
    (
        variable(secretKeyRef={"name": "$%^", "key": "..k"}),
        [
            'env[0].valueFrom.secretKeyRef.key: Invalid value: "..k": must not start with',
            f'env[0].valueFrom.secretKeyRef.name: Invalid value: "$%^": {SUBDOMAIN}',
        ],
    ),
    ({"envFrom": [{}]}, ['envFrom: Invalid value: "": must specify one of']),
    (
        {"envFrom": [{"configMapRef": {"name": "c"}, "secretRef": {"name": "s"}}]},
        ['envFrom: Invalid value: "": may not have more than one field specified at a time'],
    ),
    ({"envFrom": [{"configMapRef": {}}]}, ["envFrom[0].configMapRef.name: Required value"]),
    ({"envFrom": [{"secretRef": {"name": "$"}}]}, ["envFrom[0].secretRef.name: Invalid value"]),
    (
        {"envFrom": [{"prefix": "a=b", "secretRef": {"name": "s"}}]},
        ['envFrom[0].prefix: Invalid value: "a=b"'],
    ),
    ({"livenessProbe": {}}, ["livenessProbe: Required value: must specify a handler type"]),
    ({"livenessProbe": {"exec": {"command": []}}}, ["livenessProbe.exec.command: Required"]),
    ({"livenessProbe": {"exec": {}}}, ["livenessProbe.exec.command: Required value"]),
    (
        {"readinessProbe": {**EXEC, **http()}},
        ["readinessProbe.httpGet: Forbidden: may not specify more than 1 handler type"],
    ),
    ({"livenessProbe": http(port=65536)}, [f"livenessProbe.httpGet.port: {PORT}"]),
    ({"livenessProbe": http(port="")}, 2 * ['livenessProbe.httpGet.port: Invalid value: ""']),
    ({"livenessProbe": http(port="a_b")}, ['livenessProbe.httpGet.port: Invalid value: "a_b"']),
    ({"livenessProbe": http(scheme="FTP")}, ['livenessProbe.httpGet.scheme: Unsupported value']),
    (
        {"livenessProbe": http(httpHeaders=[{"name": "X-A"}, {"name": "X A"}, {"name": ""}])},
        [
            'livenessProbe.httpGet.httpHeaders: Invalid value: "": a valid HTTP header must',
            'livenessProbe.httpGet.httpHeaders: Invalid value: "X A": a valid HTTP header must',
        ],
    ),
    ({"livenessProbe": {"tcpSocket": {"port": 0}}}, ["livenessProbe.tcpSocket.port: Invalid"]),
    ({"livenessProbe": {"grpc": {"port": 65536}}}, [f"livenessProbe.grpc.port: {PORT}"]),
    ({"livenessProbe": {"sleep": {"seconds": 1}}}, ["livenessProbe: Required value"]),
    *(
        ({"readinessProbe": {**EXEC, name: -1}}, [f"readinessProbe.{name}: {NEGATIVE}"])
        for name in (
            "initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold",
            "failureThreshold",
        )
    ),
    (
        {"livenessProbe": {**EXEC, "terminationGracePeriodSeconds": 0}},
        ["livenessProbe.terminationGracePeriodSeconds: Invalid value: 0: must be greater than 0"],
    ),
    (
        {"readinessProbe": {**EXEC, "terminationGracePeriodSeconds": 5}},
        ["readinessProbe.terminationGracePeriodSeconds: Invalid value: 5: must not be set for"],
    ),
    *(
        ({name: {**EXEC, "successThreshold": 2}}, [f"{name}.successThreshold: Invalid value: 2"])
        for name in ("livenessProbe", "startupProbe")
    ),
    ({"lifecycle": {"preStop": {}}}, ["lifecycle.preStop: Required value: must specify"]),
    ({"lifecycle": {"preStop": {"exec": {}}}}, ["lifecycle.preStop.exec.command: Required"]),
    ({"lifecycle": {"postStart": http(port="")}}, 2 * ["lifecycle.postStart.httpGet.port: Inv"]),
    ({"lifecycle": {"preStop": {"grpc": {"port": 1}}}}, ["lifecycle.preStop: Required value"]),
    ({"lifecycle": {"preStop": {"sleep": {"seconds": 31}}}}, ["lifecycle.preStop.sleep: Invalid"]),
    ({"lifecycle": {"preStop": {"sleep": {"seconds": -1}}}}, ["lifecycle.preStop.sleep: Invalid"]),
    (
        {"resizePolicy": [{"resourceName": "gpu", "restartPolicy": "Sometimes"}]},
        ['resizePolicy: Unsupported value: "Sometimes"', 'resizePolicy: Unsupported value: "gpu"'],
    ),
    (
        {"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}] * 2},
        ['resizePolicy[1]: Duplicate value: "cpu"'],
    ),
]  # fmt: skip


@pytest.mark.parametrize("fields", ACCEPTED)
def test_what_the_reference_takes_in_a_container_is_taken(fields: dict[str, Any]) -> None:
    assert refusals(container(**fields)) == []


@pytest.mark.parametrize(("fields", "found"), REFUSED)
def test_what_is_wrong_with_a_container_is_refused_by_its_path(
    fields: dict[str, Any], found: list[str]
) -> None:
    assert_refused(refusals(container(**fields)), *found, below=AT)


MOUNTS: list[tuple[dict[str, Any], list[str]]] = [
    ({}, []),
    ({"subPath": "a/b", "readOnly": True}, []),
    ({"subPath": "a..b/..c"}, []),
    ({"subPathExpr": "$(A)/b"}, []),
    ({"mountPropagation": "HostToContainer"}, []),
    ({"mountPath": "relative"}, []),
    ({"recursiveReadOnly": "IfPossible", "readOnly": True, "mountPropagation": "None"}, []),
    ({"recursiveReadOnly": "Disabled"}, []),
    ({"name": "image", "subPath": "a"}, []),
    ({"name": ""}, ["[0].name: Not found", "[0].name: Required value"]),
    ({"name": "none"}, ['[0].name: Not found: "none"']),
    ({"mountPath": ""}, ["[0].mountPath: Required value"]),
    ({"subPath": "/abs"}, ['.subPath: Invalid value: "/abs": must be a relative path']),
    ({"subPath": "a/../b"}, [".subPath: Invalid value: \"a/../b\": must not contain '..'"]),
    ({"subPathExpr": "../$(A)"}, ['.subPathExpr: Invalid value: "../$(A)": must not contain']),
    ({"subPath": "a", "subPathExpr": "b"}, ['[0].subPathExpr: Invalid value: "b": subPathExpr']),
    ({"mountPropagation": "x"}, ['.mountPropagation: Unsupported value: "x"']),
    ({"mountPropagation": "Bidirectional"}, [".mountPropagation: Forbidden: Bidirectional mount"]),
    ({"recursiveReadOnly": "x", "readOnly": True}, ['.recursiveReadOnly: Unsupported value: "x"']),
    ({"recursiveReadOnly": "Enabled"}, [".recursiveReadOnly: Forbidden: may only be specified"]),
    (
        {"recursiveReadOnly": "Enabled", "readOnly": True, "mountPropagation": "HostToContainer"},
        [".recursiveReadOnly: Forbidden: may only be specified when mountPropagation is None"],
    ),
]


@pytest.mark.parametrize(("fields", "found"), MOUNTS)
def test_mounts_are_of_volumes_and_stay_inside_them(
    fields: dict[str, Any], found: list[str]
) -> None:
    mount = {"name": "v", "mountPath": "/v", **fields}
    volumes = [{"name": "v", "emptyDir": {}}, {"name": "image", "image": {"reference": "i"}}]
    texts = refusals({**container(volumeMounts=[mount]), "volumes": volumes})
    assert_refused(texts, *(f"{AT}.volumeMounts{beginning}" for beginning in found))


def test_nothing_is_mounted_over_something_else() -> None:
    mounts = [{"name": "v", "mountPath": path} for path in ("/a", "/b", "/a")]
    both_ways = {"name": "v", "mountPath": "/c", "mountPropagation": "Bidirectional"}
    privileged = container(volumeMounts=[*mounts, both_ways], securityContext={"privileged": True})
    texts = refusals({**privileged, "volumes": [{"name": "v", "emptyDir": {}}]})
    assert_refused(texts, f'{AT}.volumeMounts[2].mountPath: Invalid value: "/a": must be unique')


def test_block_devices_are_refused_by_their_name() -> None:
    fields = {"volumeDevices": [{"name": "b", "devicePath": "/dev/b"}]}
    claim, *texts = refusals({**container(**fields), "volumes": [BLOCK]})
    assert claim.startswith("spec.volumes[0].persistentVolumeClaim: Forbidden: not offered here")
    assert_refused(texts, f"{AT}.volumeDevices: Forbidden: agents give containers no block devices")


@pytest.mark.parametrize(
    ("document", "found"),
    [
        (init(), []),
        (init(restartPolicy="Always", livenessProbe=EXEC, lifecycle={"preStop": EXEC}), []),
        (init(restartPolicy="OnFailure"), []),
        (
            init(restartPolicy="Always", restartPolicyRules=[rule()]),
            [
                "initContainers[0].restartPolicyRules: Forbidden: restartPolicyRules are not "
                "allowed for init containers with restart policy Always"
            ],
        ),
        ({**container(lifecycle={"stopSignal": "SIGRTMIN+3"}), "os": {"name": "linux"}}, []),
        (
            {**container(lifecycle={"stopSignal": "USR1"}), "os": {"name": "linux"}},
            ['containers[0].lifecycle.stopSignal: Unsupported value: "USR1"'],
        ),
        (init(restartPolicy="x"), ['initContainers[0].restartPolicy: Unsupported value: "x"']),
        *(
            (init(**{name: {}}), [f"initContainers[0].{name}: {NOT_SIDECAR}"])
            for name in ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")
        ),
        (
            init(restartPolicy="Always", livenessProbe={}),
            ["initContainers[0].livenessProbe: Required value"],
        ),
        (init(name="c"), ['initContainers[0].name: Duplicate value: "c"']),
        (init(**ports({"hostPort": 9}, {"hostPort": 9})), ["initContainers[0].ports[1].hostPort"]),
        (
            spec(
                initContainers=[
                    {"name": name, "image": "i", **ports({"hostPort": 9})} for name in "ab"
                ]
            ),
            [],
        ),
        (spec(containers=[{"name": "c", "image": "i"}] * 2), ["containers[1].name: Duplicate"]),
        (spec(containers=[]), ["containers: Required value"]),
        (
            spec(
                containers=[{"name": name, "image": "i", **ports({"hostPort": 9})} for name in "ab"]
            ),
            ['containers[1].ports[0].hostPort: Duplicate value: "TCP//9"'],
        ),
        (
            {**container(**ports({"hostPort": 9})), "hostNetwork": True},
            ["containers[0].ports[0].hostPort: Invalid value: 9: must match `containerPort`"],
        ),
        ({**container(**ports({}, {"hostPort": 81})), "hostNetwork": True}, []),
        (
            spec(containers=[{"name": n, "image": "i", **ports({})} for n in "ab"], hostNetwork=1),
            ['containers[1].ports[0].hostPort: Duplicate value: "TCP//80"'],
        ),
        (
            {
                **container(resizePolicy=[{"resourceName": "cpu", "restartPolicy": "RestartCont"}]),
                "restartPolicy": "Never",
            },
            [
                "containers[0].resizePolicy: Invalid value",
                "containers[0].resizePolicy: Unsupported value",
            ],
        ),
        (
            {
                **container(lifecycle={"preStop": {"sleep": {"seconds": 6}}}),
                "terminationGracePeriodSeconds": 5,
            },
            ["containers[0].lifecycle.preStop.sleep: Invalid value: 6: must be non-negative"],
        ),
    ],
)
def test_the_lists_of_containers_have_rules_of_their_own(
    document: dict[str, Any], found: list[str]
) -> None:
    assert_refused(refusals(document), *found, below="spec")
