from __future__ import annotations

import pytest

from orch.wire.podrules.validation import content_causes, runnable_causes, spec_causes

CONTAINER = {"name": "c", "image": "i"}
EXEC = {"exec": {"command": ["true"]}}
OF_FIELD = {"fieldRef": {"fieldPath": "metadata.name"}}
AT = "spec.containers[0]"
V = {"name": "v", "emptyDir": {}}


def container(**fields):
    return {"containers": [{**CONTAINER, **fields}]}


def assert_causes(causes, beginnings) -> None:
    texts = [f"{cause.field}: {cause.message}" for cause in causes]
    assert len(texts) == len(beginnings), texts
    for text, beginning in zip(texts, beginnings, strict=True):
        assert text.startswith(beginning)


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({"containers": [CONTAINER]}, []),
        ({}, ["spec.containers: Required value"]),
        ({"containers": []}, ["spec.containers: Required value"]),
        (container(image=""), ["spec.containers[0].image: Required value"]),
        (container(image=" "), ["spec.containers[0].image: Required value"]),
        (container(name=""), ["spec.containers[0].name: Required value"]),
        (container(name="A_b"), ['spec.containers[0].name: Invalid value: "A_b"']),
        (
            {"containers": [CONTAINER], "initContainers": [CONTAINER]},
            ['spec.containers[0].name: Duplicate value: "c"'],
        ),
        (
            {"containers": [CONTAINER], "restartPolicy": "Sometimes"},
            [
                'spec.restartPolicy: Unsupported value: "Sometimes": supported values:'
                ' "Always", "Never", "OnFailure"'
            ],
        ),
        (
            {"containers": [CONTAINER], "dnsPolicy": "x"},
            ['spec.dnsPolicy: Unsupported value: "x"'],
        ),
        (
            {"containers": [CONTAINER], "terminationGracePeriodSeconds": -1},
            ["spec.terminationGracePeriodSeconds: Invalid value: -1"],
        ),
        ({"containers": [CONTAINER], "os": {"name": "linux"}}, []),
        *(
            (
                {"containers": [CONTAINER], "os": {"name": name}},
                [f'spec.os.name: Unsupported value: {shown}: supported values: "linux"'],
            )
            for name, shown in (("windows", '"windows"'), (["windows"], '["windows"]'))
        ),
        ({"containers": [CONTAINER], "activeDeadlineSeconds": 1}, []),
        (
            {"containers": [CONTAINER], "activeDeadlineSeconds": 0},
            ["spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647"],
        ),
        (
            {"containers": [CONTAINER], "activeDeadlineSeconds": "5"},
            ['spec.activeDeadlineSeconds: Invalid value: "5": must be between 1 and 2147483647'],
        ),
        ({"containers": [CONTAINER], "nodeName": "N"}, ['spec.nodeName: Invalid value: "N"']),
        (
            container(imagePullPolicy="Perhaps"),
            ['spec.containers[0].imagePullPolicy: Unsupported value: "Perhaps"'],
        ),
        (
            {
                "containers": [CONTAINER],
                "volumes": [
                    {"name": "a", "emptyDir": {"sizeLimit": "many"}},
                    {"name": "b", "emptyDir": {"sizeLimit": "-1"}},
                    {"name": "c", "emptyDir": {"sizeLimit": "1Gi"}},
                    {"name": "d", "emptyDir": {}},
                ],
            },
            [
                'spec.volumes[0].emptyDir.sizeLimit: Invalid value: "many"',
                'spec.volumes[1].emptyDir.sizeLimit: Invalid value: "-1"',
            ],
        ),
        (container(imagePullPolicy="", ports=[{"containerPort": 1, "protocol": ""}]), []),
        (container(imagePullPolicy=None, ports=[{"containerPort": 1, "protocol": None}]), []),
        ({"containers": [CONTAINER], "restartPolicy": "", "dnsPolicy": ""}, []),
        (
            container(ports=[{"containerPort": 0}, {"containerPort": 80, "protocol": "ICMP"}]),
            [
                "spec.containers[0].ports[0].containerPort: Invalid value: 0",
                'spec.containers[0].ports[1].protocol: Unsupported value: "ICMP"',
            ],
        ),
        (
            container(
                ports=[{"containerPort": 65536}, {"containerPort": 65535, "hostPort": 65536}]
            ),
            [
                "spec.containers[0].ports[0].containerPort: Invalid value: 65536",
                "spec.containers[0].ports[1].hostPort: Invalid value: 65536",
            ],
        ),
        (container(ports=[{"containerPort": 1, "hostPort": 0, "protocol": "UDP"}]), []),
        (container(env=[{"name": "A", "value": "="}]), []),
        (container(env=[{"name": "A=B"}]), [f'{AT}.env[0].name: Invalid value: "A=B": must not']),
        (container(env=[{"value": "x"}]), ["spec.containers[0].env[0].name: Required value"]),
        (
            container(volumeMounts=[{"name": "v"}]),
            [
                'spec.containers[0].volumeMounts[0].name: Not found: "v"',
                "spec.containers[0].volumeMounts[0].mountPath: Required value",
            ],
        ),
        (
            {
                **container(volumeMounts=[{"name": "v", "mountPath": "/v"}]),
                "volumes": [{"name": "v", "emptyDir": {}}],
            },
            [],
        ),
        (
            {"containers": [CONTAINER], "volumes": [V, V, {}, {"name": "V"}]},
            [
                'spec.volumes[1].name: Duplicate value: "v"',
                "spec.volumes[2].name: Required value",
                'spec.volumes[3].name: Invalid value: "V"',
            ],
        ),
        (
            container(resources={"limits": {"cpu": "lots"}, "requests": {"memory": "-1"}}),
            [
                'spec.containers[0].resources.limits.cpu: Invalid value: "lots"',
                'spec.containers[0].resources.requests.memory: Invalid value: "-1"',
            ],
        ),
    ],
)
def test_a_spec_no_agent_could_run_is_refused_with_every_cause(spec, found) -> None:
    assert_causes(spec_causes(spec), found)


