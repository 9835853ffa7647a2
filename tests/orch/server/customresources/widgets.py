"""A definition that the tests share, and what they do with it."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.orch.server.harness import Answer, Api

GROUP = "example.com"
CRDS = "/apis/apiextensions.orch.io/v1/customresourcedefinitions"
WIDGETS = f"/apis/{GROUP}/v1/namespaces/default/widgets"
SPEC: dict[str, Any] = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 9},
        "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
        "host": {"type": "string", "pattern": "^[a-z]+$"},
        "port": {"x-kubernetes-int-or-string": True},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "parts": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string"},
                    "count": {"type": "integer", "default": 1},
                },
            },
        },
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
    },
}
STATUS: dict[str, Any] = {
    "type": "object",
    "properties": {"ready": {"type": "boolean"}, "size": {"type": "integer"}},
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "A widget, as tests have it.",
    "properties": {"spec": SPEC, "status": STATUS},
}


def version(name: str = "v1", *, storage: bool = True, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "served": True,
        "storage": storage,
        "schema": {"openAPIV3Schema": SCHEMA},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.size",
                "statusReplicasPath": ".status.size",
            },
        },
        **more,
    }


def definition(plural: str = "widgets", *versions: dict[str, Any], **names: Any) -> dict[str, Any]:
    singular = plural.removesuffix("s")
    return {
        "kind": "CustomResourceDefinition",
        "apiVersion": "apiextensions.orch.io/v1",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {"plural": plural, "kind": singular.title(), **names},
            "scope": "Namespaced",
            "versions": list(versions) or [version()],
        },
    }


def widget(name: str = "w", **spec: Any) -> dict[str, Any]:
    return {
        "kind": "Widget",
        "apiVersion": f"{GROUP}/v1",
        "metadata": {"name": name},
        "spec": {"size": 1, **spec},
    }


def conditions(answer: Answer) -> dict[str, str]:
    listed = answer.json.get("status", {}).get("conditions", ())
    return {each["type"]: each["status"] for each in listed}


async def define(api: Api, document: dict[str, Any]) -> None:
    """Define a kind, and wait until it is served."""
    answer = await api.call("POST", CRDS, document)
    assert answer.status == 201, answer.text
    await until(api, document["metadata"]["name"], Established="True")


async def until(api: Api, name: str, **wanted: str) -> None:
    async with asyncio.timeout(20):
        while not wanted.items() <= conditions(await api.call("GET", f"{CRDS}/{name}")).items():
            await asyncio.sleep(0.01)


async def until_gone(api: Api, name: str) -> None:
    async with asyncio.timeout(20):
        while (await api.call("GET", f"{CRDS}/{name}")).status != 404:
            await asyncio.sleep(0.01)
