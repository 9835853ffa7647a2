from __future__ import annotations

import pytest

from orch.server.strategy.pod_validation import ephemeral_causes, spec_causes

CONTAINER = {"name": "c", "image": "i"}


def container(**fields):
    return {"containers": [{**CONTAINER, **fields}]}


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({"containers": [CONTAINER]}, []),
        ({}, ["spec.containers: Required value"]),
        ({"containers": []}, ["spec.containers: Required value"]),
        (container(image=""), ["spec.containers[0].image: Required value"]),
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
        ({"containers": [CONTAINER], "activeDeadlineSeconds": 1}, []),
        (
            {"containers": [CONTAINER], "activeDeadlineSeconds": 0},
            ["spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647"],
        ),
        ({"containers": [CONTAINER], "nodeName": "N"}, ['spec.nodeName: Invalid value: "N"']),
        (
            container(imagePullPolicy="Perhaps"),
            ['spec.containers[0].imagePullPolicy: Unsupported value: "Perhaps"'],
        ),
        (
            container(ports=[{"containerPort": 0}, {"containerPort": 80, "protocol": "ICMP"}]),
            [
                "spec.containers[0].ports[0].containerPort: Invalid value: 0",
                'spec.containers[0].ports[1].protocol: Unsupported value: "ICMP"',
            ],
        ),
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
            {"containers": [CONTAINER], "volumes": [{"name": "v"}, {"name": "v"}, {}]},
            [
                'spec.volumes[1].name: Duplicate value: "v"',
                "spec.volumes[2].name: Required value",
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
    texts = [f"{cause.field}: {cause.message}" for cause in spec_causes(spec)]
    assert len(texts) == len(found), texts
    for text, start in zip(texts, found, strict=True):
        assert text.startswith(start)


DEBUG = {"name": "debug", "image": "i"}
AT = "spec.ephemeralContainers"
NOT_HERE = "Forbidden: cannot be set for an Ephemeral Container"


def with_ephemeral(*containers):
    return {
        "containers": [CONTAINER],
        "initContainers": [{"name": "init", "image": "i"}],
        "volumes": [{"name": "v", "emptyDir": {}}],
        "ephemeralContainers": list(containers),
    }


@pytest.mark.parametrize(
    ("sent", "found"),
    [
        ([DEBUG], []),
        ([{"name": "more", "image": "i"}, DEBUG], []),
        ([DEBUG, {"name": "more", "image": "i", "targetContainerName": "c"}], []),
        ([DEBUG, {"name": "more", "image": "i", "targetContainerName": "init"}], []),
        ([], [f'{AT}: Forbidden: existing ephemeral containers "debug" may not be removed']),
        (
            [{**DEBUG, "image": "j"}],
            [f'{AT}: Forbidden: existing ephemeral containers "debug" may not be changed'],
        ),
        ([DEBUG, {"name": "c", "image": "i"}], [f'{AT}[1].name: Duplicate value: "c"']),
        ([DEBUG, {"name": "init", "image": "i"}], [f'{AT}[1].name: Duplicate value: "init"']),
        ([DEBUG, DEBUG], [f'{AT}[1].name: Duplicate value: "debug"']),
        ([DEBUG, {"image": "i"}], [f"{AT}[1].name: Required value"]),
        ([DEBUG, {"name": "more"}], [f"{AT}[1].image: Required value"]),
        (
            [DEBUG, {"name": "more", "image": "i", "targetContainerName": "debug"}],
            [f'{AT}[1].targetContainerName: Not found: "debug"'],
        ),
        (
            [DEBUG, {"name": "more", "image": "i", "ports": [{"containerPort": 80}]}],
            [f"{AT}[1].ports: {NOT_HERE}"],
        ),
        (
            [DEBUG, {"name": "more", "image": "i", "lifecycle": {"preStop": {}}, "resources": {}}],
            [f"{AT}[1].lifecycle: {NOT_HERE}"],
        ),
        (
            [
                DEBUG,
                {
                    "name": "more",
                    "image": "i",
                    "volumeMounts": [
                        {"name": "v", "mountPath": "/v", "subPath": "x"},
                        {"name": "w", "mountPath": "/w"},
                    ],
                },
            ],
            [
                f'{AT}[1].volumeMounts[1].name: Not found: "w"',
                f"{AT}[1].volumeMounts[0].subPath: {NOT_HERE}",
            ],
        ),
    ],
)
def test_ephemeral_containers_are_only_added(sent, found) -> None:
    """K:pkg/apis/core/validation TestValidatePodEphemeralContainersUpdate."""
    causes = ephemeral_causes(with_ephemeral(*sent), with_ephemeral(DEBUG))
    assert [f"{cause.field}: {cause.message}" for cause in causes] == found
