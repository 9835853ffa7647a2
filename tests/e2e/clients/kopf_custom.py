"""kopf: an operator of a kind of its own, which is stopped and started again meanwhile."""

import asyncio
import os
import sys
from typing import Any

os.environ["KUBECONFIG"] = sys.argv[1]

import kopf
import pykube

api = pykube.HTTPClient(pykube.KubeConfig.from_file(sys.argv[1]), timeout=20)
told: list[str] = []
Definition = pykube.object_factory(api, "apiextensions.k8s.io/v1", "CustomResourceDefinition")
DATABASE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "spec": {"type": "object", "properties": {"size": {"type": "integer", "maximum": 9}}},
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}


@kopf.on.create("example.org", "v1", "databases")
def created(name: str, spec: Any, patch: Any, **_: Any) -> None:
    told.append(f"created {name}")
    patch.status["size"] = spec["size"]


@kopf.on.resume("example.org", "v1", "databases")
def resumed(name: str, **_: Any) -> None:
    told.append(f"resumed {name}")


@kopf.on.update("example.org", "v1", "databases", field="spec.size")
def updated(name: str, new: Any, patch: Any, **_: Any) -> None:
    told.append(f"updated {name} {new}")
    patch.status["size"] = new


@kopf.on.delete("example.org", "v1", "databases")
def deleted(name: str, **_: Any) -> None:
    told.append(f"deleted {name}")


def define() -> None:
    version = {
        "name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": DATABASE},
        "subresources": {"status": {}},
    }  # fmt: skip
    spec = {
        "group": "example.org", "scope": "Namespaced", "versions": [version],
        "names": {"plural": "databases", "kind": "Database"},
    }  # fmt: skip
    name = "databases.example.org"
    Definition(
        api,
        {
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": name}, "spec": spec,
        },
    ).create()  # fmt: skip


def is_served() -> bool:
    found = Definition.objects(api).get_by_name("databases.example.org")
    conditions = found.obj.get("status", {}).get("conditions", ())
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


async def until(condition: Any) -> None:
    async with asyncio.timeout(30):
        while not await asyncio.to_thread(condition):
            await asyncio.sleep(0.05)


async def operating(live: Any) -> None:
    """An operator that runs meanwhile."""
    ready, stop = asyncio.Event(), asyncio.Event()
    operator = asyncio.create_task(
        kopf.operator(namespaces=["default"], standalone=True, ready_flag=ready, stop_flag=stop)
    )
    async with asyncio.timeout(60):
        await ready.wait()
        await live()
        stop.set()
        await operator


async def main() -> None:
    await asyncio.to_thread(define)
    await until(is_served)
    Database = pykube.object_factory(api, "example.org/v1", "Database")

    def stored() -> Any:
        return Database.objects(api, namespace="default").get_or_none(name="db")

    def size() -> Any:
        return stored().obj.get("status", {}).get("size")

    async def first() -> None:
        metadata = {"name": "db", "namespace": "default"}
        made = {"apiVersion": "example.org/v1", "kind": "Database", "metadata": metadata}
        await asyncio.to_thread(Database(api, {**made, "spec": {"size": 1}}).create)
        await until(lambda: size() == 1)
        assert stored().obj["metadata"]["finalizers"]
        await asyncio.to_thread(stored().patch, {"spec": {"size": 2}})
        await until(lambda: size() == 2)

    async def second() -> None:
        await until(lambda: "resumed db" in told)
        await asyncio.to_thread(stored().delete)
        await until(lambda: stored() is None)

    await operating(first)
    await operating(second)
    expected = ["created db", "updated db 2", "resumed db", "deleted db"]
    assert told == expected, told
    await asyncio.to_thread(Definition.objects(api).get_by_name("databases.example.org").delete)
    await until(lambda: Definition.objects(api).get_or_none(name="databases.example.org") is None)


asyncio.run(main())
