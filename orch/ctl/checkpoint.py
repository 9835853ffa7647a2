"""`orchctl checkpoint`: write a running container's state to an archive on its node.

Asks the node's agent through the API server's node proxy, so that no key of the node is needed.
"""

from __future__ import annotations

import argparse

import orjson

from orch.ctl import session
from orch.ctl.api import Api, given, segment
from orch.ctl.failures import CommandFailed, WrongUsage, visible
from orch.wire import raw


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pod", metavar="[NAMESPACE/]POD", help="the pod")
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
    pod = await api.get(f"/api/v1/namespaces/{segment(namespace)}/pods/{segment(name)}")
    node = raw.text(pod, "spec", "nodeName")
    if not node:
        raise CommandFailed(f"the pod {namespace}/{name} runs on no node yet: wait until it does")
    container = args.container or _only_container(pod)
    path = "/".join(
        (
            "/api/v1/nodes",
            segment(node),
            "proxy/checkpoint",
            *map(segment, (namespace, name, container)),
        )
    )
    answer = await api.call("POST", path, params=given(timeout=str(args.timeout or "")))
    try:
        archives = orjson.loads(answer.body)["items"]
    except (ValueError, KeyError, TypeError):
        raise CommandFailed(
            f"the agent of {node} did not say where the archive is: see the agent's log"
        ) from None
    for archive in archives:
        print(visible(f"{node}:{archive}"))
    return 0


def _only_container(pod: dict[str, object]) -> str:
    names = [raw.text(container, "name") for container in raw.records(pod, "spec", "containers")]
    if len(names) != 1:
        raise CommandFailed(f"the pod has the containers {', '.join(names)}: name one with -c")
    return names[0]
