"""A tenant of a whole cluster: posts pods bound to its node, and sees what becomes of them."""

from __future__ import annotations

from typing import Any

from tests.e2e.harness import LocalCluster, eventually
from tools.runtime_lib.images import BUSYBOX

PODS = "/api/v1/namespaces/default/pods"


def pod(name: str, script: str = "sleep 1000", **spec: Any) -> dict[str, Any]:
    """A pod of one container; `own` is the container's security context, `image` its image."""
    container = {
        "name": "c",
        "image": spec.pop("image", BUSYBOX),
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", script],
        "securityContext": spec.pop("own", None),
    }
    metadata = {"name": name, **spec.pop("metadata", {})}
    whole = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, **spec}
    spec = {"containers": [container], **whole}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


class Tenant:
    """Posts pods to the cluster, already bound to its node."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster

    def post(self, made: dict[str, Any]) -> str:
        """ "" when it was taken, else the refusal."""
        made["spec"]["nodeName"] = self.cluster.node
        try:
            self.cluster.request(PODS, made)
        except AssertionError as error:
            return str(error)
        return ""

    def ended(self, name: str) -> str:
        """The log of a pod that has ended."""
        eventually(
            lambda: self.cluster.pod(name)["status"]["phase"] in ("Succeeded", "Failed"),
            within_s=60,
            what=f"pod {name} ends: {self.told(name)}",
        )
        return self.cluster.request(f"{PODS}/{name}/log")

    def told(self, name: str) -> str:
        """Why a pod does not run: its own messages and its containers'."""
        status = self.cluster.pod(name)["status"]
        statuses = status.get("initContainerStatuses", []) + status.get("containerStatuses", [])
        waiting = [one.get("state", {}).get("waiting", {}) for one in statuses]
        texts = [status.get("message", ""), *(w.get("message", "") for w in waiting)]
        return " | ".join(filter(None, texts))

    def started(self, name: str) -> list[str]:
        """The ids of the containers that a pod has or had."""
        status = self.cluster.pod(name)["status"]
        statuses = status.get("initContainerStatuses", []) + status.get("containerStatuses", [])
        return [one["containerID"] for one in statuses if one.get("containerID")]

    def delete(self, *names: str) -> None:
        self.cluster.kubectl("delete", "pod", "--wait=false", "--ignore-not-found", *names)
