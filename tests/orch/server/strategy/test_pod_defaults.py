from __future__ import annotations

import copy

import pytest

from orch.server.strategy import pod_defaults


def filled(**spec):
    spec.setdefault("containers", [{"name": "c", "image": "i"}])
    pod_defaults.fill(spec)
    return spec


def test_a_minimal_pod_becomes_what_kubectl_users_expect() -> None:
    assert filled() == {
        "containers": [
            {
                "name": "c",
                "image": "i",
                "imagePullPolicy": "Always",
                "resources": {},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
            }
        ],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "enableServiceLinks": True,
        "securityContext": {},
        "tolerations": [
            {
                "key": f"node.orch.io/{why}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            }
            for why in ("not-ready", "unreachable")
        ],
    }


def test_an_empty_choice_is_none_made() -> None:
    container = {
        "name": "c",
        "image": "i",
        "terminationMessagePolicy": "",
        "ports": [{"containerPort": 1, "protocol": ""}],
    }
    spec = filled(restartPolicy="", dnsPolicy="", containers=[container])
    assert (spec["restartPolicy"], spec["dnsPolicy"]) == ("Always", "ClusterFirst")
    assert container["ports"] == [{"containerPort": 1, "protocol": "TCP"}]
    assert container["terminationMessagePolicy"] == "File"


def test_what_the_author_said_stays() -> None:
    spec = filled(restartPolicy="Never", terminationGracePeriodSeconds=0, enableServiceLinks=False)
    assert spec["restartPolicy"] == "Never"
    assert spec["terminationGracePeriodSeconds"] == 0
    assert spec["enableServiceLinks"] is False
    before = filled(**copy.deepcopy(spec))
    assert before == spec


def test_probes_ports_and_variables_are_completed() -> None:
    container = {
        "name": "c",
        "image": "i",
        "livenessProbe": {"httpGet": {"port": 80}, "periodSeconds": 3},
        "readinessProbe": {"grpc": {"port": 9}},
        "ports": [{"containerPort": 80}],
        "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}},
    }
    (done,) = filled(containers=[container], hostNetwork=True)["containers"]
    assert done["livenessProbe"] == {
        "httpGet": {"port": 80, "scheme": "HTTP", "path": "/"},
        "timeoutSeconds": 1,
        "periodSeconds": 3,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    assert done["readinessProbe"]["grpc"] == {"port": 9, "service": ""}
    assert done["ports"] == [{"containerPort": 80, "protocol": "TCP", "hostPort": 80}]
    assert done["env"][0]["valueFrom"]["fieldRef"]["apiVersion"] == "v1"
    assert done["resources"]["requests"] == {"cpu": "500m", "memory": "1Gi"}


def test_volumes_are_completed() -> None:
    volumes = filled(
        volumes=[
            {"name": "none"},
            {"name": "host", "hostPath": {"path": "/x"}},
            {"name": "map", "configMap": {"name": "m"}},
            {"name": "other", "nfs": {"server": "s", "path": "/"}},
        ]
    )["volumes"]
    assert volumes[0] == {"name": "none", "emptyDir": {}}
    assert volumes[1]["hostPath"] == {"path": "/x", "type": ""}
    assert volumes[2]["configMap"] == {"name": "m", "defaultMode": 0o644}
    assert "emptyDir" not in volumes[3]


@pytest.mark.parametrize(
    ("toleration", "count"),
    [
        ({"key": "node.orch.io/not-ready", "operator": "Exists", "effect": "NoExecute"}, 2),
        ({"operator": "Exists"}, 1),
        ({"key": "other", "operator": "Exists"}, 3),
        ({"key": "node.orch.io/not-ready", "operator": "Exists", "effect": "NoSchedule"}, 3),
    ],
)
def test_tolerations_are_added_only_where_none_covers(toleration, count) -> None:
    assert len(filled(tolerations=[toleration])["tolerations"]) == count


@pytest.mark.parametrize(
    ("resources", "of_container", "expected"),
    [  # K:pkg/apis/core/v1/defaults_test.go, TestPodResourcesDefaults
        ({"limits": {"cpu": "2"}}, {}, {"cpu": "2"}),
        ({"limits": {"cpu": "2"}}, {"requests": {"cpu": "500m"}}, {"cpu": "500m"}),
        ({"limits": {"cpu": "2"}}, {"requests": {"memory": "1Mi"}}, {"cpu": "2", "memory": "1Mi"}),
        ({"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}, {}, {"cpu": "1"}),
        ({"requests": {"cpu": "1"}}, {"requests": {"memory": "1Mi"}}, {"cpu": "1"}),
    ],
)
def test_a_pod_that_is_limited_as_a_whole_requests_what_its_containers_do(
    resources, of_container, expected
) -> None:
    container = {"name": "c", "image": "i", "resources": of_container}
    spec = filled(resources=resources, containers=[container])
    assert spec["resources"]["requests"] == expected
