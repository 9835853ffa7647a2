"""The objects of the comparison of `orchctl describe` with kubectl: whole ones, and bare ones."""

from __future__ import annotations

import base64
from typing import Any

Record = dict[str, Any]
RBAC = "rbac.authorization.orch.io"
LEASE_NAMESPACE = "orch-node-lease"
WHEN = "2026-01-31T12:00:{:02d}Z"


def _object(kind: str, name: str, api_version: str = "v1", **members: Any) -> Record:
    metadata = {"name": name, **members.pop("metadata", {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **members}


def _condition(kind: str, status: str, **members: str) -> Record:
    return {"type": kind, "status": status, "lastTransitionTime": WHEN.format(5), **members}


NODE = _object(
    "Node", "n1",
    metadata={
        "labels": {"disk": "ssd", "node-role.orch.io/worker": "",
                   "node-role.kubernetes.io/worker": "", "orch.io/os": "linux"},
        "annotations": {"note": "x", "long": "word " * 40, "lines": "one\ntwo\n"},
    },
    spec={
        "podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24", "fd00::/64"], "providerID": "rack://7",
        "unschedulable": True,
        "taints": [
            {"key": "slow", "effect": "NoSchedule"},
            {"key": "own", "value": "db", "effect": "NoExecute"},
        ],
    },
    status={
        "capacity": {"cpu": "4", "memory": "8135356Ki", "pods": "110", "ephemeral-storage": "100Gi",
                     "hugepages-2Mi": "512Mi", "example.com/gpu": "2"},
        "allocatable": {"cpu": "3800m", "memory": "8032956Ki", "pods": "110",
                        "ephemeral-storage": "96636764160", "hugepages-2Mi": "512Mi",
                        "example.com/gpu": "2"},
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"},
                      {"type": "Hostname", "address": "n1"}],
        "conditions": [
            _condition("MemoryPressure", "False", reason="Enough", message="memory is enough",
                       lastHeartbeatTime=WHEN.format(9)),
            _condition("Ready", "True", reason="AgentReady", message="all is well",
                       lastHeartbeatTime=WHEN.format(9)),
        ],
        "nodeInfo": {
            "machineID": "m", "systemUUID": "s", "bootID": "b", "kernelVersion": "6.1.0",
            "osImage": "Debian GNU/Linux 12", "containerRuntimeVersion": "containerd://1.7.2",
            "kubeletVersion": "v1.35.0", "kubeProxyVersion": "v1.35.0",
            "operatingSystem": "linux", "architecture": "amd64",
        },
    },
)  # fmt: skip
UNREADY = _object(
    "Node", "n2",
    spec={"taints": [{"key": "node.orch.io/unreachable", "effect": "NoExecute"}]},
    status={
        "capacity": {"cpu": "2", "memory": "4Gi"},
        "conditions": [_condition("Ready", "Unknown", reason="NodeStatusUnknown")],
    },
)  # fmt: skip
SILENT = _object("Node", "n3")
LEASE = _object(
    "Lease", "n1", "coordination.orch.io/v1", metadata={"namespace": LEASE_NAMESPACE},
    spec={"holderIdentity": "n1", "leaseDurationSeconds": 40, "leaseTransitions": 2,
          "renewTime": "2026-01-31T12:00:00.000000Z"},
)  # fmt: skip
_VOLUMES = [
    {"name": "host", "hostPath": {"path": "/var/log", "type": "Directory"}},
    {"name": "host2", "hostPath": {"path": "/srv"}},
    {"name": "empty", "emptyDir": {}},
    {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "65536Ki"}},
    {"name": "secret", "secret": {"secretName": "password", "optional": True}},
    {"name": "config", "configMap": {"name": "settings"}},
    {"name": "down", "downwardAPI": {"items": [
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
        {"path": "cpu", "resourceFieldRef": {"containerName": "web", "resource": "limits.cpu"}},
    ]}},
    {"name": "all", "projected": {"sources": [
        {"secret": {"name": "password"}}, {"configMap": {"name": "settings", "optional": True}},
        {"downwardAPI": {"items": []}},
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}},
    ]}},
    {"name": "claim", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}},
    {"name": "new", "ephemeral": {"volumeClaimTemplate": {
        "metadata": {"labels": {"a": "b", "c": "d"}, "annotations": {"e": "f"}},
        "spec": {"storageClassName": "fast", "volumeMode": "Block",
                 "accessModes": ["ReadWriteOnce"]}}}},
    {"name": "csi", "csi": {"driver": "d", "fsType": "ext4",
                            "volumeAttributes": {"a": "b", "c": "d"}}},
    {"name": "bare-csi", "csi": {"driver": "d", "readOnly": True}},
    {"name": "image", "image": {"reference": "data:1", "pullPolicy": "Always"}},
    {"name": "nfs", "nfs": {"server": "files", "path": "/p"}},
    {"name": "iscsi", "iscsi": {"targetPortal": "10.0.0.9:3260", "iqn": "iqn.s", "lun": 3,
                                "portals": ["a", "b"], "secretRef": {"name": "password"}}},
    {"name": "fc", "fc": {"targetWWNs": ["1", "2"], "lun": 2}},
    {"name": "rbd", "rbd": {"monitors": ["m"], "image": "i", "pool": "p"}},
    {"name": "cephfs", "cephfs": {"monitors": ["m", "n"], "path": "/"}},
    {"name": "gluster", "glusterfs": {"endpoints": "e", "path": "p"}},
    {"name": "git", "gitRepo": {"repository": "r", "revision": "v"}},
    {"name": "flex", "flexVolume": {"driver": "d", "options": {"a": "b", "c": "d"}}},
]  # fmt: skip
_WEB = {
    "name": "web", "image": "web:1", "command": ["serve", "-v"], "args": ["one\ntwo"],
    "ports": [{"containerPort": 80}, {"containerPort": 53, "protocol": "UDP", "hostPort": 5353}],
    "resources": {
        "requests": {"cpu": "0.25", "memory": "131072Ki", "ephemeral-storage": "1G"},
        "limits": {"cpu": 1, "memory": "1.5Gi", "example.com/gpu": 1},
    },
    "livenessProbe": {"httpGet": {"path": "/a b?c=d", "port": 80}, "initialDelaySeconds": 3},
    "readinessProbe": {"exec": {"command": ["test", "-e", "/x"]}, "periodSeconds": 7},
    "startupProbe": {"tcpSocket": {"port": "http", "host": "::1"}, "failureThreshold": 30},
    "env": [
        {"name": "A", "value": "1"}, {"name": "LINES", "value": "one\ntwo"}, {"name": "NOTHING"},
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        {"name": "MEMORY", "valueFrom": {
            "resourceFieldRef": {"resource": "requests.memory", "divisor": "1Mi"}}},
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "password", "key": "p"}}},
        {"name": "MODE", "valueFrom": {
            "configMapKeyRef": {"name": "settings", "key": "mode", "optional": True}}},
    ],
    "envFrom": [{"configMapRef": {"name": "settings"}},
                {"prefix": "P_", "secretRef": {"name": "password", "optional": True}}],
    "volumeMounts": [
        {"name": "host", "mountPath": "/log", "readOnly": True},
        {"name": "empty", "mountPath": "/data", "subPath": "a b"},
    ],
    "securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "web.json"}},
}  # fmt: skip
_LOGS = {
    "name": "logs", "image": "logs:1", "ports": [{"containerPort": 9000}],
    "livenessProbe": {"grpc": {"port": 9000, "service": "s"}},
    "readinessProbe": {"httpGet": {"path": "up", "port": "http", "scheme": "HTTPS", "host": "::1"}},
    "env": [{"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}],
}  # fmt: skip
POD = _object(
    "Pod", "running",
    metadata={
        "labels": {"app": "web", "tier": "front"}, "annotations": {"note": "x"},
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web",
                             "uid": "u", "controller": True}],
    },
    spec={
        "nodeName": "n1", "serviceAccountName": "builder", "priority": 7,
        "priorityClassName": "high", "runtimeClassName": "gvisor",
        "nodeSelector": {"disk": "ssd", "zone": "a"},
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "readinessGates": [{"conditionType": "example.com/lb"}, {"conditionType": "Ready"}],
        "tolerations": [
            {"key": "slow", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            {"key": "own", "operator": "Equal", "value": "db"}, {"operator": "Exists"},
        ],
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
             "labelSelector": {
                 "matchLabels": {"b": "c"},
                 "matchExpressions": [{"key": "a", "operator": "In", "values": ["y", "x"]},
                                      {"key": "d", "operator": "DoesNotExist"}]}},
            {"maxSkew": 2, "topologyKey": "host", "whenUnsatisfiable": "ScheduleAnyway"},
        ],
        "initContainers": [
            {"name": "setup", "image": "setup:1", "resources": {"requests": {"memory": "1Gi"}}},
            {"name": "proxy", "image": "proxy:1", "restartPolicy": "Always",
             "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "2"}}},
        ],
        "containers": [_WEB, _LOGS],
        "volumes": _VOLUMES,
    },
)  # fmt: skip
RUNNING_STATUS = {
    "phase": "Running", "hostIP": "10.0.0.1", "podIP": "10.1.0.2", "startTime": WHEN.format(1),
    "podIPs": [{"ip": "10.1.0.2"}, {"ip": "fd00::2"}],
    "conditions": [_condition("Ready", "True"), _condition("PodScheduled", "True")],
    "initContainerStatuses": [
        {"name": "setup", "image": "setup:1", "imageID": "sha256:1", "containerID": "c://1",
         "ready": True, "restartCount": 0,
         "state": {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": WHEN.format(1),
                                  "finishedAt": WHEN.format(2)}}},
    ],
    "containerStatuses": [
        {"name": "web", "image": "web:1", "imageID": "sha256:2", "containerID": "c://2",
         "ready": True, "restartCount": 3, "state": {"running": {"startedAt": WHEN.format(4)}},
         "lastState": {"terminated": {
             "exitCode": 137, "signal": 9, "reason": "OOMKilled", "message": "out of memory",
             "startedAt": WHEN.format(3), "finishedAt": WHEN.format(3)}}},
        {"name": "logs", "image": "logs:1", "imageID": "", "ready": False, "restartCount": 0,
         "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}},
    ],
}  # fmt: skip
LEAVING = _object(
    "Pod", "leaving", spec={
        "nodeName": "n2", "terminationGracePeriodSeconds": 600,
        "containers": [{"name": "c", "image": "busybox:1", "resources": {"requests": {"cpu": 1}}}],
        "resources": {"limits": {"cpu": "2", "memory": "0.5Gi"}, "requests": {"cpu": "1"}},
    },
)  # fmt: skip
BARE = _object(
    "Pod", "bare",
    metadata={"labels": {"app": "web"}}, spec={"containers": [{"name": "c", "image": "busybox:1"}]},
)  # fmt: skip
FAILED = _object(
    "Pod", "failed", spec={"nodeName": "n1", "containers": [{"name": "c", "image": "busybox:1"}]}
)
FAILED_STATUS = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory."}
_PASSWORD = base64.b64encode(b"hunter2").decode()
OTHERS = [
    _object("ConfigMap", "settings", metadata={"annotations": {"note": "x"}},
            data={"app.conf": "mode = fast\n\tindented\tcells\nlast"}),
    _object("ConfigMap", "binary", binaryData={"logo": "AAECAw=="}),
    _object("ConfigMap", "control", data={"k": "red \x1b[31m\r\nplain"}),
    _object("Secret", "password", data={"p": _PASSWORD}, type="Opaque"),
    _object("ServiceAccount", "builder", secrets=[{"name": "password"}, {"name": "gone"}],
            imagePullSecrets=[{"name": "registry"}]),
    _object("Secret", "builder-token", type="kubernetes.io/service-account-token",
            metadata={"annotations": {"kubernetes.io/service-account.name": "builder"}}),
    _object("Namespace", "team", metadata={"labels": {"owner": "x"}}),
    _object("Role", "reader", f"{RBAC}/v1", metadata={"labels": {"a": "b"}}, rules=[
        {"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get", "list"]},
        {"apiGroups": ["", "apps"], "resources": ["pods", "deployments/scale"], "verbs": ["watch"]},
        {"apiGroups": [RBAC], "resources": ["roles"], "verbs": ["*"], "resourceNames": ["a", "b"]},
    ]),
    _object("ClusterRole", "scraper", f"{RBAC}/v1", rules=[
        {"nonResourceURLs": ["/metrics", "/healthz"], "verbs": ["get", "head"]},
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get"]},
    ]),
    _object("RoleBinding", "readers", f"{RBAC}/v1",
            roleRef={"apiGroup": RBAC, "kind": "Role", "name": "reader"},
            subjects=[{"kind": "User", "name": "jane", "apiGroup": RBAC},
                      {"kind": "ServiceAccount", "name": "builder", "namespace": "default"}]),
    _object("ClusterRoleBinding", "scrapers", f"{RBAC}/v1",
            roleRef={"apiGroup": RBAC, "kind": "ClusterRole", "name": "scraper"}),
    LEASE,
]  # fmt: skip


