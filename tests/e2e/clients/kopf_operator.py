"""kopf: an operator that sees an object made, changed and deleted, and holds it by a finalizer."""

import asyncio
import os
import sys
from typing import Any

os.environ["KUBECONFIG"] = sys.argv[1]

import kopf
import pykube

api = pykube.HTTPClient(pykube.KubeConfig.from_file(sys.argv[1]), timeout=20)
told: list[str] = []


@kopf.on.create("configmaps", labels={"by": "kopf"})
def created(name: str, body: Any, patch: Any, **_: Any) -> None:
    told.append(f"created {name}")
    kopf.info(body, reason="Seen", message="by the operator")
    patch.metadata.annotations["example.com/seen"] = "yes"


@kopf.on.update("configmaps", labels={"by": "kopf"}, field="data")
def updated(name: str, new: Any, **_: Any) -> None:
    told.append(f"updated {name} {sorted(new)}")


@kopf.on.delete("configmaps", labels={"by": "kopf"})
def deleted(name: str, **_: Any) -> None:
    told.append(f"deleted {name}")


def stored() -> Any:
    return pykube.ConfigMap.objects(api, namespace="default").get_or_none(name="kopf")


async def until(condition: Any) -> None:
    async with asyncio.timeout(30):
        while not await asyncio.to_thread(condition):
            await asyncio.sleep(0.05)


def events() -> list[str]:
    found = pykube.Event.objects(api, namespace="default")
    return [e.obj["reason"] for e in found if e.obj["involvedObject"]["name"] == "kopf"]


async def live() -> None:
    metadata = {"name": "kopf", "namespace": "default", "labels": {"by": "kopf"}}
    made = pykube.ConfigMap(
        api, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "1"}}
    )
    await asyncio.to_thread(made.create)
    await until(lambda: (stored().obj["metadata"].get("annotations") or {}).get("example.com/seen"))
    assert stored().obj["metadata"]["finalizers"]
    await until(lambda: "Seen" in events())
    await asyncio.to_thread(stored().patch, {"data": {"b": "2"}})
    await until(lambda: "updated kopf ['a', 'b']" in told)
    await asyncio.to_thread(stored().delete)
    await until(lambda: stored() is None)
    assert told == ["created kopf", "updated kopf ['a', 'b']", "deleted kopf"], told


async def main() -> None:
    ready, stop = asyncio.Event(), asyncio.Event()
    operator = asyncio.create_task(
        kopf.operator(namespaces=["default"], standalone=True, ready_flag=ready, stop_flag=stop)
    )
    async with asyncio.timeout(60):
        await ready.wait()
        await live()
        stop.set()
        await operator


asyncio.run(main())
