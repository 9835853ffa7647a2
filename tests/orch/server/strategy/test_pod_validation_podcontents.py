from __future__ import annotations

import pytest

from orch.server.strategy.pod_validation import content_causes
from orch.server.strategy.pods import STRATEGY

CONTAINER = {"name": "c", "image": "i"}
EXEC = {"exec": {"command": ["true"]}}
OF_FIELD = {"fieldRef": {"fieldPath": "metadata.name"}}
AT = "spec.containers[0]"


def container(**fields):
    return {"containers": [{**CONTAINER, **fields}]}


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        (container(), []),
        ({**container(), "hostname": "web-1", "subdomain": "x"}, []),
        ({**container(), "hostname": "A_b"}, ['spec.hostname: Invalid value: "A_b"']),
        (
            {**container(), "volumes": [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]},
            ["spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type"],
        ),
        (container(env=[{"name": "A", "value": "", "valueFrom": OF_FIELD}]), []),
        (
            container(env=[{"name": "A=", "value": "x", "valueFrom": OF_FIELD}]),
            [
                f'{AT}.env[0].name: Invalid value: "A="',
                f'{AT}.env[0].valueFrom: Invalid value: "": may not be specified when `value` is',
            ],
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
    told = [f"{cause.field}: {cause.message}" for cause in content_causes(spec)]
    assert len(told) == len(found), told
    for text, beginning in zip(told, found, strict=True):
        assert text.startswith(beginning)


@pytest.mark.parametrize(
    ("annotations", "refused"), [({}, True), ({"orch.io/config.mirror": "h"}, False)]
)
def test_only_what_stands_for_a_file_of_a_node_is_not_asked(annotations, refused: bool) -> None:
    pod = {
        "metadata": {"name": "p", "annotations": annotations},
        "spec": {**container(livenessProbe={}), "nodeName": "n"},
    }
    assert bool(STRATEGY.validate(pod, None)) == refused
    assert not STRATEGY.validate(pod, pod)  # one that is stored can still be changed