def event(about: Record, number: int, **members: Any) -> Record:
    """An event about an object that is stored."""
    metadata = about["metadata"]
    reference = {
        "kind": about["kind"], "name": metadata["name"], "uid": metadata["uid"],
        "namespace": metadata.get("namespace"), "apiVersion": about["apiVersion"],
    }  # fmt: skip
    return _object(
        "Event", f"{metadata['name']}.{number}",
        metadata={"namespace": metadata.get("namespace", "default")},
        involvedObject={key: value for key, value in reference.items() if value},
        **{"type": "Normal", "reason": f"Reason{number}", "message": f"what happened {number}\n",
           "source": {"component": "nodeagent", "host": "n1"}, **members},
    )  # fmt: skip


EVENTS: list[Record] = [
    {"firstTimestamp": WHEN.format(7), "lastTimestamp": WHEN.format(9), "count": 3},
    {"type": "Warning", "firstTimestamp": WHEN.format(8), "lastTimestamp": WHEN.format(8),
     "count": 1},
    {"eventTime": "2026-01-31T12:00:01.000000Z", "source": None, "action": "a",
     "reportingComponent": "scheduler", "reportingInstance": "s-1"},
    {"eventTime": "2026-01-31T12:00:02.000000Z", "source": None, "action": "a",
     "reportingComponent": "scheduler", "reportingInstance": "s-1",
     "series": {"count": 4, "lastObservedTime": "2026-01-31T12:00:09.000000Z"}},
]  # fmt: skip
