"""Discovery documents: the served kinds as clients find them; pure, from the table of kinds.

Two forms: the legacy documents per group and version, and the aggregated one (v2 and v2beta1),
which a client must ask for explicitly (reference/apiserver.md §1.1).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from orch.server.request import media
from orch.wire.names import AUTHENTICATION_GROUP
from orch.wire.records.kinds import Resource

_GROUP = "apidiscovery.k8s.io"
_KIND = "APIGroupDiscoveryList"
_VERSIONS = ("v2", "v2beta1")
_OF_LIBRARY = " kubernetes/"  # in the User-Agent of kubectl and others: "kubectl/v1.33.0 (…) kube…"


@dataclass(frozen=True, slots=True)
class Subresource:
    """`api_version` and `kind` are those of its request bodies."""

    verbs: tuple[str, ...]
    kind: str = ""  # "": that of the resource
    api_version: str = ""


_PART = Subresource(("get", "patch", "update"))
SUBRESOURCES: Mapping[str, Subresource] = {
    "status": _PART,
    "approval": _PART,
    "ephemeralcontainers": _PART,
    "resize": _PART,
    "finalize": Subresource(("update",)),
    "binding": Subresource(("create",), "Binding", "v1"),
    "eviction": Subresource(("create",), "Eviction", "policy/v1"),
    "attach": Subresource(("create", "get"), "PodAttachOptions", "v1"),
    "exec": Subresource(("create", "get"), "PodExecOptions", "v1"),
    "log": Subresource(("get",)),
    "portforward": Subresource(("create", "get"), "PodPortForwardOptions", "v1"),
    "scale": Subresource(("get", "patch", "update"), "Scale", "autoscaling/v1"),
    "token": Subresource(("create",), "TokenRequest", f"{AUTHENTICATION_GROUP}/v1"),
    "proxy": Subresource(("create", "delete", "get", "patch", "update"), "NodeProxyOptions", "v1"),
}


@dataclass(frozen=True, slots=True)
class DiscoveryDocument:
    """One answer, ready to be sent."""

    body: bytes
    content_type: str = media.JSON
    etag: str = ""


class Discovery:
    """The documents by path; `address` is where clients reach this server (`host:port`).

    Readers of the legacy list search by kind, and want to find one: it leaves out the groups
    `unlisted`, which are other names. The aggregated form, whose readers look for a group, has all,
    and so has the legacy list for clients of the reference's own library, as `agent` tells.
    """

    def __init__(
        self, resources: Sequence[Resource], address: str, unlisted: Collection[str] = ()
    ) -> None:
        groups = _by_group_version(resources)
        self._aggregated = {
            (root, version): _aggregated(groups, root, version)
            for root in ("/api", "/apis")
            for version in _VERSIONS
        }
        self._legacy = _legacy(groups, address)
        listed = {name: members for name, members in groups.items() if name[0] not in unlisted}
        self._preferred = _legacy(listed, address)["/apis"]

    @property
    def paths(self) -> Collection[str]:
        return self._legacy.keys()

    def find(self, path: str, accept: str, agent: str = "") -> DiscoveryDocument | None:
        """The document at a path in the form the client prefers; None when there is none.

        `agent` is its User-Agent.
        """
        path = path.rstrip("/")
        for entry in media.parse_accept(accept):
            wanted = entry.parameters
            if wanted.get("as") == _KIND and wanted.get("g") == _GROUP:
                found = self._aggregated.get((path, wanted.get("v", "")))
                if found:
                    return found
            elif not wanted.get("as"):
                break
        if path == "/apis" and _OF_LIBRARY not in agent:
            return self._preferred
        return self._legacy.get(path)


_Groups = Mapping[tuple[str, str], list[Resource]]


def _by_group_version(resources: Sequence[Resource]) -> _Groups:
    groups: dict[tuple[str, str], list[Resource]] = {}
    for resource in resources:
        groups.setdefault((resource.group, resource.version), []).append(resource)
    return groups


def _legacy(groups: _Groups, address: str) -> dict[str, DiscoveryDocument]:
    described = _api_groups(groups)
    documents: dict[str, Any] = {
        "/api": {
            "kind": "APIVersions",
            "versions": [version for group, version in groups if not group],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
        },
        "/apis": {
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": described,
        },
    }
    for each in described:
        documents[f"/apis/{each['name']}"] = {"kind": "APIGroup", "apiVersion": "v1", **each}
    for (group, version), resources in groups.items():
        path = f"/apis/{group}/{version}" if group else f"/api/{version}"
        documents[path] = {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": f"{group}/{version}" if group else version,
            "resources": [entry for r in resources for entry in _api_resources(r)],
        }
    return {path: DiscoveryDocument(orjson.dumps(body)) for path, body in documents.items()}


def _versions(groups: _Groups) -> Mapping[str, Mapping[str, list[Resource]]]:
    """By group, its versions with their kinds."""
    found: dict[str, dict[str, list[Resource]]] = {}
    for (group, version), resources in groups.items():
        found.setdefault(group, {})[version] = resources
    return found


def _api_groups(groups: _Groups) -> list[dict[str, Any]]:
    listed = []
    for group, its_versions in _versions(groups).items():
        shown = [{"groupVersion": f"{group}/{v}", "version": v} for v in its_versions]
        if group:
            listed.append({"name": group, "versions": shown, "preferredVersion": shown[0]})
    return listed


def _api_resources(resource: Resource) -> list[dict[str, Any]]:
    entry: dict[str, Any] = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
        **_optional(resource),
        **_storage_version_hash(resource),
    }
    return [entry, *(_api_subresource(resource, name) for name in resource.subresources)]


def _storage_version_hash(resource: Resource) -> dict[str, str]:
    """By it clients notice that objects are stored in another version from now on."""
    if not resource.is_stored:
        return {}
    stored = f"{resource.group}/{resource.stored_version or resource.version}"
    if resource.stored_form:
        stored = f"/{resource.stored_form.api_version}"
    digest = hashlib.sha256(f"{stored}/{resource.kind}".encode()).digest()
    return {"storageVersionHash": base64.b64encode(digest[:8]).decode()}


def _api_subresource(resource: Resource, name: str) -> dict[str, Any]:
    subresource = SUBRESOURCES[name]
    described = _response_kind(resource, subresource)
    entry: dict[str, Any] = {
        "name": f"{resource.plural}/{name}",
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": described["kind"],
        "verbs": list(subresource.verbs),
    }
    if (described["group"], described["version"]) != (resource.group, resource.version):
        # Only for another group: from it clients know which Eviction to send.
        entry |= {"group": described["group"], "version": described["version"]}
    return entry


def _aggregated(groups: _Groups, root: str, version: str) -> DiscoveryDocument:
    items = []
    for group, its_versions in _versions(groups).items():
        if bool(group) is (root == "/api"):
            continue
        versions = [
            {"version": v, "resources": [_discovered(r) for r in resources], "freshness": "Current"}
            for v, resources in its_versions.items()
        ]
        metadata = {"name": group, "creationTimestamp": None} if group else {}
        items.append({"metadata": metadata, "versions": versions})
    body = orjson.dumps(
        {"kind": _KIND, "apiVersion": f"{_GROUP}/{version}", "metadata": {}, "items": items}
    )
    return DiscoveryDocument(
        body,
        f"{media.JSON};g={_GROUP};v={version};as={_KIND}",
        f'"{hashlib.sha512(body).hexdigest().upper()}"',
    )


def _discovered(resource: Resource) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "resource": resource.plural,
        "responseKind": _response_kind(resource, Subresource(())),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
        **_optional(resource),
    }
    if resource.subresources:
        entry["subresources"] = [
            {
                "subresource": name,
                "responseKind": _response_kind(resource, SUBRESOURCES[name]),
                "verbs": list(SUBRESOURCES[name].verbs),
            }
            for name in resource.subresources
        ]
    return entry


def _optional(resource: Resource) -> dict[str, list[str]]:
    listed = {"shortNames": list(resource.short_names), "categories": list(resource.categories)}
    return {name: values for name, values in listed.items() if values}


def _response_kind(resource: Resource, subresource: Subresource) -> dict[str, str]:
    if subresource.kind:
        group, _, version = subresource.api_version.rpartition("/")
        return {"group": group, "version": version, "kind": subresource.kind}
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}
