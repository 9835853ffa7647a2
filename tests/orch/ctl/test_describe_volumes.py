from __future__ import annotations

from typing import Any

import pytest

from orch.ctl import describe_volumes, sheet


def _lines(**source: Any) -> list[str]:
    lines = sheet.aligned(describe_volumes.lines([{"name": "v", **source}])).splitlines()
    assert lines[:2] == ["Volumes:", "  v:"]
    return [" ".join(line.split()) for line in lines[2:]]


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ({"hostPath": {"path": "/srv"}},
         ["Type: HostPath (bare host directory volume)", "Path: /srv", "HostPathType: <none>"]),
        ({"emptyDir": {"medium": "Memory", "sizeLimit": "1024Ki"}},
         ["Type: EmptyDir (a temporary directory that shares a pod's lifetime)", "Medium: Memory",
          "SizeLimit: 1Mi"]),
        ({"secret": {"secretName": "s", "optional": True}},
         ["Type: Secret (a volume populated by a Secret)", "SecretName: s", "Optional: true"]),
        ({"configMap": {"name": "c"}},
         ["Type: ConfigMap (a volume populated by a ConfigMap)", "Name: c", "Optional: false"]),
        ({"downwardAPI": {"items": [
            {"path": "p", "fieldRef": {"fieldPath": "metadata.name"}},
            {"path": "q", "resourceFieldRef": {"resource": "limits.cpu"}}]}},
         ["Type: DownwardAPI (a volume populated by information about the pod)", "Items:",
          "metadata.name -> p", "limits.cpu -> q"]),
        ({"projected": {"sources": [
            {"secret": {"name": "s"}}, {"configMap": {"name": "c", "optional": True}},
            {"downwardAPI": {}}, {"serviceAccountToken": {"expirationSeconds": 3600}}, {}]}},
         ["Type: Projected (a volume that contains injected data from multiple sources)",
          "SecretName: s", "Optional: false", "ConfigMapName: c", "Optional: true",
          "DownwardAPI: true", "TokenExpirationSeconds: 3600"]),
        ({"csi": {"driver": "d", "volumeAttributes": {"b": "c" * 200, "a": "x"}}},
         ["Type: CSI (a Container Storage Interface (CSI) volume source)", "Driver: d", "FSType:",
          "ReadOnly: false", "VolumeAttributes: a=x", f"b={'c' * 138}..."]),
        ({"csi": {"driver": "d", "readOnly": True}},
         ["Type: CSI (a Container Storage Interface (CSI) volume source)", "Driver: d", "FSType:",
          "ReadOnly: true", "VolumeAttributes: <none>"]),
        ({"fc": {"targetWWNs": ["1", "2"], "lun": 0}},
         ["Type: FC (a Fibre Channel disk)", "TargetWWNs: 1, 2", "LUN: 0", "FSType:",
          "ReadOnly: false"]),
        ({"cinder": {}}, ["<unknown>"]),
    ],
)  # fmt: skip
def test_a_volume_tells_its_type_and_where_it_comes_from(
    source: dict[str, Any], told: list[str]
) -> None:
    assert _lines(**source) == told


def test_the_claim_of_a_volume_made_for_the_pod() -> None:
    template = {"metadata": {"labels": {"a": "b", "c": "d"}},
                "spec": {"storageClassName": "fast", "volumeMode": "Block"}}  # fmt: skip
    assert _lines(ephemeral={"volumeClaimTemplate": template})[1:] == [
        "StorageClass: fast", "Volume:", "Labels: a=b", "c=d", "Annotations: <none>", "Capacity:",
        "Access Modes:", "VolumeMode: Block",
    ]  # fmt: skip
    assert len(_lines(ephemeral={})) == 1


def test_options_and_references_are_written_as_their_records_write_themselves() -> None:
    options = {"driver": "d", "options": {"b": "c", "a": "x"}, "secretRef": {"name": "s"}}
    told = _lines(flexVolume=options)
    assert "Options: map[a:x b:c]" in told
    assert "SecretRef: &LocalObjectReference{Name:s,}" in told
    assert "SecretRef: nil" in _lines(flexVolume={})


def test_no_volumes_are_said_so() -> None:
    assert describe_volumes.lines([]) == ["Volumes:\t<none>"]
