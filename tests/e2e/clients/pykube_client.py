"""pykube: an object's whole life, and the selections of its queries."""

import sys
import threading

import pykube

api = pykube.HTTPClient(pykube.KubeConfig.from_file(sys.argv[1]), timeout=20)
assert tuple(map(int, api.version)) >= (1, 30)

seen: list[str] = []
began = threading.Event()


def watch() -> None:
    for event in pykube.ConfigMap.objects(api, namespace="default").watch():
        if event.object.name != "pykube":
            continue
        seen.append(event.type)
        began.set()
        if event.type == "DELETED":
            return


watching = threading.Thread(target=watch, daemon=True)
watching.start()

metadata = {"name": "pykube", "namespace": "default", "labels": {"by": "pykube"}}
made = pykube.ConfigMap(
    api, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "1"}}
)
made.create()
assert began.wait(15)
made.obj["data"]["b"] = "2"
made.update()
made.patch({"data": {"c": "3"}})
made.reload()
assert made.obj["data"] == {"a": "1", "b": "2", "c": "3"}
selected = pykube.ConfigMap.objects(api, namespace="default").filter(selector={"by": "pykube"})
assert [one.name for one in selected] == ["pykube"]
assert len(pykube.Node.objects(api)) == 0
made.delete()
watching.join(15)
assert seen[0] == "ADDED" and seen[-1] == "DELETED", seen
assert pykube.ConfigMap.objects(api, namespace="default").get_or_none(name="pykube") is None
