"""`orchctl describe`: a node or a pod in detail, with what happened to it lately."""

from __future__ import annotations

import argparse
from typing import Any

from orch.component.clock import utc_now
from orch.ctl import changes, describe_node, describe_pod, session, sheet, targets
from orch.ctl.api import Api, given
from orch.ctl.discovery import Discovery
from orch.ctl.failures import CommandFailed
from orch.ctl.targets import Target
from orch.wire import raw
from orch.wire.errors import ApiError
from orch.wire.names import COORDINATION_GROUP, NODE_LEASE_NAMESPACE
from orch.wire.table_columns import event_source
from orch.wire.table_layout import since

_DESCRIBED = ("Node", "Pod")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="+", metavar="TYPE[/NAME] [NAME]", help="what to show")


def run(args: argparse.Namespace) -> int:
    return session.run(args, _describe_all)


async def _describe_all(api: Api, args: argparse.Namespace) -> int:
    found = await targets.find_named(Discovery(api), args.words)
    printed = 0

    async def describe(target: Target) -> None:
        nonlocal printed
        if target.resource.kind not in _DESCRIBED:
            shown = target.resource.shown(target.name)
            raise CommandFailed(f"only nodes and pods: see 'orchctl get {shown} -o yaml'")
        lines = await (_node if target.resource.kind == "Node" else _pod)(api, target)
        if printed:
            print("\n")
        printed += 1
        print("\n".join(lines))

    return await changes.each(found, describe)


async def _node(api: Api, target: Target) -> list[str]:
    node = await api.get(target.path(""))
    selector = f"spec.nodeName={target.name},status.phase!=Succeeded,status.phase!=Failed"
    pods = await api.get("/api/v1/pods", {"fieldSelector": selector})
    lease = await _lease(api, target.name)
    listed = raw.records(pods, "items")
    return [
        *describe_node.lines(node, lease, listed, utc_now()),
        *await _events(api, "", node),
    ]


async def _pod(api: Api, target: Target) -> list[str]:
    pod = await api.get(target.path(api.namespace))
    return [*describe_pod.lines(pod, utc_now()), *await _events(api, api.namespace, pod)]


async def _lease(api: Api, node: str) -> dict[str, Any] | None:
    """The node's heartbeat; None when there is none, or it may not be read."""
    path = f"/apis/{COORDINATION_GROUP}/v1/namespaces/{NODE_LEASE_NAMESPACE}/leases/{node}"
    try:
        return await api.get(path)
    except ApiError as error:
        if error.code in (403, 404):
            return None
        raise


async def _events(api: Api, namespace: str, record: dict[str, Any]) -> list[str]:
    """The events about an object, the latest last."""
    fields = given(
        **{
            "involvedObject.kind": raw.text(record, "kind"),
            "involvedObject.name": raw.text(record, "metadata", "name"),
            "involvedObject.namespace": namespace,
        }
    )
    path = f"/api/v1/namespaces/{namespace}/events" if namespace else "/api/v1/events"
    selector = ",".join(f"{key}={value}" for key, value in fields.items())
    listed = raw.records(await api.get(path, {"fieldSelector": selector}), "items")
    listed.sort(key=_last_seen)
    rows = [
        (
            raw.text(event, "type"),
            raw.text(event, "reason"),
            since(_last_seen(event), utc_now()),
            event_source(event),
            raw.text(event, "message").strip(),
        )
        for event in listed
    ]
    return sheet.table("Events", ("Type", "Reason", "Age", "From", "Message"), rows)


def _last_seen(event: Any) -> str:
    return (
        raw.text(event, "series", "lastObservedTime")
        or raw.text(event, "lastTimestamp")
        or raw.text(event, "eventTime")
    )
