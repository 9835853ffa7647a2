"""kr8s: an object's whole life, found by its kind alone."""

import sys
import threading

import kr8s
from kr8s.objects import ConfigMap, CustomResourceDefinition, new_class

api = kr8s.api(kubeconfig=sys.argv[1])
assert any(one["name"] == "configmaps" for one in api.api_resources())

seen: list[str] = []
began = threading.Event()


def watch() -> None:
    for kind, one in api.watch("configmaps", namespace="default"):
        if one.name != "kr8s":
            continue
        seen.append(kind)
        began.set()
        if kind == "DELETED":
            return


watching = threading.Thread(target=watch, daemon=True)
watching.start()

metadata = {"name": "kr8s", "namespace": "default", "labels": {"by": "kr8s"}}
made = ConfigMap({"metadata": metadata, "data": {"a": "1"}}, api=api)
made.create()
assert began.wait(15)
assert made.exists()
made.patch({"data": {"b": "2"}})
made.label({"more": "yes"})
made.refresh()
assert made.raw["data"] == {"a": "1", "b": "2"}
[found] = api.get("configmaps", namespace="default", label_selector="by=kr8s,more=yes")
assert found.name == "kr8s"
assert len(list(api.get("leases.coordination.k8s.io", namespace="kube-node-lease"))) == 0
made.delete()
watching.join(15)
assert seen[0] == "ADDED" and seen[-1] == "DELETED", seen

version = {
    "name": "v1", "served": True, "storage": True,
    "schema": {"openAPIV3Schema": {
        "type": "object", "x-kubernetes-preserve-unknown-fields": True,
    }},
    "subresources": {"scale": {
        "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
    }},
}  # fmt: skip
names = {"plural": "shirts", "singular": "shirt", "kind": "Shirt"}
spec = {"group": "kr8s.example.com", "scope": "Namespaced", "names": names, "versions": [version]}
definition = CustomResourceDefinition(
    {"metadata": {"name": "shirts.kr8s.example.com"}, "spec": spec}, api=api
)
definition.create()
definition.wait("condition=Established", timeout=20)
Shirt = new_class("Shirt", version="kr8s.example.com/v1", namespaced=True, scalable=True)
shirt = Shirt({"metadata": {"name": "s", "namespace": "default"}, "spec": {"replicas": 1}}, api=api)
shirt.create()
shirt.scale(3)
shirt.refresh()
assert shirt.raw["spec"]["replicas"] == 3
shirt.delete()
definition.delete()
