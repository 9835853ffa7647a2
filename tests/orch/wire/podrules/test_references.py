"""K:pkg/api/v1/pod/util_test.go, and what static pods are refused for."""

from __future__ import annotations

from typing import Any

import pytest

from orch.wire.podrules.references import api_references, volume_references
from tests.orch.wire.podrules import podtable

CONTAINER, VOLUME = "spec.containers[0]", "spec.volumes[0]"


def of_container(**fields: Any) -> dict[str, Any]:
    return {"containers": [{"name": "c", **fields}]}


def of_variable(**source: Any) -> dict[str, Any]:
    return of_container(env=[{"name": "A", "value": "x"}, {"name": "B", "valueFrom": source}])


def of_volume(**source: Any) -> dict[str, Any]:
    return {"volumes": [{"name": "v", **source}]}


def projected(*sources: dict[str, Any]) -> dict[str, Any]:
    return of_volume(projected={"sources": list(sources)})


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({}, []),
        ({"serviceAccountName": ""}, []),
        ({"serviceAccountName": "bot"}, [("ServiceAccount", "bot", "spec.serviceAccountName")]),
        (of_variable(fieldRef={"fieldPath": "metadata.name"}), []),
        (
            {"imagePullSecrets": [{"name": "p"}, {}]},
            [
                ("Secret", "p", "spec.imagePullSecrets[0]"),
                ("Secret", "", "spec.imagePullSecrets[1]"),
            ],
        ),
        (
            of_variable(secretKeyRef={"name": "s", "key": "k"}),
            [("Secret", "s", f"{CONTAINER}.env[1].valueFrom")],
        ),
        (
            of_variable(configMapKeyRef={"name": "c", "key": "k"}),
            [("ConfigMap", "c", f"{CONTAINER}.env[1].valueFrom")],
        ),
        (
            of_container(envFrom=[{"secretRef": {"name": "s"}}, {"configMapRef": {}}]),
            [("Secret", "s", f"{CONTAINER}.envFrom"), ("ConfigMap", "", f"{CONTAINER}.envFrom")],
        ),
        (
            {"initContainers": [{"envFrom": [{"secretRef": {"name": "s"}}]}]},
            [("Secret", "s", "spec.initContainers[0].envFrom")],
        ),
        (of_volume(emptyDir={}), []),
        (of_volume(secret={"secretName": "s"}), [("Secret", "s", VOLUME)]),
        (of_volume(configMap={"name": "c"}), [("ConfigMap", "c", VOLUME)]),
        (
            of_volume(persistentVolumeClaim={"claimName": "p"}),
            [("PersistentVolumeClaim", "p", VOLUME)],
        ),
        (projected({"downwardAPI": {"items": []}}), []),
        (
            projected({"downwardAPI": {}, "configMap": {"name": "c"}}, {"secret": {"name": "s"}}),
            [("ConfigMap", "c", VOLUME), ("Secret", "s", VOLUME)],
        ),
        (
            projected({"serviceAccountToken": {"path": "t"}}),
            [("serviceAccountToken", "", VOLUME)],
        ),
    ],
)
def test_every_way_to_refer_is_found_with_its_place(
    spec: dict[str, Any], found: list[tuple[str, str, str]]
) -> None:
    assert [(one.kind, one.name, one.path) for one in api_references(spec)] == found
    of_volumes = [one for one in found if one[2] == VOLUME]
    assert [(one.kind, one.name, one.path) for one in volume_references(spec)] == of_volumes


def test_a_reference_knows_who_has_it() -> None:
    spec = of_variable(secretKeyRef={"name": "s"}) | of_volume(secret={"secretName": "s"})
    assert [one.holder for one in api_references(spec)] == ["container c", "volume v"]


ENV_FILE = {"volumeName": "v", "path": "a/env", "key": "K"}
FILE_KEYS: list[tuple[dict[str, Any], list[str]]] = [
    ({}, []),
    ({"optional": True, "path": "..a/env"}, ["path: Invalid value"]),
    ({"volumeName": "", "path": "", "key": ""}, ["volumeName: Required", "path: Req", "key: Req"]),
    ({"volumeName": "other"}, ["volumeName: Not found"]),
    ({"volumeName": "d"}, ['volumeName: Invalid value: "d": must be the name of an emptyDir']),
    ({"path": "/env"}, ["path: Invalid value"]),
    ({"path": "a/../env"}, ["path: Invalid value"]),
    ({"key": "a=b"}, ["key: Invalid value"]),
    ({"key": "k" * 129}, ["key: Too long"]),
]


@pytest.mark.parametrize(("change", "refused"), FILE_KEYS)
def test_a_file_of_variables_lies_in_an_empty_dir(
    change: dict[str, Any], refused: list[str]
) -> None:
    source = {"fileKeyRef": {**ENV_FILE, **change}}
    volumes = [{"name": "v", "emptyDir": {}}, {"name": "d", "downwardAPI": {}}]
    asked = podtable.container(env=[{"name": "A", "valueFrom": source}]) | {"volumes": volumes}
    below = "spec.containers[0].env[0].valueFrom.fileKeyRef"
    podtable.assert_refused(podtable.refusals(asked), *refused, below=below)
