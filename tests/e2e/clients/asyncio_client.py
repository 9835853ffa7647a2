"""kubernetes_asyncio: watch, apply and patch, of objects that it knows and of a defined kind."""

import asyncio
import sys
from typing import Any

from kubernetes_asyncio import client, config, watch
from kubernetes_asyncio.client.exceptions import ApiException

NAME, NAMESPACE = "asyncio", "default"
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"  # without it a record is sent as if it were a JSON patch
GROUP, VERSION, PLURAL = "asyncio.example.com", "v1", "spoons"
SPOON = (GROUP, VERSION, NAMESPACE, PLURAL)
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"{PLURAL}.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": PLURAL, "kind": "Spoon"},
        "versions": [
            {
                "name": VERSION,
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}


async def changes(core: client.CoreV1Api, began: asyncio.Event) -> list[str]:
    seen: list[str] = []
    async with watch.Watch() as watching:
        stream = watching.stream(
            core.list_namespaced_config_map, NAMESPACE, field_selector=f"metadata.name={NAME}"
        )
        async for event in stream:
            seen.append(event["type"])
            began.set()
            if event["type"] == "DELETED":
                break
    return seen


def wanted(**data: str) -> dict[str, Any]:
    metadata = {"name": NAME, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


async def known(core: client.CoreV1Api) -> None:
    """A ConfigMap, by two managers."""

    async def apply(manager: str, **data: str) -> client.V1ConfigMap:
        return await core.patch_namespaced_config_map(
            NAME, NAMESPACE, wanted(**data), field_manager=manager, _content_type=APPLY
        )

    began = asyncio.Event()
    watching = asyncio.create_task(changes(core, began))
    await apply("one", a="1", b="1")
    await asyncio.wait_for(began.wait(), 15)
    made = await apply("two", c="1")
    assert made.data == {"a": "1", "b": "1", "c": "1"}
    assert {one.manager for one in made.metadata.managed_fields} == {"one", "two"}
    try:
        await apply("two", a="2")
        raise AssertionError("there was no conflict")
    except ApiException as error:
        assert error.status == 409 and '"field":".data.a"' in error.body, error
    left = await apply("one", a="1")
    assert left.data == {"a": "1", "c": "1"}
    patched = await core.patch_namespaced_config_map(
        NAME, NAMESPACE, {"data": {"d": "1"}}, _content_type=MERGE
    )
    assert patched.data["d"] == "1"
    await core.delete_namespaced_config_map(NAME, NAMESPACE)
    seen = await asyncio.wait_for(watching, 15)
    assert (seen[0], seen[-1], len(seen)) == ("ADDED", "DELETED", 5), seen


async def defined(connection: client.ApiClient) -> None:
    """An object of a kind of its own, and its status."""
    definitions = client.ApiextensionsV1Api(connection)
    await definitions.create_custom_resource_definition(DEFINITION)
    async with watch.Watch() as watching:
        stream = watching.stream(
            definitions.list_custom_resource_definition,
            field_selector=f"metadata.name={PLURAL}.{GROUP}", timeout_seconds=20,
        )  # fmt: skip
        async for event in stream:
            conditions = (event["object"].status and event["object"].status.conditions) or []
            if any(one.type == "Established" and one.status == "True" for one in conditions):
                break
        else:
            raise AssertionError("the kind is not served")
    custom = client.CustomObjectsApi(connection)
    body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Spoon", "metadata": {"name": NAME}}
    await custom.create_namespaced_custom_object(*SPOON, {**body, "spec": {"size": 1}})
    status = {"status": {"size": 2}}
    await custom.patch_namespaced_custom_object_status(*SPOON, NAME, status, _content_type=MERGE)
    found = await custom.get_namespaced_custom_object(*SPOON, NAME)
    assert (found["spec"], found["status"]) == ({"size": 1}, {"size": 2})
    await custom.delete_namespaced_custom_object(*SPOON, NAME)
    await definitions.delete_custom_resource_definition(f"{PLURAL}.{GROUP}")


async def main() -> None:
    await config.load_kube_config(sys.argv[1])
    async with client.ApiClient() as connection:
        await known(client.CoreV1Api(connection))
        await defined(connection)


asyncio.run(main())
