"""`orchctl describe`: objects in detail, with what happened to them lately.

What is shown, and how, is kubectl's (release 1.33); kinds it has no form for are shown whole.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from orch.component.process.clock import utc_now
from orch.ctl import (
    changes,
    choosing,
    describe_access,
    describe_config,
    describe_events,
    describe_node,
    describe_object,
    describe_pod,
    get,
    happenings,
    session,
    sheet,
    targets,
)
from orch.ctl.api import Api, segment
from orch.ctl.choosing import Chosen
from orch.ctl.discovery import Discovery
from orch.ctl.manifests import Manifest
from orch.wire import raw
from orch.wire.errors import ApiError
from orch.wire.names import ANNOTATION_CONFIG_MIRROR, COORDINATION_GROUP, NODE_LEASE_NAMESPACE

EXAMPLES = """
orchctl describe node worker-1
orchctl describe pod/web lease/worker-1
orchctl describe pods web-
orchctl describe clusterroles
"""
Record = Mapping[str, Any]
# Kinds that are told from the object alone, by the first word of their group: `rbac` is that of
# this service's group and of the reference's.
_FORMS: Mapping[tuple[str, str], Callable[[Record], list[str]]] = {
    ("", "ConfigMap"): describe_config.config_map,
    ("", "Secret"): describe_config.secret,
    ("", "Namespace"): describe_config.namespace,
    ("rbac", "Role"): describe_access.role,
    ("rbac", "ClusterRole"): describe_access.role,
    ("rbac", "RoleBinding"): describe_access.binding,
    ("rbac", "ClusterRoleBinding"): describe_access.binding,
}
_WITHOUT_EVENTS = set(_FORMS) - {("", "ConfigMap")}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    choosing.add_arguments(parser, "show")
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="of every namespace")
    parser.add_argument(
        "--show-events", choices=("true", "false"), default="true", help="with their events"
    )
    parser.set_defaults(all=True)


def run(args: argparse.Namespace) -> int:
    found = choosing.require(args, args.words)
    return session.run(args, partial(_describe_all, found))


async def _describe_all(found: Sequence[Manifest], api: Api, args: argparse.Namespace) -> int:
    discovery = Discovery(api)
    chosen = await choosing.choose(api, discovery, args, args.words, found)
    blank = "\n\n"
    if len(args.words) == 2 and len(chosen) == 1:
        chosen, blank = await _begun_so(api, chosen[0])
    printed = 0

    async def describe(one: Chosen) -> None:
        nonlocal printed
        record = await api.read(one.path)
        lines = await _lines(api, one, record)
        if args.show_events == "true" and _form(one) not in _WITHOUT_EVENTS:
            lines += await _events(api, one, record)
        print(blank if printed else "", sheet.aligned(lines), sep="")
        printed += 1

    if not chosen:
        named = await targets.find(discovery, args.words)
        get.say_nothing_found(named, "" if args.all_namespaces else api.namespace)
    return await changes.each(chosen, describe)


async def _begun_so(api: Api, one: Chosen) -> tuple[list[Chosen], str]:
    """One object, or without one of that name those that begin so; and what to print between."""
    if await api.find(one.path) is None:
        names = [raw.text(item, "metadata", "name") for item in await api.items(one.collection)]
        begun = [name for name in names if name.startswith(one.name)]
        if begun:
            return [Chosen(one.resource, one.namespace, name) for name in begun], "\n"
    return [one], ""


def _form(one: Chosen) -> tuple[str, str]:
    return one.resource.group.partition(".")[0], one.resource.kind


async def _lines(api: Api, one: Chosen, record: Record) -> list[str]:
    form = _form(one)
    if form == ("", "Node"):
        lease, pods = await _lease(api, one.name), await _pods(api, one.name)
        return describe_node.lines(record, lease, pods, utc_now())
    if form == ("", "Pod"):
        return describe_pod.lines(record, utc_now())
    if form == ("", "ServiceAccount"):
        secrets = await _listed(api, f"/api/v1/namespaces/{segment(one.namespace)}/secrets")
        return describe_config.service_account(record, secrets)
    return _FORMS.get(form, describe_object.lines)(record)


async def _lease(api: Api, node: str) -> Record | str:
    """The node's heartbeat; when it cannot be read, the reason."""
    path = f"/apis/{COORDINATION_GROUP}/v1/namespaces/{NODE_LEASE_NAMESPACE}/leases/{segment(node)}"
    try:
        return await api.get(path)
    except ApiError as error:
        return error.message


async def _pods(api: Api, node: str) -> list[Record] | None:
    selector = f"spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed"
    return await _listed(api, "/api/v1/pods", {"fieldSelector": selector})


async def _listed(
    api: Api, path: str, params: Mapping[str, str] | None = None
) -> list[Record] | None:
    """The objects of a collection; None when they may not be listed."""
    try:
        return await api.items(path, params)
    except ApiError as error:
        if error.code != 403:
            raise
        return None


async def _events(api: Api, one: Chosen, record: Record) -> list[str]:
    found: list[Record] = []
    for uid in _uids(one, record):
        fields = {
            "involvedObject.name": one.name,
            "involvedObject.namespace": one.namespace,
            "involvedObject.kind": one.resource.kind,
            "involvedObject.uid": uid,
        }
        selector = ",".join(f"{key}={value}" for key, value in fields.items())
        path = happenings.collection(one.namespace)
        listed = await _listed(api, path, {"fieldSelector": selector})
        if listed is None:
            return [sheet.field("Events", "not authorized")]
        found += listed
    return describe_events.lines(found, utc_now())


def _uids(one: Chosen, record: Record) -> list[str]:
    """What events name as an object's uid: agents may tell of a node under its name, and of a
    static pod under its own uid before the API has an object for it.
    """
    uid = raw.text(record, "metadata", "uid")
    if _form(one) == ("", "Node"):
        return [uid, one.name]
    mirrored = raw.mapping(record, "metadata", "annotations").get(ANNOTATION_CONFIG_MIRROR)
    return [uid, str(mirrored)] if mirrored and one.resource.kind == "Pod" else [uid]
