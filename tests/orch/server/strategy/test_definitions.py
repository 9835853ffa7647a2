from __future__ import annotations

import copy
from typing import Any

import pytest

from orch.server.strategy.definitions import CLEANUP, STRATEGY
from orch.wire.patch.patch import apply_merge_patch
from tests.orch.server.customresources.widgets import definition, version


def created(document: dict[str, Any]) -> dict[str, Any]:
    made = copy.deepcopy(document)
    STRATEGY.prepare_create(made)
    return made


def refused(document: dict[str, Any], old: dict[str, Any] | None = None) -> list[str]:
    return [cause.field for cause in STRATEGY.validate(document, old)]


def test_a_new_definition_is_completed() -> None:
    made = created(definition())
    assert refused(made) == []
    names = {"singular": "widget", "listKind": "WidgetList", "plural": "widgets", "kind": "Widget"}
    assert made["spec"]["names"] == names
    assert made["spec"]["conversion"] == {"strategy": "None"}
    assert made["metadata"]["finalizers"] == [CLEANUP]
    assert made["status"] == {"storedVersions": ["v1"]}


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ({"group": "example"}, ["metadata.name", "spec.group"]),
        ({"group": "apps.orch.io"}, ["metadata.name", "spec.group"]),
        ({"group": "coordination.k8s.io"}, ["metadata.name", "spec.group"]),
        ({"scope": "Everywhere"}, ["spec.scope"]),
        ({"conversion": {"strategy": "Webhook"}}, ["spec.conversion.strategy"]),
        ({"preserveUnknownFields": True}, ["spec.preserveUnknownFields"]),
        ({"names": {"listKind": "Widget"}}, ["spec.names.listKind"]),
        ({"names": {"kind": "Wid get"}},
         ["spec.names.singular", "spec.names.kind", "spec.names.listKind"]),
        ({"names": {"shortNames": ["A"]}}, ["spec.names.shortNames[0]"]),
        ({"names": {"categories": [f"c{n}" for n in range(40)]}}, ["spec.names.categories"]),
    ],
)  # fmt: skip
def test_what_cannot_be_served_is_refused_by_its_path(
    spec: dict[str, Any], fields: list[str]
) -> None:
    document = apply_merge_patch(definition(), {"spec": spec})
    assert list(dict.fromkeys(refused(created(document)))) == fields


SCALE = {"specReplicasPath": ".spec.a", "statusReplicasPath": ".status.a"}
COLUMN = {"name": "A", "type": "string", "jsonPath": ".spec.a"}


@pytest.mark.parametrize(
    ("versions", "field"),
    [
        ([version(schema={})], "spec.versions[0].schema.openAPIV3Schema"),
        ([version(), version("v2")], "spec.versions"),
        ([version(), version(storage=False)], "spec.versions"),
        ([version(served=False)], "spec.versions"),
        ([version("V1")], "spec.versions[0].name"),
        ([version(f"v{n}", storage=not n) for n in range(20)], "spec.versions"),
        (
            [version(subresources={"scale": {**SCALE, "specReplicasPath": ".status.a"}})],
            "spec.versions[0].subresources.scale.specReplicasPath",
        ),
        (
            [version(subresources={"scale": {**SCALE, "statusReplicasPath": ".status[0]"}})],
            "spec.versions[0].subresources.scale.statusReplicasPath",
        ),
        (
            [version(additionalPrinterColumns=[{**COLUMN, "type": "text"}])],
            "spec.versions[0].additionalPrinterColumns[0].type",
        ),
        (
            [version(additionalPrinterColumns=[{**COLUMN, "jsonPath": ".a[?("}])],
            "spec.versions[0].additionalPrinterColumns[0].jsonPath",
        ),
        (
            [version(additionalPrinterColumns=[{**COLUMN, "jsonPath": "..a"}])],
            "spec.versions[0].additionalPrinterColumns[0].jsonPath",
        ),
        (
            [version(additionalPrinterColumns=[{**COLUMN, "jsonPath": ".a" + "[*,*]" * 40}])],
            "spec.versions[0].additionalPrinterColumns[0].jsonPath",
        ),
        (
            [version(additionalPrinterColumns=[COLUMN] * 40)],
            "spec.versions[0].additionalPrinterColumns",
        ),
    ],
)
def test_a_version_is_refused_by_its_path(versions: list[dict[str, Any]], field: str) -> None:
    assert refused(created(definition("widgets", *versions))) == [field]


def test_a_change_keeps_what_objects_depend_on() -> None:
    old = created(definition())

    def changed(**spec: Any) -> dict[str, Any]:
        new = apply_merge_patch(old, {"spec": spec, "metadata": {"finalizers": None}})
        STRATEGY.prepare_update(new, old)
        return new

    assert refused(changed(scope="Cluster"), old) == ["spec.scope"]
    assert refused(changed(names={"kind": "Other", "listKind": "OtherList"}), old) == [
        "spec.names.kind"
    ]
    assert refused(changed(versions=[version("v2")]), old) == ["status.storedVersions[0]"]
    moved = changed(versions=[version(storage=False), version("v2")])
    assert refused(moved, old) == []
    assert moved["status"]["storedVersions"] == ["v1", "v2"]
    assert moved["metadata"] == {
        "name": "widgets.example.com", "generation": 2, "finalizers": [CLEANUP],
    }  # fmt: skip
