"""K:pkg/apis/core/validation TestValidateVolumes, TestValidateLocalNonReservedPath and siblings."""

from __future__ import annotations

from typing import Any

import pytest

from tests.orch.wire.podrules.podtable import assert_refused, refusals, spec

UP, ABSOLUTE = "must not contain '..'", "must be a relative path"
MODE = "must be a number between 0 and 0777 (octal), both inclusive"
NAME = {"apiVersion": "v1", "fieldPath": "metadata.name"}


def item(**fields: Any) -> dict[str, Any]:
    return {"key": "k", "path": "p", **fields}


def fact(**fields: Any) -> dict[str, Any]:
    return {"downwardAPI": {"items": [{"path": "p", **fields}]}}


def projected(*sources: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"projected": {"sources": list(sources), **fields}}


def token(**fields: Any) -> dict[str, Any]:
    return projected({"serviceAccountToken": {"path": "t", **fields}})


OF_CPU = {"containerName": "c", "resource": "limits.cpu"}
ACCEPTED: list[dict[str, Any]] = [
    {},
    {"emptyDir": {}},
    {"emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
    {"emptyDir": {}, "hostPath": None},
    {"hostPath": {"path": "/a/..b"}},
    {"hostPath": {"path": "/a", "type": "DirectoryOrCreate"}},
    {"hostPath": {"path": "/a", "type": ""}},
    {"configMap": {"name": "c", "items": [item(path="a/.b")]}},
    {"configMap": {"name": "c", "defaultMode": 0o777, "items": [item(mode=0)], "optional": True}},
    {"secret": {"secretName": "s", "defaultMode": 0o400, "items": [item(path="a..b")]}},
    fact(fieldRef=NAME, mode=0o644),
    fact(fieldRef={"fieldPath": "metadata.labels"}),
    fact(fieldRef={"fieldPath": "metadata.annotations['k']"}),
    fact(resourceFieldRef=OF_CPU),
    projected(),
    projected({}, {"secret": {"name": "s"}}, {"configMap": {"name": "c", "items": [item()]}}),
    projected({"downwardAPI": {"items": [{"path": "p", "fieldRef": NAME}]}}, defaultMode=0o600),
    token(expirationSeconds=600),
    token(),
    {"image": {"reference": "i", "pullPolicy": "Always"}},
    {"image": {"reference": "i"}},
    {"emptyDir": {"medium": "HugePages-2Mi"}},
    {"nfs": {"server": "s", "path": "/p", "readOnly": True}},
]

# Of the reference's kinds, those that no agent here mounts.
NOT_OFFERED: list[dict[str, Any]] = [
    {"persistentVolumeClaim": {"claimName": "c"}},
    {"ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
    {"csi": {"driver": "d.example.com"}},
    {"awsElasticBlockStore": {"volumeID": "v"}},
    {"azureDisk": {"diskName": "d", "diskURI": "u"}},
    {"azureFile": {"secretName": "s", "shareName": "n"}},
    {"cephfs": {"monitors": ["m"]}},
    {"cinder": {"volumeID": "v"}},
    {"fc": {"wwids": ["w"]}},
    {"flexVolume": {"driver": "d"}},
    {"flocker": {"datasetName": "d"}},
    {"gcePersistentDisk": {"pdName": "p"}},
    {"gitRepo": {"repository": "r"}},
    {"glusterfs": {"endpoints": "e", "path": "p"}},
    {"iscsi": {"targetPortal": "t", "iqn": "q"}},
    {"photonPersistentDisk": {"pdID": "p"}},
    {"portworxVolume": {"volumeID": "v"}},
    {"quobyte": {"registry": "r", "volume": "v"}},
    {"rbd": {"monitors": ["m"], "image": "i"}},
    {"scaleIO": {"gateway": "g", "system": "s", "volumeName": "v"}},
    {"storageos": {"volumeName": "v"}},
    {"vsphereVolume": {"volumePath": "p"}},
]

REFUSED: list[tuple[dict[str, Any], list[str]]] = [
    ({"name": "", "emptyDir": {}}, ["name: Required value"]),
    ({"name": "a.b", "emptyDir": {}}, ['name: Invalid value: "a.b": a lowercase RFC 1123 label']),
    ({"name": "a" * 64, "emptyDir": {}}, [f'name: Invalid value: "{"a" * 64}": must be no more']),
    ({"nfs": {}}, ["nfs.server: Required value", "nfs.path: Required value"]),
    (
        {"nfs": {"server": "s", "path": "p"}},
        ['nfs.path: Invalid value: "p": must be an absolute path'],
    ),
    (
        {"nfs": {"server": "s" * 254, "path": "/" + "p" * 1024}},
        ["nfs.server: Too long", "nfs.path: Too long"],
    ),
    ({"emptyDir": {"sizeLimit": "-1"}}, ["emptyDir.sizeLimit: Forbidden: SizeLimit field must"]),
    ({"emptyDir": {"sizeLimit": "many"}}, ['emptyDir.sizeLimit: Invalid value: "many"']),
    (
        {"emptyDir": {}, "hostPath": {"path": ""}},
        ["hostPath: Forbidden: may not specify more than 1 volume type"],
    ),
    ({"hostPath": {"path": ""}}, ["hostPath.path: Required value"]),
    ({"hostPath": {"path": "/a/../b"}}, [f'hostPath.path: Invalid value: "/a/../b": {UP}']),
    ({"hostPath": {"path": "/a", "type": "Dir"}}, ['hostPath.type: Unsupported value: "Dir"']),
    ({"configMap": {}}, ["configMap.name: Required value"]),
    ({"secret": {}}, ["secret.secretName: Required value"]),
    *(
        ({"secret": {"secretName": "s", "defaultMode": mode}}, ["secret.defaultMode: Invalid v"])
        for mode in (-1, 0o1000)
    ),
    (
        {"configMap": {"name": "c", "defaultMode": -1}},
        ["configMap.defaultMode: Invalid value"],
    ),
    *(
        ({"configMap": {"name": "c", "items": [item(**change)]}}, [f"configMap.items[0].{text}"])
        for change, text in (
            ({"key": ""}, "key: Required value"),
            ({"path": ""}, "path: Required value"),
            ({"path": "/p"}, f'path: Invalid value: "/p": {ABSOLUTE}'),
            ({"path": "a/../p"}, f'path: Invalid value: "a/../p": {UP}'),
            ({"path": "../p"}, f'path: Invalid value: "../p": {UP}'),
            ({"path": "..p"}, "path: Invalid value: \"..p\": must not start with '..'"),
            ({"mode": 0o1000}, f"mode: Invalid value: 512: {MODE}"),
            ({"mode": -1}, f"mode: Invalid value: -1: {MODE}"),
        )
    ),
    (
        {"configMap": {"name": "c", "items": [item(path="..")]}},
        [
            f'configMap.items[0].path: Invalid value: "..": {UP}',
            "configMap.items[0].path: Invalid value: \"..\": must not start with '..'",
        ],
    ),
    (fact(), ["downwardAPI: Required value: one of fieldRef and resourceFieldRef is required"]),
    (
        fact(fieldRef=NAME, resourceFieldRef=OF_CPU),
        ['downwardAPI: Invalid value: "resource": fieldRef and resourceFieldRef can not be'],
    ),
    (fact(path="", fieldRef=NAME), ["downwardAPI.path: Required value"]),
    (fact(path="/p", fieldRef=NAME), [f'downwardAPI.path: Invalid value: "/p": {ABSOLUTE}']),
    (fact(path="..p", fieldRef=NAME), ['downwardAPI.path: Invalid value: "..p": must not start']),
    (fact(fieldRef=NAME, mode=0o1000), [f"downwardAPI.mode: Invalid value: 512: {MODE}"]),
    ({"downwardAPI": {"defaultMode": -1}}, [f"downwardAPI.defaultMode: Invalid value: -1: {MODE}"]),
    (fact(fieldRef={"fieldPath": "status.podIP"}), ["downwardAPI.fieldRef.fieldPath: Unsupported"]),
    (fact(fieldRef={"fieldPath": "x"}), ['downwardAPI.fieldRef.fieldPath: Invalid value: "x"']),
    (
        fact(resourceFieldRef={"resource": "limits.cpu"}),
        ["downwardAPI.resourceFieldRef.containerName: Required value"],
    ),
    (
        fact(resourceFieldRef={"containerName": "c", "resource": "x"}),
        ['downwardAPI.resourceFieldRef.resource: Unsupported value: "x"'],
    ),
    (projected(defaultMode=0o1000), [f"projected.defaultMode: Invalid value: 512: {MODE}"]),
    (
        projected({"secret": {"name": "s"}, "configMap": {"name": "c"}}),
        ["projected.sources[0]: Forbidden: may not specify more than 1 volume type per source"],
    ),
    (projected({"secret": {}}), ["projected.sources[0].secret.name: Required value"]),
    (
        projected({}, {"configMap": {"name": "c", "items": [item(path="..p")]}}),
        ['projected.sources[1].configMap.items[0].path: Invalid value: "..p"'],
    ),
    (
        projected(
            {"secret": {"name": "s", "items": [item()]}},
            {"configMap": {"name": "c", "items": [item()]}},
            {"downwardAPI": {"items": [{"path": "p", "fieldRef": NAME}]}},
        ),
        [
            'projected: Invalid value: "c": conflicting duplicate paths',
            'projected: Invalid value: "p": conflicting duplicate paths',
        ],
    ),
    (
        projected({"downwardAPI": {"items": [{"path": "p"}]}}),
        ["projected.sources[0].downwardAPI: Required value: one of fieldRef and resourceFieldRef"],
    ),
    (
        token(expirationSeconds=599),
        [
            "projected.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 599:"
            " may not specify a duration less than 10 minutes"
        ],
    ),
    (
        token(expirationSeconds=2**32 + 1),
        ["projected.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 4294967297"],
    ),
    (token(path=""), ["projected.path: Required value"]),
    (token(path="../t"), [f'projected.path: Invalid value: "../t": {UP}']),
    (
        projected({"clusterTrustBundle": {"name": "b", "path": "p"}}),
        ["projected.sources[0].clusterTrustBundle: Forbidden: is not offered here; put"],
    ),
    (
        projected({"podCertificate": {"signerName": "s", "keyType": "ED25519"}}),
        ["projected.sources[0].podCertificate: Forbidden: is not offered here; put"],
    ),
    ({"image": {"reference": ""}}, ["image.reference: Required value"]),
    (
        {"image": {"reference": "i", "pullPolicy": "x"}},
        ["image.pullPolicy: Unsupported"],
    ),
    ({"nfs": {}}, ["nfs.path: Required value", "nfs.server: Required value"]),
    ({"persistentVolumeClaim": {}}, ["persistentVolumeClaim.claimName: Required value"]),
    ({"azureDisk": {"diskName": "d"}}, ["azureDisk.diskURI: Required value"]),
]


@pytest.mark.parametrize("fields", ACCEPTED)
def test_what_the_reference_takes_as_a_volume_is_taken(fields: dict[str, Any]) -> None:
    assert refusals(spec(volumes=[{"name": "v", **fields}])) == []


@pytest.mark.parametrize("fields", NOT_OFFERED)
def test_storage_that_no_agent_mounts_is_refused_by_the_name_of_its_kind(
    fields: dict[str, Any],
) -> None:
    (kind,) = fields
    [text] = refusals(spec(volumes=[{"name": "v", **fields}]))
    assert text.startswith(f"spec.volumes[0].{kind}: Forbidden: not offered here: ")


@pytest.mark.parametrize(("fields", "found"), REFUSED)
def test_what_is_wrong_with_a_volume_is_refused_by_its_path(
    fields: dict[str, Any], found: list[str]
) -> None:
    texts = refusals(spec(volumes=[{"name": "v", **fields}]))
    assert_refused(texts, *found, below="spec.volumes[0]")


def test_volumes_have_names_of_their_own_and_a_bad_one_is_not_there_to_be_mounted() -> None:
    good, bad = {"name": "v", "emptyDir": {}}, {"name": "w", "hostPath": {"path": ""}}
    mount = {"name": "w", "mountPath": "/w"}
    document = spec(
        volumes=[good, good, bad],
        containers=[{"name": "c", "image": "i", "volumeMounts": [mount]}],
    )
    assert_refused(
        refusals(document),
        'spec.containers[0].volumeMounts[0].name: Not found: "w"',
        'spec.volumes[1].name: Duplicate value: "v"',
        "spec.volumes[2].hostPath.path: Required value",
    )
