from __future__ import annotations

from typing import Any

import pytest

from orch.server.request.decoding import misfits
from orch.wire.records.core import Event, Node
from orch.wire.records.fields import fields_beyond, kept_of
from orch.wire.records.pods import Pod, PodSpec, Volume
from tests import scaling

_LABELS = {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "a", "values": ["b"]}]}
_NEAR = {"topologyKey": "zone", "labelSelector": _LABELS, "namespaces": ["n"]}
_NUMBERED = {"labelSelector": {"matchLabels": {"a": 1}}}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
FITTING: dict[str, Any] = {
    "schedulerName": "mine",
    "os": {"name": "linux"},
    "schedulingGates": [{"name": "g"}],
    "enableServiceLinks": False,
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "labelSelector": _LABELS, "minDomains": None}
    ],
    "affinity": {
        "podAffinity": {_REQUIRED: [_NEAR]},
        "podAntiAffinity": {_PREFERRED: [{"weight": 100, "podAffinityTerm": _NEAR}]},
        "nodeAffinity": {_PREFERRED: [{"weight": 1, "preference": {"matchFields": []}}]},
    },
    "containers": [
        {
            "name": "c",
            "livenessProbe": {"initialDelaySeconds": 2**31 - 1, "httpGet": {"port": "http"}},
            "ports": [{"containerPort": 80}],
            "volumeDevices": [{"name": "v", "devicePath": "/dev/x"}],
        }
    ],
    "volumes": [
        {"name": "a", "csi": {"driver": "d", "volumeAttributes": {"a": "b"}}},
        {"name": "b", "iscsi": {"lun": 1, "portals": ["p"], "secretRef": {"name": "s"}}},
        {
            "name": "c",
            "ephemeral": {
                "volumeClaimTemplate": {
                    "metadata": {"labels": {"a": "b"}},
                    "spec": {"resources": {"requests": {"storage": "1Gi"}}},
                }
            },
        },
    ],
    "priority": -(2**31),
    "unknown": {"to": ["everybody", 1]},
}


def test_what_fits_is_left_alone() -> None:
    assert misfits(Pod, {"metadata": {"name": "p"}, "spec": FITTING}) == []


@pytest.mark.parametrize(
    ("spec", "path", "wanted"),
    [
        ({"schedulerName": 5}, "schedulerName", "string"),
        ({"os": 5}, "os", "object"),
        ({"os": {"name": []}}, "os.name", "string"),
        ({"schedulingGates": 7}, "schedulingGates", "array"),
        ({"schedulingGates": ["g"]}, "schedulingGates[0]", "object"),
        ({"topologySpreadConstraints": 5}, "topologySpreadConstraints", "array"),
        ({"topologySpreadConstraints": [{"maxSkew": "1"}]},
         "topologySpreadConstraints[0].maxSkew", "integer"),
        ({"enableServiceLinks": "true"}, "enableServiceLinks", "boolean"),
        ({"affinity": {"podAffinity": 5}}, "affinity.podAffinity", "object"),
        ({"affinity": {"podAntiAffinity": {_REQUIRED: [_NUMBERED]}}},
         f"affinity.podAntiAffinity.{_REQUIRED}[0].labelSelector.matchLabels[a]", "string"),
        ({"affinity": {"nodeAffinity": {_PREFERRED: [{"preference": {"matchFields": 1}}]}}},
         f"affinity.nodeAffinity.{_PREFERRED}[0].preference.matchFields", "array"),
        ({"volumes": [{"name": "v", "csi": {"readOnly": 1}}]},
         "volumes[0].csi.readOnly", "boolean"),
        ({"volumes": [{"ephemeral": {"volumeClaimTemplate": {"metadata": {"labels": 1}}}}]},
         "volumes[0].ephemeral.volumeClaimTemplate.metadata.labels", "object"),
        ({"containers": [{"securityContext": {"windowsOptions": {"hostProcess": 1}}}]},
         "containers[0].securityContext.windowsOptions.hostProcess", "boolean"),
    ],
)  # fmt: skip
def test_a_kept_field_of_a_wrong_type_is_named(spec, path, wanted) -> None:
    (found,) = misfits(Pod, {"spec": spec})
    assert (found.path, found.wanted) == (f"spec.{path}", wanted)


@pytest.mark.parametrize(
    ("model", "document", "path", "bits"),
    [
        (Pod, {"spec": {"containers": [{"livenessProbe": {"initialDelaySeconds": 2**40}}]}},
         "spec.containers[0].livenessProbe.initialDelaySeconds", 32),
        (Pod, {"spec": {"containers": [{"livenessProbe": {"tcpSocket": {"port": 2**31}}}]}},
         "spec.containers[0].livenessProbe.tcpSocket.port", 32),
        (Pod, {"spec": {"activeDeadlineSeconds": 2**63}}, "spec.activeDeadlineSeconds", 64),
        (Pod, {"spec": {"securityContext": {"supplementalGroups": [1, 2**63]}}},
         "spec.securityContext.supplementalGroups[1]", 64),
        (Pod, {"status": {"containerStatuses": [{"restartCount": 2**31}]}},
         "status.containerStatuses[0].restartCount", 32),
        (Node, {"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 2**32}}}},
         "status.daemonEndpoints.kubeletEndpoint.Port", 32),
        (Event, {"count": -(2**31) - 1}, "count", 32),
        (Event, {"metadata": {"generation": 2**63}}, "metadata.generation", 64),
    ],
)  # fmt: skip
def test_an_integer_that_clients_have_no_room_for_is_named(model, document, path, bits) -> None:
    (found,) = misfits(model, document)
    assert (found.path, found.why) == (path, f"must fit into {bits} bits")


def test_an_amount_that_is_none_is_named() -> None:
    claim = {"spec": {"resources": {"requests": {"storage": "much"}}}}
    volume = {"name": "v", "ephemeral": {"volumeClaimTemplate": claim}}
    (found,) = misfits(Pod, {"spec": {"volumes": [volume]}})
    assert found.path.endswith("requests[storage]")


def test_every_kept_field_of_a_pod_has_a_type() -> None:
    for model in (PodSpec, Volume):
        assert all(kept_of(model)[name].kind != "any" for name in fields_beyond(model) or ())


def test_a_hundred_misfits_are_listed_of_many() -> None:
    assert len(misfits(Pod, {"spec": {"schedulingGates": [7] * 10_000}})) == 100


@pytest.mark.slow
def test_looking_grows_with_the_document() -> None:
    def look(size: int):
        gates = [{"name": "g"}] * size
        return lambda: misfits(Pod, {"spec": {"schedulingGates": gates}})

    assert scaling.growth(look, 20_000) < scaling.LINEAR