def test_an_agent_asks_for_less() -> None:
    """What it does not act on, or sets itself, does not keep a static pod from running."""
    spec = {"nodeName": "Node1", "dnsPolicy": "x", "activeDeadlineSeconds": 0}
    assert list(runnable_causes(container() | spec)) == []
    assert len(list(spec_causes(container() | spec))) == 3


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        (container(), []),
        ({**container(), "hostname": "web-1", "subdomain": "x"}, []),
        ({**container(), "hostname": "A_b"}, ['spec.hostname: Invalid value: "A_b"']),
        ({**container(), "subdomain": 5}, ["spec.subdomain: Invalid value: 5: must be a text"]),
        (
            {**container(), "volumes": [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]},
            ["spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type"],
        ),
        (container(env=[{"name": "A", "value": "", "valueFrom": OF_FIELD}]), []),
        (
            container(env=[{"name": "A", "value": "x", "valueFrom": OF_FIELD}]),
            [f'{AT}.env[0].valueFrom: Invalid value: "": may not be specified when `value` is'],
        ),
        (
            container(env=[{"name": "A", "valueFrom": {}}]),
            [f'{AT}.env[0].valueFrom: Invalid value: "": must specify one of: `fieldRef`, '],
        ),
        (
            container(env=[{"name": "A", "valueFrom": {**OF_FIELD, "secretKeyRef": {"key": "k"}}}]),
            [f'{AT}.env[0].valueFrom: Invalid value: "": may not have more than one field'],
        ),
        (
            container(volumeMounts=[{"name": n, "mountPath": p} for n, p in ("a/", "b/", "a-")]),
            [f'{AT}.volumeMounts[1].mountPath: Invalid value: "/": must be unique'],
        ),
        (container(readinessProbe={**EXEC, "successThreshold": 3}), []),
        (
            container(livenessProbe={}, startupProbe={**EXEC, "successThreshold": 2}),
            [
                f"{AT}.livenessProbe: Required value: must specify a handler type",
                f"{AT}.startupProbe.successThreshold: Invalid value: 2: must be 1",
            ],
        ),
        (
            container(readinessProbe={**EXEC, "httpGet": {"port": 1}}),
            [f"{AT}.readinessProbe.httpGet: Forbidden: may not specify more than 1 handler type"],
        ),
        (container(lifecycle={"stopSignal": "SIGUSR1", "postStart": EXEC}), []),
        (
            container(lifecycle={"preStop": {}}),
            [f"{AT}.lifecycle.preStop: Required value: must specify a handler type"],
        ),
        (container(resources={"limits": {"cpu": "1"}, "requests": {"cpu": "1000m"}}), []),
        (container(resources={"limits": {"cpu": "no"}, "requests": {"cpu": "2"}}), []),
        (
            container(resources={"limits": {"memory": "1Gi"}, "requests": {"memory": "2Gi"}}),
            [
                f'{AT}.resources.requests: Invalid value: "2Gi": must be less than or equal to'
                " memory limit of 1Gi"
            ],
        ),
        (
            {**container(), "initContainers": [{**CONTAINER, "name": "i", "livenessProbe": {}}]},
            ["spec.initContainers[0].livenessProbe: Required value"],
        ),
    ],
)
def test_a_spec_that_contradicts_itself_is_refused_with_every_cause(spec, found) -> None:
    assert_causes(content_causes(spec), found)
