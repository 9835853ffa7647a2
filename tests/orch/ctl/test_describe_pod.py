from __future__ import annotations

from datetime import UTC, datetime

from orch.ctl import describe_pod

NOW = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
POD = {
    "metadata": {
        "name": "web",
        "namespace": "d",
        "labels": {"app": "web"},
        "creationTimestamp": "2026-01-31T11:00:00Z",
        "deletionTimestamp": "2026-01-31T12:00:30Z",
    },
    "spec": {
        "nodeName": "n1",
        "restartPolicy": "Always",
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [
            {"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            {"key": "l", "value": "v"},
        ],
        "initContainers": [{"name": "setup", "image": "i"}],
        "containers": [
            {
                "name": "c",
                "image": "web:1",
                "command": ["serve", "-v"],
                "ports": [{"containerPort": 80}, {"containerPort": 53, "protocol": "UDP"}],
                "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {}}}],
                "resources": {"limits": {"memory": "1Gi"}, "requests": {"cpu": 1}},
                "volumeMounts": [{"name": "v", "mountPath": "/data", "readOnly": True}],
            }
        ],
        "volumes": [{"name": "v", "hostPath": {"path": "/srv", "type": "Directory"}}],
    },
    "status": {
        "phase": "Running",
        "message": "all well",
        "hostIP": "10.0.0.1",
        "podIPs": [{"ip": "10.1.0.2"}],
        "startTime": "2026-01-31T11:00:01Z",
        "qosClass": "Burstable",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [
            {
                "name": "c",
                "ready": True,
                "restartCount": 2,
                "containerID": "containerd://abc",
                "imageID": "sha256:1",
                "state": {"running": {"startedAt": "2026-01-31T11:59:00Z"}},
                "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
            }
        ],
    },
}


def test_a_pod_is_described() -> None:
    assert describe_pod.lines(POD, NOW) == [
        "Name:         web",
        "Namespace:    d",
        "Node:         n1/10.0.0.1",
        "Start Time:   2026-01-31T11:00:01Z",
        "Age:          60m",
        "Labels:       app=web",
        "Annotations:  <none>",
        "Status:       Terminating",
        "Message:      all well",
        "Deletion:     asked for until 2026-01-31T12:00:30Z",
        "IPs:          10.1.0.2",
        "Init Containers:",
        "  setup:",
        "    Container ID:   <none>",
        "    Image:          i",
        "    Image ID:       <none>",
        "    Ports:          <none>",
        "    State:          <none>",
        "    Ready:          False",
        "    Restart Count:  0",
        "    Environment:    <none>",
        "    Mounts:         <none>",
        "Containers:",
        "  c:",
        "    Container ID:   containerd://abc",
        "    Image:          web:1",
        "    Image ID:       sha256:1",
        "    Ports:          80/TCP",
        "                    53/UDP",
        "    Command:        serve -v",
        "    State:          Running",
        "                    startedAt: 2026-01-31T11:59:00Z",
        "    Last State:     Terminated",
        "                    exitCode: 137",
        "                    reason: OOMKilled",
        "    Ready:          True",
        "    Restart Count:  2",
        "    Limits:         memory=1Gi",
        "    Requests:       cpu=1",
        "    Environment:    A=1",
        "                    B=<from elsewhere>",
        "    Mounts:         /data from v (ro)",
        "Conditions:",
        "  Type    Status   Reason   Message",
        "  ----    ------   ------   -------",
        "  Ready   True",
        "Volumes:",
        "  v:  hostPath path=/srv, type=Directory",
        "QoS Class:       Burstable",
        "Restart Policy:  Always",
        "Node-Selectors:  disk=ssd",
        "Tolerations:     k:NoExecute op=Exists for 300s",
        "                 l=v",
    ]


def test_an_empty_pod_is_still_described() -> None:
    assert "Status:       <none>" in describe_pod.lines({}, NOW)
