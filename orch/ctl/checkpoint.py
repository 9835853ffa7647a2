"""`orchctl checkpoint`: write a running container's state to an archive on its node.

Asks the node's agent through the API server's node proxy, so that no key of the node is needed.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from orch.ctl import checkpoint_list, progress, session, targets, usage
from orch.ctl.api import Api, given, segment
from orch.ctl.failures import CommandFailed, WrongUsage, visible
from orch.wire import raw
from orch.wire.errors import ApiError

EXAMPLES = """
orchctl checkpoint shop/web-0 -c app --timeout 60
orchctl checkpoint list worker-1
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pod", metavar="[NAMESPACE/]POD", help="the pod; or 'list', see examples")
    parser.add_argument("-c", "--container", default="", help="needed when there are several")
    parser.add_argument(
        "--timeout", type=int, default=0, metavar="SECONDS",
        help="longest time the runtime may take; 0 leaves it to the agent",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    if args.timeout < 0:
        raise WrongUsage("--timeout is a number of seconds, 0 or more")
    return session.run(args, _checkpoint)


async def _checkpoint(api: Api, args: argparse.Namespace) -> int:
    namespace, _, name = args.pod.rpartition("/")
    namespace = namespace or api.namespace
    pod = await api.read(targets.pod_path(namespace, name))
    node = raw.text(pod, "spec", "nodeName")
    if not node:
        raise CommandFailed(f"the pod {namespace}/{name} runs on no node yet: wait until it does")
    container = args.container or _only_container(pod)
    page = "/".join(("checkpoint", *map(segment, (namespace, name, container))))
    params = given(timeout=str(args.timeout or ""))
    what = f"checkpointing {namespace}/{name}/{container} on {node}"
    async with progress.shown(what) as watch:
        answer = await api.call("POST", targets.node_path(node, page), params=params)
    try:
        archives = orjson.loads(answer.body)["items"]
    except (ValueError, KeyError, TypeError):
        raise CommandFailed(
            f"the agent of {node} did not say where the archive is: see the agent's log"
        ) from None
    for archive in archives:
        print(visible(f"{node}:{archive}"))
    watch.finish(await _size(api, node, archives))
    return 0


async def _size(api: Api, node: str, archives: Sequence[str]) -> str:
    """The size of the archives, as the agent lists them; "" when it does not."""
    try:
        listed = await checkpoint_list.of_node(api, node)
    except (ApiError, CommandFailed):
        return ""
    names = {str(archive).rpartition("/")[2] for archive in archives}
    sizes = [raw.number(one, "size") for one in listed if raw.text(one, "name") in names]
    return usage.shown_size(sum(sizes)) if sizes else ""


def _only_container(pod: Mapping[str, Any]) -> str:
    names = [raw.text(container, "name") for container in raw.records(pod, "spec", "containers")]
    if len(names) != 1:
        raise CommandFailed(f"the pod has the containers {', '.join(names)}: name one with -c")
    return names[0]
