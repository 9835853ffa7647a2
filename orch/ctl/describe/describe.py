"""`orchctl describe`: objects in detail, with their recent events.

Nodes and pods are described as kubectl does (release 1.36), every other kind field by field.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from orch.component.process.clock import utc_now
from orch.ctl import api, changes, selection
from orch.ctl.api import Api, segment
from orch.ctl.describe import generic, nodes, pods
from orch.ctl.describe.tab_writer import TabWriter
from orch.ctl.discovery import Discovery
from orch.ctl.manifests import Manifest
from orch.ctl.objects import events
from orch.ctl.output import printing
from orch.ctl.selection import Selected
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
_BETWEEN_MATCHES = "\n"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    selection.add_arguments(parser, "show")
    parser.add_argument(
        "--show-events", choices=("true", "false"), help="include events, as for a single object"
    )
    parser.set_defaults(all=True)


def run(args: argparse.Namespace) -> int:
    return api.run(args, partial(_describe_all, selection.require(args)))


async def _describe_all(found: Sequence[Manifest], api: Api, args: argparse.Namespace) -> int:
    discovery = Discovery(api)
    selected = await selection.select(api, discovery, args, found)
    blank = "\n\n"
    if len(args.words) == 2 and len(selected) == 1:
        selected, blank = await _with_prefix(api, selected[0])
    printed = 0
    is_single = len(selected) == 1 and blank != _BETWEEN_MATCHES
    shows_events = args.show_events == "true" or (args.show_events is None and is_single)

    async def describe(target: Selected) -> None:
        nonlocal printed
        record = await api.read(target.path())
        writer = TabWriter()
        await _write(writer, api, target, record)
        if shows_events:
            await _write_events(writer, api, target, record)
        print(blank if printed else "", writer.text(), sep="")
        printed += 1

    if not selected:
        words, everywhere = args.words, args.all_namespaces
        printing.report_nothing(await selection.find(api, discovery, words, everywhere=everywhere))
    return await changes.each(selected, describe)


async def _with_prefix(api: Api, target: Selected) -> tuple[list[Selected], str]:
    """The object, or when it is missing those whose names begin so; and what to print between."""
    if await api.find(target.path()) is None:
        listed = await api.items(target.resource.path(target.namespace))
        names = [raw.text(item, "metadata", "name") for item in listed]
        matching = [name for name in names if name.startswith(target.name)]
        if matching:
            return [
                Selected(target.resource, target.namespace, name) for name in matching
            ], _BETWEEN_MATCHES
    return [target], ""


def _is_core(target: Selected, kind: str) -> bool:
    return (target.resource.group, target.resource.kind) == ("", kind)


async def _write(writer: TabWriter, api: Api, target: Selected, record: Record) -> None:
    if _is_core(target, "Node"):
        lease = await _lease(api, target.name)
        fields = f"spec.nodeName={target.name},status.phase!=Succeeded,status.phase!=Failed"
        running = await _listed(api, "/api/v1/pods", fields)
        nodes.write(writer, record, lease, running, utc_now())
    elif _is_core(target, "Pod"):
        pods.write(writer, record, utc_now())
    else:
        generic.write(writer, record)


async def _lease(api: Api, node: str) -> Record | str:
    """The node's heartbeat; when it cannot be read, the reason."""
    path = f"/apis/{COORDINATION_GROUP}/v1/namespaces/{NODE_LEASE_NAMESPACE}/leases/{segment(node)}"
    try:
        return await api.get(path)
    except ApiError as error:
        return error.message


async def _listed(api: Api, path: str, fields: str) -> list[Record] | None:
    """The objects of a collection; None when they may not be listed."""
    try:
        return await api.items(path, fieldSelector=fields)
    except ApiError as error:
        if error.code != 403:
            raise
        return None


async def _write_events(writer: TabWriter, api: Api, target: Selected, record: Record) -> None:
    found: list[Record] = []
    for uid in _uids(target, record):
        fields = {
            "involvedObject.name": target.name,
            "involvedObject.namespace": target.namespace,
            "involvedObject.kind": target.resource.kind,
            "involvedObject.uid": uid,
        }
        listed = await _listed(api, events.path(target.namespace), events.selector(fields))
        if listed is None:
            writer.field("Events", "not authorized")
            return
        found += listed
    generic.write_events(writer, found, utc_now())


def _uids(target: Selected, record: Record) -> list[str]:
    """The uids under which events name an object.

    Agents may report a node under its name, and a static pod under its own uid before the API has
    an object for it.
    """
    uid = raw.text(record, "metadata", "uid")
    if _is_core(target, "Node"):
        return [uid, target.name]
    mirrored = raw.mapping(record, "metadata", "annotations").get(ANNOTATION_CONFIG_MIRROR)
    return [uid, str(mirrored)] if mirrored and _is_core(target, "Pod") else [uid]
