"""`orchctl describe`: objects in detail, with what happened to them lately."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from orch.component.clock import utc_now
from orch.ctl import (
    changes,
    choosing,
    describe_access,
    describe_node,
    describe_object,
    describe_pod,
    get,
    happenings,
    session,
    sheet,
    targets,
)
from orch.ctl.api import Api
from orch.ctl.choosing import Chosen
from orch.ctl.discovery import Discovery
from orch.ctl.manifests import Manifest
from orch.wire.errors import ApiError
from orch.wire.names import COORDINATION_GROUP, NODE_LEASE_NAMESPACE, RBAC_GROUP

EXAMPLES = """
orchctl describe node worker-1
orchctl describe pod/web lease/worker-1
orchctl describe clusterroles
"""
_ACCESS = {
    "Role": describe_access.role,
    "ClusterRole": describe_access.role,
    "RoleBinding": describe_access.binding,
    "ClusterRoleBinding": describe_access.binding,
}
_OBJECTS = {
    "Lease": describe_object.lease,
    "ConfigMap": describe_object.config_map,
    "Secret": describe_object.secret,
    "ServiceAccount": describe_object.service_account,
    "Namespace": describe_object.namespace,
}


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
    printed = 0

    async def describe(one: Chosen) -> None:
        nonlocal printed
        lines = await _lines(api, one)
        if args.show_events == "true" and one.resource.kind != "Event":
            lines += await _events(api, one)
        if printed:
            print("\n")
        printed += 1
        print("\n".join(lines))

    if not chosen:
        named = await targets.find(discovery, args.words)
        get.say_nothing_found(named, "" if args.all_namespaces else api.namespace)
    return await changes.each(chosen, describe)


async def _lines(api: Api, chosen: Chosen) -> list[str]:
    record = await api.read(chosen.path)
    kind, group = chosen.resource.kind, chosen.resource.group
    if (group, kind) == ("", "Node"):
        return await _node(api, record, chosen.name)
    if (group, kind) == ("", "Pod"):
        return describe_pod.lines(record, utc_now())
    if _is_alias(group, RBAC_GROUP) and kind in _ACCESS:
        return _ACCESS[kind](record)
    if (not group or _is_alias(group, COORDINATION_GROUP)) and kind in _OBJECTS:
        return _OBJECTS[kind](record)
    return describe_object.anything(record)


def _is_alias(group: str, own: str) -> bool:
    """Whether a group is ours, or the same one under another domain."""
    return group.partition(".")[0] == own.partition(".")[0]


async def _node(api: Api, node: Mapping[str, Any], name: str) -> list[str]:
    selector = f"spec.nodeName={name},status.phase!=Succeeded,status.phase!=Failed"
    try:
        pods = await api.items("/api/v1/pods", {"fieldSelector": selector})
    except ApiError as error:
        if error.code != 403:
            raise
        pods = None
    return describe_node.lines(node, await _lease(api, name), pods, utc_now())


async def _lease(api: Api, node: str) -> dict[str, Any] | None:
    """The node's heartbeat; None when there is none, or it may not be read."""
    path = f"/apis/{COORDINATION_GROUP}/v1/namespaces/{NODE_LEASE_NAMESPACE}/leases/{node}"
    try:
        return await api.find(path)
    except ApiError as error:
        if error.code == 403:
            return None
        raise


async def _events(api: Api, chosen: Chosen) -> list[str]:
    """The events about an object, the latest last."""
    fields = {
        "involvedObject.kind": chosen.resource.kind,
        "involvedObject.name": chosen.name,
        "involvedObject.namespace": chosen.namespace,
    }
    try:
        listed = await happenings.about(api, chosen.namespace, fields)
    except ApiError as error:
        if error.code != 403:
            raise
        return ["Events:  they may not be listed"]
    rows = [happenings.described(event, utc_now()) for event in listed]
    return sheet.table("Events", ("Type", "Reason", "Age", "From", "Message"), rows)
