"""Requests that are costly to answer: what they are written down with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from orch.server.request import protobuf
from tests.attacks.harness import RBAC, TENANT

CORE = f"/api/v1/namespaces/{TENANT}"
ROLES = f"{RBAC}/namespaces/{TENANT}/roles"
BINDINGS = f"{RBAC}/namespaces/{TENANT}/rolebindings"
REVIEWS = "/apis/authorization.orch.io/v1"
DRY = "?dryRun=All"
JSON, YAML = "application/json", "application/yaml"
MERGE, STRATEGIC, PATCH = (
    f"application/{form}+json" for form in ("merge-patch", "strategic-merge-patch", "json-patch")
)
APPLY = "application/apply-patch+yaml"
AS = "?fieldManager=mallory&dryRun=All"
LONG_NAME = "k." * 1_400_000 + "k/a"  # each label of it took 150 bytes to match
MANY = 4_500  # elements of four values each: just below the bound


class Attack(NamedTuple):
    """A request; `status` is the expected answer."""

    user: str
    method: str
    path: str
    make: Callable[[], object]
    status: int
    form: str = JSON


def named(name: str, **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, **fields}


def pod(name: str, **spec: Any) -> dict[str, Any]:
    return named(name, spec={"containers": [{"name": "a", "image": "b"}], **spec})


def rules(count: int, **fields: list[str]) -> list[dict[str, Any]]:
    rule = {"verbs": ["get"], "apiGroups": [""], "resources": ["nodes"], **fields}
    return [{**rule, "resourceNames": [f"n{number}"]} for number in range(count)]


def text(start: str, middle: str, count: int, end: str) -> bytes:
    """A JSON text that would take long to write out."""
    return f"{start}{middle * count}{end}".encode()


def tolerations(count: int) -> list[dict[str, Any]]:
    return [{"key": f"k{number}", "operator": "Exists"} for number in range(count)]


def fields_of(message: bytes, count: int) -> bytes:
    """A protobuf Pod whose spec repeats a field."""

    def field(number: int, value: bytes) -> bytes:
        length, out = len(value), bytearray([number << 3 | 2])
        while length > 127:
            out.append(length & 127 | 128)
            length >>= 7
        return bytes(out) + bytes([length]) + value

    kind = field(1, field(1, b"v1") + field(2, b"Pod"))
    spec = field(2, field(1, b"a") + field(2, b"b")) + message * count
    return protobuf.MAGIC + kind + field(2, field(1, field(1, b"p")) + field(2, spec))


def selector(term: str, count: int) -> str:
    return ",".join(term.format(number) for number in range(count))


def review(**attributes: Any) -> dict[str, Any]:
    return {"spec": {"resourceAuthorizationAttributes": {"verb": "get", **attributes}}}


POD, LONG = f"{CORE}/pods/victim", f"{CORE}/pods/long"
